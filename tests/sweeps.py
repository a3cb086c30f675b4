"""Candidate tables for tests of sweeps."""

import numpy as np
import pandas as pd

import passcal as pc

TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
OPTIONS = {  # seats and budget by backend
    "vllm": ("max_num_seqs", "max_num_batched_tokens"),
    "sglang": ("max_running_requests", "chunked_prefill_size"),
    "trtllm": ("max_batch_size", "max_num_tokens"),
}


def candidates(count: int, seed: int = 1, **more: tuple) -> pd.DataFrame:
    """Random candidates of all backends; further columns by what they choose from."""
    rng = np.random.default_rng(seed)
    backend = rng.choice(list(OPTIONS), count)
    seats, budget = rng.choice([8, 16, 32, 64], count), rng.choice([128, 256, 512, 2048], count)
    frame = pd.DataFrame(
        {"backend": backend, "isl": rng.integers(16, 800, count), "osl": rng.choice([1, 4, 16], count)}
    )
    frame["concurrency"] = rng.integers(1, 48, count)
    for name, (seat, tokens) in OPTIONS.items():
        frame[seat] = np.where(backend == name, seats, np.nan)
        frame[tokens] = np.where(backend == name, budget, np.nan)
    for name, values in more.items():
        frame[name] = rng.choice(values, count)
    return frame
