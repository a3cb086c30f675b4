"""Log to latencies: each a distribution in ms over the requests, or the tokens, of a window."""

from typing import Any

import numpy as np

from passcal.core.tables import BOUNDLESS
from passcal.core.tandem_tables import FIRST_DECODE_PASS
from passcal.distribution import Distribution
from passcal.passes import gaps
from passcal.splits import legs_at
from passcal.window import Measured

__all__ = [
    "client_queue",
    "e2e",
    "has_turns",
    "itl",
    "queue",
    "startup",
    "tpot",
    "ttft",
    "turn",
    "turn_table",
]


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


def client_queue(part: Measured, arrivals_ms: Any) -> Distribution:
    """Dispatch of the window's requests less when they were due, by number; None: all are sent when due."""
    sent = part.state.requests["dispatch_ms"][part.rows]
    due = sent if arrivals_ms is None else arrivals_ms[part.first_id : part.first_id + len(sent)]
    return Distribution(sent - due)


def has_turns(part: Measured) -> bool:
    """Whether lanes are sessions; those of a client that sends only so many requests at a time are requests."""
    world = part.state.world[0]
    return bool(world["lanes"]) and bool(world["most_open"] >= BOUNDLESS)


def turn_table(part: Measured) -> dict[str, Any]:
    """One entry a turn of a session, by session and turn: numbers of session, turn and own request, calls, and its times (ms).

    Of a window that leaves the first requests of the run out: the turns sent in it.
    """
    turns, requests = part.state.turns, part.state.requests
    number = np.empty(len(turns), np.int64)
    number[part.state.origins] = np.arange(len(turns))
    heads = np.flatnonzero(turns["call"] == 0)
    own = number[heads]
    table = {"session": turns["lane"][heads], "turn": turns["turn"][heads], "request": own}
    table["calls"] = np.diff(heads, append=len(turns)) - 1
    for name in ("dispatch_ms", "first_ms"):
        table[name] = requests[name][own]
    table["done_ms"] = np.maximum.reduceat(requests["done_ms"][number], heads)
    counted = own >= part.rows.start
    return {name: column[counted] for name, column in table.items()}


def turn(part: Measured) -> Distribution:
    """Of a session's turns: the last token of its request and calls less its dispatch; empty for other traffic."""
    if not has_turns(part):
        return Distribution(np.zeros(0))
    table = turn_table(part)
    return Distribution(table["done_ms"] - table["dispatch_ms"])


def tpot(part: Measured) -> Distribution:
    """Time per output token of the window's requests."""
    table = part.state.requests[part.rows]
    more = table["osl"] > 1
    if not more.all():
        table = table[more]
    return Distribution((table["done_ms"] - table["first_ms"]) / (table["osl"] - 1))


def hand_off_gaps(part: Measured) -> Any:
    """Between the first token of each request of the window, shown before the decode stage emits any, and the first one from there (ms)."""
    state, table = part.state, part.state.requests[part.rows]
    first = legs_at(part, len(state.stages) - 1)["first_ms"]
    if state.hops["first_token"][-1] == FIRST_DECODE_PASS:
        return np.zeros(0)
    return (first - table["first_ms"])[table["osl"] > 1]


def itl(part: Measured) -> Distribution:
    """Gaps of the window: every pass stands for its rows whose token before came one pass earlier, and for those that prefill passes
    paused since; the others are listed.
    """
    values, weights = gaps(part.state, part.runs)
    runs, listed = part.state.runs[part.runs], part.state.stalls["gap_ms"][part.stalls]
    if len(part.state.stages) > 1:
        listed = np.concatenate([listed, hand_off_gaps(part)])
    late = runs[runs["late_gaps"] > 0]
    if not len(listed) and not len(late):
        return Distribution(values, weights)
    return Distribution(
        np.concatenate([values, late["late_gap_ms"], listed]),
        np.concatenate([weights, late["late_gaps"], np.ones(len(listed), weights.dtype)]),
    )
