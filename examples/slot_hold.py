"""More prefill seats are more supply. Is that more throughput? Below what the decode side can stage, yes; above, it may be less.

    python examples/slot_hold.py --plot slot_hold.png        # needs passcal[plots]

A prefill worker that keeps a prompt's seat until its KV has arrived elsewhere (hold=blocks_and_seat) has no more hand-offs under way than seats. With 24
clients the decode worker, whose KV holds 32 requests, takes all that comes, and seats add throughput until hardly anybody waits for one. With 48 clients seats
add throughput while hand-offs overlap with decode; with too many, alike requests fill the pool in one go, and transfers and decode take turns.
Requests of different lengths spread out, and lose next to nothing. (No prefix cache: an evicted request is computed anew.)
"""

import sys

import passcal as pc

timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()
OUTPUTS = {"alike": (256,), "varied": (96, 416, 160, 352, 256, 192, 320)}


def answer(outputs: tuple[int, ...], clients: int, seats: int) -> pc.Report:
    """With so many seats on each of four prefill workers."""
    deployment = pc.Disaggregated(
        prefill=pc.Vllm(max_num_seqs=seats),
        decode=pc.Vllm(num_gpu_blocks=32 * (4096 + 256) // 16 + 1, enable_prefix_caching=False),
        prefill_workers=4,
        link=pc.Link(gb_per_s=5, kv_bytes_per_token=131072, latency_ms=300),
        hold="blocks_and_seat",
    )
    workload = pc.Workload.closed_loop(shapes=[(4096, osl) for osl in outputs], concurrency=clients)
    return pc.evaluate(workload, deployment, timing)


seats = (1, 2, 4, 8, 16)
rates: dict[tuple[str, int], list[float]] = {(name, clients): [] for name in OUTPUTS for clients in (24, 48)}
print("requests/s" + "".join(f"{f'{name}, {clients} clients':>20}" for name, clients in rates))
for n in seats:
    for (name, clients), found in rates.items():
        found.append(answer(OUTPUTS[name], clients, n).throughput_per_s)
    print(f"{n:>4} seats" + "".join(f"{found[-1]:>20.4g}" for found in rates.values()))
for at, n in ((0, 1), (2, 4)):
    changes = (round(100 * (found[-1] / found[at] - 1)) for found in rates.values())
    print(f"16 for {n}  " + "".join(f"{change:>+19}%" for change in changes))

if "--plot" in sys.argv:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for (name, clients), found in rates.items():
        axes.plot(seats, found, marker="o", label=f"{name}, {clients} clients")
    axes.set(xlabel="max_num_seqs of a prefill worker", ylabel="requests/s", ylim=(0, None))
    axes.set_xscale("log", base=2)
    axes.legend()
    figure.savefig(sys.argv[sys.argv.index("--plot") + 1], dpi=150, bbox_inches="tight")
