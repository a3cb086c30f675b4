"""Expanding the log: a row that stands for several passes becomes as many, priced again exactly as they were run."""

from typing import Any

import numpy as np

from passcal.core.compiled import entry
from passcal.core.tables import State
from passcal.timing.linear import decode_price

__all__ = ["durations", "expand"]


@entry
def expand_into(runs: Any, forms: Any, captured: Any, first: int, stop: int, row: Any, ends: Any) -> int:
    """Fill, for every pass of rows first to stop, its row and when it ends; returns how many passes there are."""
    n = 0
    for r in range(first, stop):
        run = runs[r]
        row[n] = r
        if run.count == 1:
            ends[n] = run.end_ms
            n += 1
            continue
        end, context = run.start_ms, run.decode_kv_tokens
        for _ in range(run.count):
            end = end + decode_price(forms[0], captured[0], run.decode_requests, context)
            context += run.decode_requests
            row[n], ends[n] = r, end
            n += 1
    return n


def expand(state: State, runs: slice) -> tuple[Any, Any, Any]:
    """For every pass of these rows of the log: its row, its start and its end (ms)."""
    part = state.runs[runs]
    total = int(part["count"].sum())
    row, ends = np.empty(total, np.int64), np.empty(total)
    expand_into(state.runs, state.forms, state.captured, runs.start, runs.stop, row, ends)
    starts = np.empty(total)
    starts[1:] = ends[:-1]
    heads = np.cumsum(part["count"]) - part["count"]
    starts[heads] = part["start_ms"]
    return row, starts, ends


def durations(state: State, runs: slice) -> tuple[Any, Any]:
    """For every pass of these rows of the log: its row and how long it takes (ms)."""
    row, starts, ends = expand(state, runs)
    return row, ends - starts
