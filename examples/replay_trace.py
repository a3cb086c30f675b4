"""A recorded conversation trace on one GPU, and on twice as much traffic: the same requests in half of the time."""

from pathlib import Path

import passcal as pc
from passcal.sources.readers import read_trace

trace = read_trace(Path(__file__).parent / "data" / "azure_conv_2000.csv")
engine = pc.Vllm(max_num_batched_tokens=4096, max_num_seqs=128)
timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()

for speed in (1, 2, 4):
    rows = trace.assign(dispatch_ms=trace["dispatch_ms"] / speed)
    report = pc.evaluate_replay(pc.Workload.replay(rows), engine, timing)
    ttft, itl = report.ttft_ms, report.itl_ms
    print(f"{speed}x: {report.throughput_per_s:.4g} requests/s, engine busy {report.utilisation:.4g} of the time")
    print(f"    TTFT p50 {ttft.quantile(0.5):.4g} p99 {ttft.quantile(0.99):.4g} ms")
    print(f"    ITL  p50 {itl.quantile(0.5):.4g} p99 {itl.quantile(0.99):.4g} ms")
    print(f"    {ttft.share_within(200):.4g} of the first tokens come within 200 ms")

requests = report.requests()
worst = requests.loc[(requests["first_ms"] - requests["dispatch_ms"]).idxmax()]
print(
    f"at {speed}x request {worst['request']:.0f} waits longest: isl {worst['isl']:.0f}, sent at {worst['dispatch_ms']:.4g} ms"
)
