"""More clients on an engine of 16 seats: throughput grows until the seats bind, then only the queue does."""

import passcal as pc

engine = pc.Vllm(max_num_seqs=16)
timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()

print(f"{'clients':>7}{'requests/s':>12}{'TTFT p50':>10}{'queue p50':>11}  binding")
for clients in (1, 4, 8, 16, 24, 32, 64):
    workload = pc.Workload.closed_loop(isl=1024, osl=128, concurrency=clients)
    report = pc.evaluate_closed_loop(workload, engine, timing)
    ttft, queue = report.ttft_ms.quantile(0.5), report.queue_ms.quantile(0.5)
    print(f"{clients:>7}{report.throughput_per_s:>12.4g}{ttft:>10.4g}{queue:>11.4g}  {report.binding}")
print(report.binding.why)
