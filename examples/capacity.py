"""How many users, or how many requests a second, one H100 carries before its service levels break, and which of them breaks first."""

import passcal as pc

timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()
chat = pc.Workload.closed_loop(isl=1024, osl=128)
levels = [pc.Sla("ttft", 0.99, 300), pc.Sla("itl", 0.99, 40)]

print(f"{'budget':>7}{'clients':>9}{'requests/s':>12}  breaks first")
for budget in (512, 2048, 8192):
    best = pc.capacity(pc.Vllm(max_num_batched_tokens=budget), timing, sla=levels, workload=chat)
    metric = best.binds.metric if best.binds else "-"
    rate = best.report.throughput_per_s if best.report else 0
    print(f"{budget:>7}{best.load:>9}{rate:>12.4g}  {metric}")
for note in best.notes:
    print(note)

open_loop = pc.capacity(pc.Vllm(), timing, sla=levels, workload=chat, unit="rate", tolerance=0.05)
print(
    f"Poisson: {open_loop.load:.3g} requests/s of the {open_loop.report.capacity_per_s:.3g} that the engine can serve"
)

tight = pc.capacity(pc.Vllm(), timing, sla=pc.Sla("ttft", 0.99, 5), workload=chat)
print(f"{tight.load}: {tight.reason}")
