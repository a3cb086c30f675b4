"""Whether a stretch of measurements has settled, and how sure its mean and its 99th percentile are."""

import math
from typing import Any

import numpy as np

__all__ = ["drift_note", "half_width", "p99_interval", "settled"]

BATCHES = 20
T_95 = 2.093  # Student's t, 19 degrees of freedom, two-sided 95%


def settled(values: Any) -> tuple[int, bool]:
    """How many leading values to skip so that the rest shows no drift, and whether drift remains.

    The rest is cut in halves; the difference of their means is held against its batch-means standard error.
    """
    n = len(values)
    for skip in (0, n // 10, n // 5, n // 2):
        rest = values[skip:]
        half = len(rest) // 2
        early, late = rest[:half], rest[half : 2 * half]
        spread = math.hypot(half_width(early), half_width(late))
        gap = abs(float(early.mean() - late.mean()))
        if gap <= spread + 1e-9 * abs(float(rest.mean())):
            return skip, False
    return n // 2, True


def half_width(values: Any) -> float:
    """Half of the 95% confidence interval of the mean, from twenty batch means."""
    size = len(values) // BATCHES
    if size == 0:
        return float("inf") if len(values) < 2 else 2.0 * float(np.std(values)) / math.sqrt(len(values))
    means = values[: size * BATCHES].reshape(BATCHES, size).mean(axis=1)
    return T_95 * float(means.std(ddof=1)) / math.sqrt(BATCHES)


def p99_interval(values: Any) -> tuple[float, float]:
    """The 99th percentile, and half of its 95% confidence interval; infinite where too few values lie above it.

    Batch means give the interval of the share above the percentile; the quantiles at the shares' bounds give the percentile's.
    """
    last = len(values) - 1
    at = math.ceil(0.99 * len(values)) - 1
    p99 = float(np.partition(values, at)[at])
    if at == last:
        return p99, float("inf")
    off = half_width((values > p99).astype(float)) * len(values)
    if at + off > last:
        return p99, float("inf")
    low, high = max(0, math.floor(at - off)), math.ceil(at + off)
    bounds = np.partition(values, (low, high))
    return p99, float(bounds[high] - bounds[low]) / 2


def drift_note(drift: bool) -> tuple[str, ...]:
    """What a reader must know of a window that did not settle."""
    return (
        ("the window still drifts: its figures depend on where it lies; raise Window(max_requests=)",) if drift else ()
    )
