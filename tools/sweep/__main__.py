"""Time sweeps of random candidates with two targets, and compare each with evaluating every candidate: `python -m tools.sweep 20000`."""

import argparse
import time

import numpy as np
import pandas as pd

import passcal as pc

OPTIONS = {
    "vllm": ("max_num_seqs", "max_num_batched_tokens"),
    "sglang": ("max_running_requests", "chunked_prefill_size"),
    "trtllm": ("max_batch_size", "max_num_tokens"),
}
TARGETS = {
    "ttft_steady_p99": pc.Sla("ttft", 0.99, 500),
    "itl_mean": pc.Sla("itl", "mean", 20),
    "itl_p99": pc.Sla("itl", 0.99, 40),
    "tpot_p99": pc.Sla("tpot", 0.99, 25),
    "e2e_p99": pc.Sla("e2e", 0.99, 3000),
    "throughput_rps": pc.Floor("throughput_rps", 6),
}


def candidates(count: int) -> pd.DataFrame:
    """Random ones of all backends."""
    rng = np.random.default_rng(1)
    backend = rng.choice(list(OPTIONS), count)
    seats, budget = rng.integers(8, 256, count), rng.integers(256, 8192, count)
    frame = pd.DataFrame({"backend": backend, "concurrency": rng.integers(1, 256, count)})
    for name, (seat, tokens) in OPTIONS.items():
        frame[seat] = np.where(backend == name, seats, np.nan)
        frame[tokens] = np.where(backend == name, np.maximum(budget, seats), np.nan)
    return frame


def main() -> None:
    """Print seconds and counts; raise where the answers differ."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int)
    frame = candidates(parser.parse_args().count)
    workload = pc.Workload.closed_loop(isl=2048, osl=128)
    timing = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6), combine="shared")
    began = time.perf_counter()
    every = pc.sweep(frame, workload, timing, top=None)
    print(f"every candidate evaluated: {time.perf_counter() - began:.1f} s")
    first, *others = TARGETS
    for second in others:
        began = time.perf_counter()
        found = pc.sweep(frame, workload, timing, sla=[TARGETS[first], TARGETS[second]])
        took = time.perf_counter() - began
        floor = isinstance(TARGETS[second], pc.Floor)
        limit = TARGETS[second].limit if floor else TARGETS[second].limit_ms
        kept = every[second] >= limit if floor else every[second] <= limit
        best = every[kept & (every[first] <= TARGETS[first].limit_ms)].head(10)
        pd.testing.assert_frame_equal(found.drop(columns="pareto"), best.drop(columns="pareto"), check_exact=True)
        counts = {name: count for name, count in found.attrs["counts"].items() if count}
        print(f"{first}, {second}: {took:.2f} s, the same {len(best)}; {counts}")


if __name__ == "__main__":
    main()
