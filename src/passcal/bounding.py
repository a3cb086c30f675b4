"""Bounds of points from the closed form, where it knows them: of the rows of a table, and of the loads of one deployment."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from passcal.bounds import (
    Bounds,
    apart_bounds,
    break_together,
    breaks,
    keeps_for_sure,
    no_bounds,
    steady_bounds,
    with_cycles,
)
from passcal.deployments import COLUMNS_OF, OPTIONS
from passcal.errors import SpecError, Unsupported
from passcal.points import LENGTHS, Point, Points, Priced
from passcal.screening.candidates import candidate_rows, refuse_unknown
from passcal.screening.columns_in import Coded
from passcal.screening.cycles import MEAN, METRICS, cycles_of
from passcal.screening.kernel import figures_of
from passcal.screening.screen import column_of
from passcal.screening.tables import FIGURES
from passcal.screening.tandem import tandem_rows
from passcal.spec.deployment import Aggregated
from passcal.spec.lengths import Lengths
from passcal.spec.sla import Sla, Target
from passcal.spec.workload import ClosedLoop, Workload
from passcal.timing.base import KernelTiming, TimingModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Verdict", "bounds_of", "nothing_known", "verdicts"]

LOOP = {*LENGTHS, "concurrency", "turnaround_ms"}
DEPLOYED = ("replicas",)  # what bounds read beside what the closed form does
SCREENED = {*OPTIONS, *LOOP, *DEPLOYED}  # columns that are read, by kind
SCREENED_APART = (COLUMNS_OF["disaggregated"] - {"kind"}) | LOOP
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


def bounds_of(
    frame: "pd.DataFrame", points: Points, workload: Workload | None, targets: Sequence[Target] = ()
) -> Bounds:
    """What is known of every row without evaluating it; a model that is no formula has no prices to bound anything with."""
    bounds = no_bounds(len(frame), len(targets))
    alike: dict[tuple[bool, int], list[int]] = {}  # rows of one kind and timing
    for row, (point, code) in enumerate(zip(points.rows, points.timing_of, strict=True)):
        if isinstance(point, Point) and one_shape(point.workload) and is_formula(point.timing):
            alike.setdefault((isinstance(point.deployment, Aggregated), code), []).append(row)
    base = workload if isinstance(workload, ClosedLoop) else None
    for (aggregated, code), listed in alike.items():
        columns = SCREENED if aggregated else SCREENED_APART
        names = [name for name in frame.columns if name in columns]
        known = partial(
            known_of if aggregated else known_apart, workload=base, timing=points.timings[code], targets=targets
        )
        fill(bounds, np.array(listed), frame[names].iloc[listed], known)
    return bounds


def one_shape(workload: Workload) -> bool:
    """Whether it is a closed loop of fixed lengths; what more the closed form wants it says itself."""
    return isinstance(workload, ClosedLoop) and not isinstance(workload.shapes, Lengths)


def is_formula(timing: Priced) -> bool:
    """Whether passes of every stage have a formula."""
    return all(
        isinstance(model, KernelTiming) for model in (timing.values() if isinstance(timing, Mapping) else [timing])
    )


def fill(bounds: Bounds, rows: Any, frame: "pd.DataFrame", known: Callable[["pd.DataFrame"], Bounds]) -> None:
    """Bounds of these rows; half by half where the closed form refuses one of them."""
    try:
        found = known(frame)
    except (SpecError, Unsupported):
        if len(rows) > 1:
            for part in np.array_split(np.arange(len(rows)), 2):
                fill(bounds, rows[part], frame.iloc[part], known)
        return
    for all_rows, these in zip(bounds, found, strict=True):
        all_rows[rows] = these


def known_of(frame: "pd.DataFrame", workload: Any, timing: Any, targets: Sequence[Target]) -> Bounds:
    """Of aggregated candidates: what can be counted, and where that leaves one worker's targets open, its cycle."""
    columns = {str(name): column_of(frame[name]) for name in frame.columns if name not in DEPLOYED}
    refuse_unknown(columns, np.arange(len(frame)))
    rows = candidate_rows(columns, workload, timing)
    replicas = frame["replicas"].fillna(1).to_numpy(float) if "replicas" in frame else np.ones(len(frame))
    bounds = counted(rows, replicas, len(targets))
    is_open = (replicas == 1) & ~break_together(targets, bounds)
    for at in range(len(targets)):
        is_open &= ~breaks(targets, at, bounds)
    open_rows = np.flatnonzero(is_open)
    return with_cycles(bounds, open_rows, cycles_of(rows[open_rows], asked_of(targets)))


