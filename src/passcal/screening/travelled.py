"""Figures of what clients were seen to do: everything since the state was kept, and the first requests of all."""

from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.groups import HERE, KEPT
from passcal.screening.mixture import add, levels, point_levels, run_level, sort_atoms
from passcal.screening.tables import LEVELS

__all__ = ["seen_figures"]

MIDDLE_AND_TAIL = (0.5, 0.99)


@jit
def seen_figures(c: Any, room: Any, out: Any, thorough: bool) -> None:
    """Everything but the bracket; quantiles of gaps to rounding if `thorough`, else as if runs of passes did not overlap, at a tenth of the cost."""
    s, k, served, atoms = room.states[HERE], room.states[KEPT], room.served, room.atoms
    rate = (s.done - k.done) / (s.now - k.now)
    out[35], out[36] = 1000.0 * rate, 1000.0 * rate * c.osl
    mean, weight, waits, count = 0.0, 0.0, 0.0, 0
    for at in range(k.served, s.served):
        row = served[at]
        ttft = row.first - row.visible + c.think_ms
        count = add(atoms, count, row.count, ttft)
        mean, weight, waits = mean + row.count * ttft, weight + row.count, waits + row.count * (row.begun - row.visible)
    out[0], out[28] = mean / weight, waits / weight
    point_levels(atoms, count, LEVELS, out, 1)
    count = 0
    for at in range(k.served, s.served):
        count = add(atoms, count, served[at].count, served[at].begun - served[at].visible)
    point_levels(atoms, count, LEVELS, out, 29)
    ends_of(c, s, k, served)
    done_figures(c, s, k, served, atoms, out)
    out[11], out[12], out[13] = out[14], np.nan, np.nan
    if c.osl > 1.0:
        gap_figures(room.gaps[k.gaps : s.gaps], out, thorough)
    start_up(c, served, out)


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
def done_figures(c: Any, s: Any, k: Any, served: Any, atoms: Any, out: Any) -> None:
    """E2E and TPOT of the requests that had their first token since then."""
    mean, span, weight, count, more = 0.0, 0.0, 0.0, 0, c.osl - 1.0
    for at in range(k.served, s.served):
        row = served[at]
        e2e = row.done - row.visible + c.think_ms
        count = add(atoms, count, row.count, e2e)
        mean, weight, span = mean + row.count * e2e, weight + row.count, span + row.count * (row.done - row.first)
    out[21] = mean / weight
    point_levels(atoms, count, LEVELS, out, 22)
    out[14:21] = np.nan
    if more == 0.0:
        return
    out[14], count = span / weight / more, 0
    for at in range(k.served, s.served):
        count = add(atoms, count, served[at].count, (served[at].done - served[at].first) / more)
    point_levels(atoms, count, LEVELS, out, 15)


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
        ttft = served[at].first - served[at].visible + c.think_ms
        count = min(left, served[at].count)
        total, left, at = total + count * ttft, left - count, at + 1
        out[10] = ttft
    out[9] = total / c.clients
