"""Expanding the log: a row that stands for several passes becomes as many, priced again exactly as they were run."""

from typing import Any

import numpy as np

from passcal.core.compiled import entry
from passcal.core.tables import State
from passcal.timing.linear import decode_price

__all__ = ["expand", "gaps"]


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


@entry
def gaps_into(runs: Any, forms: Any, captured: Any, first: int, stop: int, values: Any, weights: Any) -> int:
    """Fill, for every pass of rows first to stop that ends a gap of one pass, how long it takes and how many rows; returns how many."""
    n = 0
    for r in range(first, stop):
        run = runs[r]
        if run.gaps == 0:
            continue
        start, context = run.start_ms, run.decode_kv_tokens
        for _ in range(run.count):
            end = run.end_ms
            if run.count > 1:
                end = start + decode_price(forms[0], captured[0], run.decode_requests, context)
            values[n], weights[n] = end - start, run.gaps
            start = end
            context += run.decode_requests
            n += 1
    return n


def gaps(state: State, runs: slice) -> tuple[Any, Any]:
    """Gaps of one pass in these rows of the log: how long (ms), and how many tokens ended one; 12 bytes a pass."""
    total = int(state.runs["count"][runs].sum())
    values, weights = np.empty(total), np.empty(total, np.int32)
    n = gaps_into(state.runs, state.forms, state.captured, runs.start, runs.stop, values, weights)
    return values[:n], weights[:n]
