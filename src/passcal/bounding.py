"""Bounds of points from the closed form, where it knows them."""

from typing import TYPE_CHECKING, Any

import numpy as np

from passcal.bounds import Bounds, no_bounds, steady_bounds
from passcal.errors import SpecError, Unsupported
from passcal.points import LENGTHS, OPTIONS, Point, Points
from passcal.screening.candidates import candidate_rows
from passcal.screening.screen import column_of, screen
from passcal.spec.lengths import Lengths
from passcal.spec.workload import ClosedLoop, Workload
from passcal.timing.base import KernelTiming, TimingModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["bounds_of"]

SCREENED = {*OPTIONS, *LENGTHS, "concurrency", "turnaround_ms"}  # columns that the closed form reads


def bounds_of(frame: "pd.DataFrame", points: Points, workload: Workload | None) -> Bounds:
    """What is known of every row without evaluating it; a model that is no formula has no prices to bound anything with."""
    bounds = no_bounds(len(frame))
    by_timing: dict[int, list[int]] = {}
    replicas = np.ones(len(frame))
    for row, (point, code) in enumerate(zip(points.rows, points.timing_of, strict=True)):
        if isinstance(point, Point) and one_shape(point.workload) and isinstance(point.timing, KernelTiming):
            by_timing.setdefault(code, []).append(row)
            replicas[row] = point.deployment.replicas
    names = [name for name in frame.columns if name in SCREENED]
    base = workload if isinstance(workload, ClosedLoop) else None
    for code, listed in by_timing.items():
        rows = np.array(listed)
        fill(bounds, rows, frame[names].iloc[rows], base, points.timings[code], replicas[rows])
    return bounds


def one_shape(workload: Workload) -> bool:
    """Whether it is a closed loop of fixed lengths; what more the closed form wants it says itself."""
    return isinstance(workload, ClosedLoop) and not isinstance(workload.shapes, Lengths)


def fill(bounds: Bounds, rows: Any, frame: "pd.DataFrame", workload: Any, timing: TimingModel, replicas: Any) -> None:
    """Bounds of these rows; half by half where the closed form refuses one of them."""
    try:
        screened = screen(frame, workload, timing)
        columns = {str(name): column_of(frame[name]) for name in frame.columns}
        low, high = (screened[f"ttft_steady_p99_{side}"].to_numpy() for side in ("lo", "hi"))
        known = steady_bounds(candidate_rows(columns, workload, timing), replicas, low, high)
    except (SpecError, Unsupported):
        if len(rows) > 1:
            for part in np.array_split(np.arange(len(rows)), 2):
                fill(bounds, rows[part], frame.iloc[part], workload, timing, replicas[part])
        return
    for all_rows, these in zip(bounds, known, strict=True):
        all_rows[rows] = these
