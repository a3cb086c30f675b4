"""When every output token of a drained run appears, as array functions of the log."""

from typing import Any

import numpy as np

from passcal.passes import expand
from passcal.stopping import Measured

__all__ = ["pass_table", "token_times"]

LOGGED = ("prefill_tokens", "prefill_requests", "prefill_kv_tokens", "decode_requests")


def pass_table(measured: Measured) -> dict[str, Any]:
    """One entry a pass: start and end (ms), chunks and rows; the contexts of repeated passes grow by one a row."""
    row, start, end = expand(measured.state, measured.runs)
    runs = measured.state.runs
    table = {"start_ms": start, "end_ms": end, **{name: runs[name][row] for name in LOGGED}}
    table["decode_kv_tokens"] = runs["decode_kv_tokens"][row] + repetition(measured, row) * runs["decode_requests"][row]
    return table


def repetition(measured: Measured, row: Any) -> Any:
    """For every pass: how many passes of its row of the log come before it; `row` as `expand` gives it."""
    counts = measured.state.runs["count"][measured.runs].astype(np.int64)
    heads = np.cumsum(counts) - counts
    return np.arange(len(row)) - heads[row - measured.runs.start]


def token_times(measured: Measured) -> list[Any]:
    """One ascending array of ms for each request, in dispatch order.

    A running sequence emits at every pass from its first token on; where it did not, the log lists a stall.
    """
    requests = measured.state.requests[measured.rows]
    _, _, ends = expand(measured.state, measured.runs)
    osl = requests["osl"].astype(np.int64)
    heads = np.cumsum(osl) - osl
    first = requests["first_pass"] - measured.state.runs["number"][measured.runs.start]
    token = np.arange(int(osl.sum())) - np.repeat(heads, osl)
    at = np.repeat(first, osl) + token + passes_lost(measured, heads, osl)
    return np.split(ends[at], heads[1:])


def passes_lost(measured: Measured, heads: Any, osl: Any) -> Any:
    """For every token: the passes since its request's first token in which the request emitted nothing."""
    stalls = measured.state.stalls[measured.stalls]
    stalls = stalls[np.argsort(stalls["request"], kind="stable")]  # within a request they stand in order of time
    request = stalls["request"] - measured.rows.start
    lost = stalls["to_pass"] - stalls["from_pass"] - 1
    upto = np.cumsum(lost) - lost
    before = upto - upto[np.searchsorted(request, request)]  # lost earlier by the same request
    token = stalls["from_pass"] - measured.state.requests["first_pass"][stalls["request"]] - before + 1
    jumps = np.zeros(int(osl.sum()) + 1, np.int64)
    np.add.at(jumps, heads[request] + token, lost)
    jumps = np.cumsum(jumps)[:-1]
    return jumps - np.repeat(np.concatenate(([0], jumps))[heads], osl)
