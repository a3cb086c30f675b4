"""Requests at a rate, up to nearly all that the engine can serve: what users wait for, how sure that is, and where it ends."""

import passcal as pc

engine = pc.Vllm(max_num_batched_tokens=8192)
timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()
isl, osl = pc.Lengths.lognormal(1500, cv=1.0), pc.Lengths.gamma(200, cv=0.8)

quiet = pc.evaluate_open_loop(pc.Workload.open_loop(isl, osl, rate_per_s=0.1), engine, timing)
most = quiet.capacity_per_s
print(f"capacity {most:.3g} requests/s; without load TTFT p50 is {quiet.ttft_ms.quantile(0.5):.3g} ms")

print(f"{'load':>4}  {'arrivals':<10}{'TTFT p50':>9}{'p99':>7}{'±':>5}{'ITL p99':>9}")
for load in (0.3, 0.6, 0.8):
    for name, cv in (("Poisson", 1.0), ("bursty", 2.0)):
        workload = pc.Workload.open_loop(isl, osl, load * most, arrivals="gamma", cv=cv)
        report = pc.evaluate_open_loop(workload, engine, timing)
        p50, p99 = report.ttft_ms.quantiles((0.5, 0.99))
        half, itl = report.window.p99_half_width_ms, report.itl_ms.quantile(0.99)
        print(f"{load:>4.0%}  {name:<10}{p50:>9.0f}{p99:>7.0f}{half:>5.0f}{itl:>9.0f}")

flood = pc.Workload.open_loop(isl, osl, 1.2 * most, horizon_requests=2000)
try:
    pc.evaluate_open_loop(flood.model_copy(update={"horizon_requests": None}), engine, timing)
except pc.Diverged:
    report = pc.evaluate_open_loop(flood, engine, timing)
    print(
        f"120% has no steady state; of its first 2,000 requests half wait over {report.ttft_ms.quantile(0.5) / 1000:.2g} s"
    )
