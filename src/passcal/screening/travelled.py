"""Figures of what clients were seen to do: everything since the state was kept, and the first requests of all."""

from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.groups import HERE, KEPT
from passcal.screening.mixture import add, levels, point_levels, run_level, sort_atoms
from passcal.screening.tables import LEVELS

__all__ = ["E2E", "QUEUE", "TPOT", "TTFT", "collect", "ends_of", "rate_per_s", "seen_figures"]

TTFT, E2E, TPOT, QUEUE = range(4)  # latencies of a request
MIDDLE_AND_TAIL = (0.5, 0.99)


@jit
def seen_figures(c: Any, room: Any, out: Any, thorough: bool) -> None:
    """Everything but the bracket; quantiles of gaps to rounding if `thorough`, else as if runs of passes did not overlap, at a tenth of the cost."""
    s, k = room.states[HERE], room.states[KEPT]
    out[35] = rate_per_s(s, k)
    out[36] = out[35] * c.osl
    ends_of(c, s, k, room.served)
    latency_figures(c, room, TTFT, out, 0)
    latency_figures(c, room, E2E, out, 21)
    latency_figures(c, room, QUEUE, out, 28)
    out[11:21] = np.nan
    if c.osl > 1.0:
        latency_figures(c, room, TPOT, out, 14)
        out[11] = out[14]
        gap_figures(room.gaps[k.gaps : s.gaps], out, thorough)
    start_up(c, room.served, out)


@jit
def rate_per_s(s: Any, k: Any) -> float:
    """Requests a second."""
    return 1000.0 * (s.done - k.done) / (s.now - k.now)


@jit
def latency_figures(c: Any, room: Any, number: float, out: Any, at: int) -> None:
    """The mean of a latency, and behind it its quantiles."""
    count, out[at] = collect(c, room, number)
    point_levels(room.atoms, count, LEVELS, out, at + 1)


@jit
def collect(c: Any, room: Any, number: float) -> tuple[int, float]:
    """A latency of all requests that had their first token since then, as a mixture in `atoms`: how many rows, and the mean."""
    count, total, weight = 0, 0.0, 0.0
    for at in range(room.states[KEPT].served, room.states[HERE].served):
        row = room.served[at]
        value = latency(c, row, number)
        count = add(room.atoms, count, row.count, value)
        total, weight = total + row.count * value, weight + row.count
    return count, total / weight


@jit
def latency(c: Any, row: Any, number: float) -> float:
    """One of a request's."""
    if number == TTFT:
        return row.first - row.visible + c.think_ms
    if number == E2E:
        return row.done - row.visible + c.think_ms
    if number == QUEUE:
        return row.begun - row.visible
    return (row.done - row.first) / (c.osl - 1.0)


@jit
def ends_of(c: Any, s: Any, k: Any, served: Any) -> None:
    """When those are done who had their first token since then: as if all repeated, when so many others are."""
    period, place, at, before, turns = s.now - k.now, k.rows, k.told, 0.0, 0.0
    for here in range(k.served, s.served):
        if c.osl == 1.0:
            served[here].done = served[here].first
            continue
        while before + served[at].count <= place:
            before, at = before + served[at].count, at + 1
            if at == s.told:
                at, turns = k.told, turns + 1.0
        served[here].done = served[at].done + turns * period
        place += served[here].count


@jit
def gap_figures(gaps: Any, out: Any, thorough: bool) -> None:
    """Median and p99 of the gaps between tokens."""
    if thorough:
        out[12], out[13] = run_level(gaps, 0.5), run_level(gaps, 0.99)
        return
    sort_atoms(gaps, len(gaps))
    levels(gaps, len(gaps), MIDDLE_AND_TAIL, out, 12)


@jit
def start_up(c: Any, served: Any, out: Any) -> None:
    """Mean and maximum of the first TTFT of all clients, who were all served before anything could repeat."""
    left, total, at = c.clients, 0.0, 0
    while left > 0.0:
        ttft = latency(c, served[at], TTFT)
        count = min(left, served[at].count)
        total, left, at = total + count * ttft, left - count, at + 1
        out[10] = ttft
    out[9] = total / c.clients
