"""How many seats should a decode pool have whose KV binds? What seats do not hold is where hand-offs land; with none left, they may all come at once.

    python examples/staging.py --plot staging.png        # needs passcal[plots]

Four prefill workers, one decode worker with KV for 32 requests, and a link that carries 7.45 prompts a second. Requests that are all alike can lock
into one batch: they go over together, share the link, arrive together and end together, so that transfers and decode take turns. Headroom keeps them
apart; so do transfers one at a time, and requests of different lengths. Those are evicted here and there, for only prompts are reserved; that costs little while
the prefix cache still has what they lose, and more if there is none.
"""

import sys

import passcal as pc

timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()
HELD = 32  # requests that the decode worker's KV has room for, with their outputs
alike = pc.Workload.closed_loop(isl=4096, osl=256, concurrency=64)
varied = pc.Workload.closed_loop(shapes=[(4096, n) for n in (96, 416, 160, 352, 256, 192, 320)], concurrency=64)


def answer(workload: pc.Workload, seats: int, transfers: int | None = None, cached: bool = True) -> pc.Report:
    """With so many seats on the decode side."""
    deployment = pc.Disaggregated(
        prefill=pc.Vllm(),
        decode=pc.Vllm(max_num_seqs=seats, num_gpu_blocks=HELD * (4096 + 256) // 16 + 1, enable_prefix_caching=cached),
        prefill_workers=4,
        link=pc.Link(gb_per_s=5, kv_bytes_per_token=131072, max_transfers_per_worker=transfers),
        hold="blocks",
    )
    return pc.evaluate(workload, deployment, timing)


seats = (8, 12, 16, 20, 24, 28, 32, 48)
rates: dict[str, list[float]] = {"alike": [], "one transfer at a time": [], "varied": [], "varied, no cache": []}
print("                 alike                                       one at a time  varied      varied, no cache")
print("seats  headroom  requests/s  under way  decodes  evictions      requests/s  requests/s  requests/s")
for n in seats:
    reports = answer(alike, n), answer(alike, n, transfers=1), answer(varied, n), answer(varied, n, cached=False)
    for kept, report in zip(rates.values(), reports, strict=True):
        kept.append(report.throughput_per_s)
    one, *others = reports
    under_way = one.throughput_per_s * one.hand_off_ms["transfer"].mean / 1000  # transfers at a time, by Little's law
    print(
        f"{n:>5}{HELD - n:>10}{one.throughput_per_s:>12.4g}{under_way:>11.1f}{one.stage_utilisation['decode']:>9.0%}{one.preemptions:>11}      "
        + "".join(f"{other.throughput_per_s:>10.4g}  " for other in others).rstrip()
    )
best = max(zip(rates["alike"], seats, strict=True))
print(
    f"alike: {best[1]} seats serve the most, {best[0]:.4g} requests/s; {HELD} seats {rates['alike'][seats.index(HELD)] / best[0] - 1:+.0%}"
)

if "--plot" in sys.argv:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4))
    for name, found in rates.items():
        axes.plot(seats, found, marker="o", label=name)
    axes.set(xlabel="max_num_seqs of the decode worker", ylabel="requests/s", ylim=(0, None))
    axes.axvline(HELD, linestyle=":", color="grey", label="no headroom from here on")
    axes.legend()
    figure.savefig(sys.argv[sys.argv.index("--plot") + 1], dpi=150, bbox_inches="tight")
