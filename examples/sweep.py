"""Which options and how many clients serve the most tokens a second within two service levels?"""

import itertools

import passcal as pc

timing = pc.Roofline(model="llama-3.1-8b", gpu="h100").timing()
levels = [pc.Sla("ttft", 0.99, 500), pc.Sla("itl", "mean", 20)]
candidates = [
    {"backend": "vllm", "max_num_batched_tokens": budget, "concurrency": clients}
    for budget, clients in itertools.product((512, 2048, 8192), range(8, 65, 8))
]

best = pc.sweep(candidates, pc.Workload.closed_loop(isl=2048, osl=128), timing, sla=levels, top=3)

for _, row in best.iterrows():
    print(
        f"{row.max_num_batched_tokens:>5} tokens a pass, {row.concurrency:>2} clients:"
        f" {row.output_tokens_per_s:.4g} tokens/s, TTFT p99 {row.ttft_steady_p99:.4g} ms, ITL mean {row.itl_mean:.4g} ms"
    )
counts = best.attrs["counts"]
print(f"{counts['candidates']} candidates, {counts['rejected_by_bracket']} rejected by the bracket")
