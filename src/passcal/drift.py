"""Whether a stretch of measurements has settled, and how sure its mean is."""

import math
from typing import Any

import numpy as np

__all__ = ["drift_note", "half_width", "settled"]

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


def drift_note(drift: bool) -> tuple[str, ...]:
    """What a reader must know of a window that did not settle."""
    return (
        ("the window still drifts: its figures depend on where it lies; raise Window(max_requests=)",) if drift else ()
    )
