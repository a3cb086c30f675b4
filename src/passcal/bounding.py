"""Bounds of points from the closed form, where it knows them: of the rows of a table, and of the loads of one deployment."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from passcal.bounds import Bounds, break_together, breaks, keeps_for_sure, no_bounds, steady_bounds
from passcal.deployments import OPTIONS
from passcal.errors import SpecError, Unsupported
from passcal.points import LENGTHS, Point, Points
from passcal.screening.candidates import candidate_rows
from passcal.screening.columns_in import Coded
from passcal.screening.kernel import figures_of
from passcal.screening.screen import column_of, screen
from passcal.screening.tables import FIGURES
from passcal.spec.deployment import Aggregated
from passcal.spec.lengths import Lengths
from passcal.spec.sla import Sla, Target
from passcal.spec.workload import ClosedLoop, Workload
from passcal.timing.base import KernelTiming, TimingModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Verdict", "bounds_of", "nothing_known", "verdicts"]

SCREENED = {*OPTIONS, *LENGTHS, "concurrency", "turnaround_ms"}  # columns that the closed form reads
BLOCK = 1024  # loads that are screened at once


class Verdict(NamedTuple):
    """What bounds say of a load.

    Attributes:
        latencies: whether all of them are kept; None where bounds do not tell.
        everything: the same of all targets.
        broken: targets that are broken for sure; all latencies where these cannot hold together.
    """

    latencies: bool | None
    everything: bool | None
    broken: tuple[Target, ...]


def bounds_of(frame: "pd.DataFrame", points: Points, workload: Workload | None) -> Bounds:
    """What is known of every row without evaluating it; a model that is no formula has no prices to bound anything with."""
    bounds = no_bounds(len(frame))
    by_timing: dict[int, list[int]] = {}
    replicas = np.ones(len(frame))
    for row, (point, code) in enumerate(zip(points.rows, points.timing_of, strict=True)):
        if not isinstance(point, Point) or not isinstance(point.deployment, Aggregated):
            continue
        if one_shape(point.workload) and isinstance(point.timing, KernelTiming):
            by_timing.setdefault(code, []).append(row)
            replicas[row] = point.deployment.replicas
    names = [name for name in frame.columns if name in SCREENED]
    base = workload if isinstance(workload, ClosedLoop) else None
    for code, listed in by_timing.items():
        rows = np.array(listed)
        timing = points.timings[code]
        assert isinstance(timing, KernelTiming)
        fill(bounds, rows, frame[names].iloc[rows], base, timing, replicas[rows])
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


def nothing_known(load: float) -> Verdict:
    """Of a load that bounds tell nothing of."""
    return Verdict(None, None, ())


def verdicts(deployment: Any, workload: Workload, timing: Any, targets: Sequence[Target]) -> Callable[[float], Verdict]:
    """What the closed form knows of a number of clients; nothing of stages apart, of most workloads, and of timing that is no formula."""
    if not (isinstance(deployment, Aggregated) and one_shape(workload) and isinstance(timing, KernelTiming)):
        return nothing_known
    latencies = [target for target in targets if isinstance(target, Sla)]

    @cache
    def block(number: int) -> tuple[Any, list[tuple[Any, Any]]]:
        """Of so many loads: whether the latencies break together; and of each target, whether it breaks, and whether it is kept."""
        bounds = loads_of(deployment, workload, timing, np.arange(BLOCK) + number * BLOCK)
        found = [(breaks(target, bounds), keeps_for_sure(target, bounds)) for target in targets]
        return break_together(latencies, bounds), found

    def verdict(load: float) -> Verdict:
        number, place = divmod(int(load), BLOCK)
        together, found = block(number)
        broken = [target for target, (breaks, _) in zip(targets, found, strict=True) if breaks[place]]
        kept = [target for target, (_, keeps) in zip(targets, found, strict=True) if keeps[place]]
        if together[place] and not any(target in broken for target in latencies):
            broken = [*latencies, *broken]
        return Verdict(decided(latencies, broken, kept), decided(targets, broken, kept), tuple(broken))

    return verdict


def decided(targets: Sequence[Target], broken: Sequence[Target], kept: Sequence[Target]) -> bool | None:
    """Whether all of these are kept, if that is known."""
    if any(target in broken for target in targets):
        return False
    return True if all(target in kept for target in targets) else None


def loads_of(deployment: Aggregated, workload: Workload, timing: TimingModel, clients: Any) -> Bounds:
    """Bounds of numbers of clients, where 0 stands for 1."""
    count = len(clients)
    options = {name: getattr(deployment.engine, name) for name in type(deployment.engine).model_fields}
    columns = {name: repeated(value, count) for name, value in options.items() if value is not None}
    try:
        rows = candidate_rows({**columns, "concurrency": np.maximum(clients, 1.0)}, workload, timing)
    except (SpecError, Unsupported):
        return no_bounds(count)
    figures = figures_of(rows)
    low, high = (figures[:, FIGURES.index(f"ttft_steady_p99_{side}")] for side in ("lo", "hi"))
    return steady_bounds(rows, np.full(count, float(deployment.replicas)), low, high)


def repeated(value: Any, count: int) -> Any:
    """A column of one value."""
    return np.full(count, float(value)) if isinstance(value, int | float) else Coded(np.zeros(count, int), (value,))
