"""Candidates that `tools.screening.draw` does not draw: tiny budgets and few seats, KV that just holds all, units of chunks, round numbers that make instants coincide."""

from typing import Any

import passcal as pc
from tools.screening.draw import log_int

__all__ = ["an_odd_candidate"]


def an_odd_candidate(rng: Any) -> tuple[pc.Workload, dict[str, Any], pc.LinearTiming]:
    """Who sends what, an engine's options with its `backend`, and what passes cost; options may break a rule."""
    backend = str(rng.choice(["vllm", "sglang", "trtllm"]))
    isl, osl, clients = log_int(rng, 1, 3000), log_int(rng, 1, 200), log_int(rng, 1, int(rng.choice([8, 64, 600])))
    budget, seats = log_int(rng, 1, 6000), log_int(rng, 1, int(rng.choice([4, 64, 512])))
    prefix = 0 if backend == "trtllm" else min(int(isl * rng.choice([0.0, rng.uniform(0.0, 0.95)])), isl - 1)
    options, prefix = OPTIONS[backend](rng, isl, osl, min(clients, seats), budget, seats, prefix)
    think = float(rng.choice([0.0, 0.0, 0.5, 20.0, 300.0, 3000.0]))
    squared = float(rng.choice([0.0, 1e-6]))
    timing = pc.LinearTiming(
        prefill=(*(float(rng.choice(values)) for values in ((0.0, 1.0, 5.0, 20.0), (0.0, 0.001, 0.02, 0.1))), squared, squared * float(rng.uniform(0, 2))),
        decode=tuple(float(rng.choice(values)) for values in ((1.0, 8.0, 20.0), (0.0, 0.05, 0.2), (0.0, 2e-6, 1e-4))),
        combine=str(rng.choice(["sum", "max", "shared"])),
    )  # fmt: skip
    workload = pc.Workload.closed_loop(isl=isl, prefix=prefix, osl=osl, concurrency=clients, turnaround_ms=think)
    return workload, {"backend": backend, **options}, timing


def for_vllm(rng: Any, isl: int, osl: int, held: int, budget: int, seats: int, prefix: int) -> Any:
    """With blocks for all, or nearly."""
    options: dict[str, Any] = {"max_num_batched_tokens": max(budget, seats), "max_num_seqs": seats}
    if rng.integers(2):
        options["async_scheduling"] = bool(rng.integers(2))
    if rng.integers(3) == 0:
        options["num_gpu_blocks"] = int(-(-(isl + osl) // 16) * held * rng.choice([1, 1.02, 1.3])) + int(
            rng.integers(2, 6)
        )
        options["watermark"] = float(rng.choice([0.0, 0.01]))
    return options | {"enable_prefix_caching": bool(rng.integers(4) or prefix)}, prefix


def for_sglang(rng: Any, isl: int, osl: int, held: int, budget: int, seats: int, prefix: int) -> Any:
    """With slots for all, or nearly."""
    options: dict[str, Any] = {"chunked_prefill_size": budget, "max_running_requests": seats}
    for name in ("enable_mixed_chunk", "disable_overlap_schedule", "ignore_eos"):
        options[name] = bool(rng.integers(2))
    if rng.integers(3) == 0:
        options["max_total_tokens"] = int((isl + osl + 3) * held * rng.choice([1, 1.05, 1.5])) + 3
    options["disable_radix_cache"] = not rng.integers(4)
    return options, 0 if options["disable_radix_cache"] else prefix


def for_trtllm(rng: Any, isl: int, osl: int, held: int, budget: int, seats: int, prefix: int) -> Any:
    """With blocks for all, or nearly, and chunks of any unit."""
    size = int(rng.choice([16, 32, 64]))
    options: dict[str, Any] = {"max_num_tokens": max(budget, size), "max_batch_size": seats, "tokens_per_block": size}
    options["overlap_scheduler"] = bool(rng.integers(2))
    if rng.integers(3) == 0:
        options["max_tokens_in_kv"] = int(size * -(-(isl + osl) // size) * held * rng.choice([1, 1.05, 1.5]))
    if rng.integers(3) == 0:
        options["capacity_policy"] = "MAX_UTILIZATION"
    if rng.integers(3) == 0:
        options["chunk_unit"] = int(rng.choice([1, 16, min(33, options["max_num_tokens"])]))
    return options, prefix


OPTIONS = {"vllm": for_vllm, "sglang": for_sglang, "trtllm": for_trtllm}
