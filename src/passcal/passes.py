"""Reading the log: rows that stand for several passes are priced again exactly as they were run, or summed as they stand."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from passcal.core.compiled import entry
from passcal.core.rank import HELD_BLOCKS, HELD_BUDGET, HELD_SEATS
from passcal.core.tables import State
from passcal.timing.linear import decode_price

__all__ = ["Usage", "expand", "gaps", "repetition", "together", "usage"]


class Prices(NamedTuple):
    """What pricing a pass of the log again needs of `State`."""

    runs: Any
    ranks: Any
    forms: Any
    captured: Any


def prices_of(state: State) -> Prices:
    """These tables."""
    return Prices(state.runs, state.ranks, state.forms, state.captured)


class Usage(NamedTuple):
    """Sums over passes: time (ms), in all and by what kept the queue's head out, and what was computed."""

    busy_ms: float
    seats_ms: float
    budget_ms: float
    kv_ms: float
    prefill_tokens: float
    recomputed: float
    decode_passes: float  # with decode rows
    decode_rows: float
    decode_context: float
    block_ms: float
    peak_blocks: float


@entry
def expand_into(prices: Prices, first: int, stop: int, row: Any, ends: Any) -> int:
    """Fill, for every pass of rows first to stop, its row and when it ends; returns how many passes there are."""
    n = 0
    for r in range(first, stop):
        run = prices.runs[r]
        if run.count == 1:
            row[n], ends[n] = r, run.end_ms
            n += 1
            continue
        form = prices.ranks[run.engine].form
        end, context = run.start_ms, run.decode_kv_tokens
        for _ in range(run.count):
            end = end + decode_price(prices.forms[form], prices.captured[form], run.decode_requests, context)
            context += run.decode_requests
            row[n], ends[n] = r, end
            n += 1
    return n


def expand(state: State, runs: slice) -> tuple[Any, Any, Any]:
    """For every pass of these rows of the log: its row, its start and its end (ms)."""
    part = state.runs[runs]
    total = int(part["count"].sum())
    row, ends = np.empty(total, np.int64), np.empty(total)
    expand_into(prices_of(state), runs.start, runs.stop, row, ends)
    starts = np.empty(total)
    starts[1:] = ends[:-1]
    full = part["count"] > 0  # an empty pass beside the others of its group is none of the log's
    heads = (np.cumsum(part["count"]) - part["count"])[full]
    starts[heads] = part["start_ms"][full]
    return row, starts, ends


@entry
def gaps_into(prices: Prices, first: int, stop: int, values: Any, weights: Any) -> int:
    """Fill, for every pass of rows first to stop that ends a gap of one pass, how long it takes and how many rows; returns how many."""
    n = 0
    for r in range(first, stop):
        run = prices.runs[r]
        if run.gaps == 0:
            continue
        form = prices.ranks[run.engine].form
        start, context = run.start_ms, run.decode_kv_tokens
        for _ in range(run.count):
            end = run.end_ms
            if run.count > 1:
                end = start + decode_price(prices.forms[form], prices.captured[form], run.decode_requests, context)
            values[n], weights[n] = end - start, run.gaps
            start = end
            context += run.decode_requests
            n += 1
    return n


def gaps(state: State, runs: slice) -> tuple[Any, Any]:
    """Gaps of one pass in these rows of the log: how long (ms), and how many tokens ended one; 12 bytes a pass."""
    total = int(state.runs["count"][runs].sum())
    values, weights = np.empty(total), np.empty(total, np.int32)
    n = gaps_into(prices_of(state), runs.start, runs.stop, values, weights)
    return values[:n], weights[:n]


def repetition(state: State, runs: slice, row: Any) -> Any:
    """For every pass: how many passes of its row of the log come before it; `row` as `expand` gives it."""
    counts = state.runs["count"][runs].astype(np.int64)
    heads = np.cumsum(counts) - counts
    return np.arange(len(row)) - heads[row - runs.start]


@entry
def sum_into(runs: Any, ranks: Any, stage: int, first: int, stop: int, out: Any) -> None:
    """Add rows first to stop, of this stage, to the fields of `Usage`, in its order."""
    for r in range(first, stop):
        run = runs[r]
        if run.count == 0 or ranks[run.engine].stage != stage:
            continue
        took = run.end_ms - run.start_ms
        out[0] += took
        if run.held_by == HELD_SEATS:
            out[1] += took
        elif run.held_by == HELD_BUDGET:
            out[2] += took
        elif run.held_by == HELD_BLOCKS:
            out[3] += took
        out[4] += run.prefill_tokens
        out[5] += run.recomputed
        if run.decode_requests > 0:
            out[6] += run.count
            out[7] += run.count * run.decode_requests
            out[8] += run.count * (run.decode_kv_tokens + 0.5 * (run.count - 1) * run.decode_requests)
        out[9] += run.block_ms if run.count > 1 else run.blocks * took
        out[10] = max(out[10], run.blocks)


def usage(state: State, runs: slice, stage: int) -> Usage:
    """The sums over the passes of a stage in these rows of the log."""
    out = np.zeros(len(Usage._fields))
    sum_into(state.runs, state.ranks, stage, runs.start, runs.stop, out)
    return Usage._make(out.tolist())


def together(usages: Sequence[Usage]) -> Usage:
    """The sums over all stages."""
    sums = Usage._make(map(sum, zip(*usages, strict=True)))
    return sums._replace(peak_blocks=max(used.peak_blocks for used in usages))
