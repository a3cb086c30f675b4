"""Inter-token gaps of the fused calendars: passes, each counted for its decode rows."""

from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.fused import CROWDED, FULL, TOGETHER
from passcal.screening.mixture import level, put, sort_atoms

__all__ = ["gaps"]


@jit
def gaps(c: Any, w: Any, atoms: Any) -> tuple[float, float]:
    """Median and p99."""
    if w.more == 0.0:
        return np.nan, np.nan
    if w.regime == FULL:
        return w.full_ms, w.full_ms
    if w.regime == CROWDED:
        return w.cycle_ms / w.turn, w.cycle_ms / w.turn
    middle = c.isl + c.osl * 0.5
    if w.regime == TOGETHER:
        late = c.isl + 1.0 + 0.99 * (w.more - 1.0)
        return c.d0 + w.n * (c.d1 + c.d2 * middle), c.d0 + w.n * (c.d1 + c.d2 * late)
    passes = w.more + w.span if w.idle else w.turn
    swing = max(passes - w.mixed, 0.0) * 0.5  # mean contexts before and after the passes with rows only
    young, old = c.d0 + w.n * (c.d1 + c.d2 * (middle - swing)), c.d0 + w.n * (c.d1 + c.d2 * (middle + swing))
    rows_beside_chunks(w, atoms)
    all_rows = w.n * w.more
    beside = atoms[0, 0] + atoms[1, 0]
    only = max(all_rows - beside, 0.0)
    if beside > all_rows or (w.mixed >= w.turn and not w.idle):
        only = 0.0
    draining = 0.0
    if w.idle:  # fewer and fewer rows
        draining = min(w.cohort * w.span * (w.count - 1.0) * w.count * 0.5, only)
    put(atoms, 2, only - draining, young, old)
    put(atoms, 3, draining, c.d0 + w.cohort * w.row_ms, young)
    sort_atoms(atoms, 4)
    return level(atoms, 4, 0.5), level(atoms, 4, 0.99)


@jit
def rows_beside_chunks(w: Any, atoms: Any) -> None:
    """Rows in passes that carry a cohort or a chunk, and in those that carry the last of them."""
    if w.span == 1.0:
        rows = (w.count - 1.0) * (w.first_rows + 4.0 * w.middle_rows + w.before_last_rows) / 6.0
        last = w.last_rows
        if w.idle:
            rows, last = (w.count - 1.0) * w.cohort * (w.count - 2.0) * 0.5, (w.count - 1.0) * w.cohort
        low, high = min(w.first_ms, w.before_last_ms), max(w.first_ms, w.before_last_ms)
        put(atoms, 0, rows, low, high)
        put(atoms, 1, last, w.last_ms, w.last_ms)
        return
    rows = (w.n - 1.0) * 0.5 if w.idle else max(w.n - 1.0 - w.gap_cohorts, 0.0)
    ends = w.n / w.group
    rest_ms = w.chunk_ms if w.backlog else w.rest_ms
    put(atoms, 0, rows * max(w.mixed - ends, 0.0), w.chunk_ms, w.chunk_ms)
    put(atoms, 1, rows * ends, rest_ms, rest_ms)
