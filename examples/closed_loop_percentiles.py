"""What 32 users see: the percentiles of a closed loop, exact, and what a benchmark of 200 requests would have measured."""

import passcal as pc

workload = pc.Workload.closed_loop(isl=4096, osl=256, concurrency=32)
engine = pc.Vllm(max_num_batched_tokens=8192, max_num_seqs=256)
timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()

report = pc.evaluate_closed_loop(workload, engine, timing)
benchmark = report.benchmark(requests=200)

print(f"{report.window.kind} of {report.window.requests} requests, {report.throughput_per_s:.4g} requests/s")
print(f"{'':10}{'mean':>8}{'p50':>8}{'p90':>8}{'p99':>8}")
for name, measured in {
    "TTFT": report.ttft_ms,
    "ITL": report.itl_ms,
    "TPOT": report.tpot_ms,
    "E2E": report.e2e_ms,
    "benchmark": benchmark.ttft_ms,  # TTFT, start-up and drain included
}.items():
    figures = (measured.mean, *measured.quantiles((0.5, 0.9, 0.99)))
    print(f"{name:10}" + "".join(f"{figure:>8.4g}" for figure in figures))