def asked_of(targets: Sequence[Target]) -> Any:
    """What targets are about, in numbers: of a metric, and of a quantile."""
    asked = np.full((len(targets), 2), MEAN)
    for row, target in zip(asked, targets, strict=True):
        row[0] = METRICS.index(target.metric if target.metric in METRICS else "")
        if isinstance(target, Sla) and not isinstance(target.quantile, str):
            row[1] = target.quantile
    return asked


def counted(rows: Any, replicas: Any, targets: int) -> Bounds:
    """Bounds of `CANDIDATE` rows with so many workers, in closed form."""
    figures = figures_of(rows, steps=0)
    low, high = (figures[:, FIGURES.index(f"ttft_steady_p99_{side}")] for side in ("lo", "hi"))
    return steady_bounds(rows, replicas, low, high, targets)


def known_apart(frame: "pd.DataFrame", workload: Any, timing: Priced, targets: Sequence[Target]) -> Bounds:
    """Of candidates with prefill and decode apart."""
    columns = {str(name): column_of(frame[name]) for name in frame.columns}
    return apart_bounds(*tandem_rows(columns, workload, timing), len(targets))


def nothing_known(load: float) -> Verdict:
    """Of a load that bounds tell nothing of."""
    return Verdict(None, None, ())


def verdicts(deployment: Any, workload: Workload, timing: Any, targets: Sequence[Target]) -> Callable[[float], Verdict]:
    """What the closed form knows of a number of clients; nothing of stages apart, of most workloads, and of timing that is no formula."""
    if not (isinstance(deployment, Aggregated) and one_shape(workload) and isinstance(timing, KernelTiming)):
        return nothing_known
    asked = asked_of(targets)

    @cache
    def block(number: int) -> tuple[Any, Bounds]:
        """So many loads in one go: what is asked of the closed form, and what it says."""
        return loads_of(deployment, workload, timing, np.arange(BLOCK) + number * BLOCK, len(targets))

    @cache
    def verdict(load: float) -> Verdict:
        number, place = divmod(int(load), BLOCK)
        rows, bounds = block(number)
        here = slice(place, place + 1)
        one = Bounds._make(array[here] for array in bounds)
        found = judged(targets, one)
        if found.everything is None and rows is not None and deployment.replicas == 1:
            found = judged(targets, with_cycles(one, np.arange(1), cycles_of(rows[here], asked)))
        return found

    return verdict


def judged(targets: Sequence[Target], one: Bounds) -> Verdict:
    """What the bounds of one load say."""
    latencies = [target for target in targets if isinstance(target, Sla)]
    broken = [target for at, target in enumerate(targets) if breaks(targets, at, one)[0]]
    kept = [target for at, target in enumerate(targets) if keeps_for_sure(targets, at, one)[0]]
    if break_together(latencies, one)[0] and not any(target in broken for target in latencies):
        broken = [*latencies, *broken]
    return Verdict(decided(latencies, broken, kept), decided(targets, broken, kept), tuple(broken))


def decided(targets: Sequence[Target], broken: Sequence[Target], kept: Sequence[Target]) -> bool | None:
    """Whether all of these are kept, if that is known."""
    if any(target in broken for target in targets):
        return False
    return True if all(target in kept for target in targets) else None


def loads_of(
    deployment: Aggregated, workload: Workload, timing: TimingModel, clients: Any, targets: int
) -> tuple[Any, Bounds]:
    """`CANDIDATE` rows of numbers of clients, where 0 stands for 1, and their bounds for so many targets; no rows where the closed form refuses them."""
    count = len(clients)
    options = {name: getattr(deployment.engine, name) for name in type(deployment.engine).model_fields}
    columns = {name: repeated(value, count) for name, value in options.items() if value is not None}
    try:
        rows = candidate_rows({**columns, "concurrency": np.maximum(clients, 1.0)}, workload, timing)
    except (SpecError, Unsupported):
        return None, no_bounds(count, targets)
    return rows, counted(rows, np.full(count, float(deployment.replicas)), targets)


def repeated(value: Any, count: int) -> Any:
    """A column of one value."""
    return np.full(count, float(value)) if isinstance(value, int | float) else Coded(np.zeros(count, int), (value,))
