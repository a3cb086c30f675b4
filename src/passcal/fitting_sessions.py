"""Sessions and replays with a client-side queue as tables: lanes, what they send, and who sends first."""

from typing import Any

import numpy as np

from passcal.core.compiled import table
from passcal.core.tables import BOUNDLESS, LANE, TURN
from passcal.fitting import Lengths
from passcal.spec.sessions import Sessions
from passcal.spec.workload import Replay

__all__ = ["fit_sessions", "session_lengths"]


def session_lengths(workload: Sessions) -> Lengths:
    """All requests; at a time there live at most the largest turns of all sessions."""
    rows = workload.rows
    largest = np.zeros(int(rows["session"][-1]) + 1, np.int64)
    np.maximum.at(largest, rows["session"], rows["call"] + 1)
    return Lengths.of(rows, len(rows), int(largest.sum()))


def fit_sessions(workload: Sessions | Replay, world: Any) -> dict[str, Any]:
    """The tables of lanes by name; in a replay whose client sends only so many at a time, every request is a lane of its own."""
    rows = workload.rows
    turns = np.zeros(len(rows), TURN)
    if isinstance(workload, Replay):
        turns["lane"] = np.arange(len(rows))
        lanes = lanes_of(np.arange(len(rows)), len(rows), rows["dispatch_ms"])
        world["most_open"] = workload.max_concurrency
    else:
        for name, source in (("think_ms", "think_ms"), ("lane", "session"), ("turn", "turn"), ("call", "call")):
            turns[name] = rows[source]
        first = np.flatnonzero(np.diff(rows["session"], prepend=-1))
        lanes = lanes_of(first, len(rows), np.arange(len(first)) * workload.stagger_ms + rows["think_ms"][first])
        world["most_open"] = BOUNDLESS
    world["lanes"] = world["thinking"] = len(lanes)
    heap = np.argsort(lanes["next_ms"], kind="stable")  # what is in order is a heap
    return {"turns": table(turns), "lanes": table(lanes), "thinking": heap, "origins": np.zeros(len(rows), np.int64)}


def lanes_of(first: Any, end: int, sends_ms: Any) -> Any:
    """LANE[n] from the first row of each and when it sends it."""
    lanes = np.zeros(len(first), LANE)
    lanes["row"], lanes["end"], lanes["next_ms"] = first, np.append(first[1:], end), sends_ms
    return lanes
