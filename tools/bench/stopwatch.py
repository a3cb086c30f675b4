"""Medians of repeated runs."""

import statistics
import time
from collections.abc import Callable
from typing import Any

__all__ = ["median_seconds"]


def median_seconds(run: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Median wall and thread seconds of a run, after one that does not count."""
    run()
    walls, threads = [], []
    for _ in range(repeats):
        wall, thread = time.perf_counter(), time.thread_time()
        run()
        walls.append(time.perf_counter() - wall)
        threads.append(time.thread_time() - thread)
    return statistics.median(walls), statistics.median(threads)
