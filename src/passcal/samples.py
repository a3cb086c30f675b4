"""Log to latencies: each a distribution in ms over the requests, or the tokens, of a window."""

import numpy as np

from passcal.distribution import Distribution
from passcal.passes import gaps
from passcal.window import Measured

__all__ = ["e2e", "itl", "queue", "startup", "tpot", "ttft"]


def since_dispatch(part: Measured, field: str) -> Distribution:
    """An event of the window's requests less their dispatch."""
    table = part.state.requests[part.rows]
    return Distribution(table[field] - table["dispatch_ms"])


def ttft(part: Measured) -> Distribution:
    """First token less dispatch."""
    return since_dispatch(part, "first_ms")


def e2e(part: Measured) -> Distribution:
    """Last token less dispatch."""
    return since_dispatch(part, "done_ms")


def startup(part: Measured) -> Distribution:
    """TTFT of every client's first request."""
    return Distribution(part.startup_ttft_ms)


def queue(part: Measured) -> Distribution:
    """Wait of the window's requests from visibility to the start of their first pass."""
    table = part.state.requests[part.rows]
    return Distribution(table["admitted_ms"] - table["visible_ms"])


def tpot(part: Measured) -> Distribution:
    """Time per output token of the window's requests."""
    table = part.state.requests[part.rows]
    more = table["osl"] > 1
    if not more.all():
        table = table[more]
    return Distribution((table["done_ms"] - table["first_ms"]) / (table["osl"] - 1))


def itl(part: Measured) -> Distribution:
    """Gaps of the window: every pass stands for its rows whose token before came one pass earlier, and for those that prefill passes
    paused since; the others are listed.
    """
    values, weights = gaps(part.state, part.runs)
    runs, listed = part.state.runs[part.runs], part.state.stalls["gap_ms"][part.stalls]
    late = runs[runs["late_gaps"] > 0]
    if not len(listed) and not len(late):
        return Distribution(values, weights)
    return Distribution(
        np.concatenate([values, late["late_gap_ms"], listed]),
        np.concatenate([weights, late["late_gaps"], np.ones(len(listed), weights.dtype)]),
    )
