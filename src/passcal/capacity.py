"""The largest load that keeps service levels: clients of a closed loop, or requests a second of an open one."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from passcal.bounding import nothing_known, verdicts
from passcal.evaluate import Start, deployed, evaluate, measure
from passcal.fitting_stages import Timings
from passcal.loads import LOADS, Unit, clients_at_most, in_unit, rates_up_to
from passcal.open_loop import capacity_per_s
from passcal.report import Report
from passcal.search import between, largest
from passcal.spec.deployment import Deployment
from passcal.spec.engine import EngineSpec
from passcal.spec.sla import Sla, Target
from passcal.spec.workload import Workload
from passcal.stopping import LimitCycle, Stop, require_whole
from passcal.targets import targets_of, written
from passcal.trials import Misled, Point, Trial

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Capacity", "Point", "capacity"]

CHECKS = {"clients": 64, "rate": 8}  # a rate takes a tenth of a second and more


@dataclass(frozen=True)
class Capacity:
    """The largest load that keeps the targets, and what says so.

    Attributes:
        unit: `clients`, or `rate` for requests a second.
        load: the answer; 0 where nothing is feasible, see `reason`.
        report: at that load; None where it is 0.
        violated_load: the next load, which violates; None where the largest load asked about keeps everything.
        binds: the target that is violated there; of several a latency, and the one that is violated by the largest factor.
        reason: why nothing is feasible; empty where something is.
        sla: the targets.
        tried: every load that was evaluated or screened, in that order.
        notes: what a reader should know, one line each.
    """

    unit: Unit
    load: float
    report: Report | None
    violated_load: float | None
    binds: Target | None
    reason: str
    sla: tuple[Target, ...]
    tried: tuple[Point, ...]
    notes: tuple[str, ...]

    def points(self) -> "pd.DataFrame":
        """One row a load that was tried, ascending: load, throughput_rps, a column a target, ttft_p99_half_width_ms, kept (all are), violated, queueing_tier.

        Where that is `screening`, bounds decided: there are no figures, and `kept` is missing if they tell nothing of the floors.
        """
        from passcal.columns import point_frame

        return point_frame(self.tried, self.sla)


def capacity(
    deployment: Deployment | EngineSpec,
    timing: Timings,
    *,
    sla: Iterable[Target] | Target,
    workload: Workload,
    unit: Unit | None = None,
    most: float | None = None,
    tolerance: float | None = None,
    checks: int | None = None,
    stop: Stop | None = None,
    start: Start = "burst",
    phases: int = 1,
    on_point: Callable[[Point], Any] | None = None,
) -> Capacity:
    """The largest number of clients, or the largest rate, that keeps all targets.

    Args:
        deployment: the engines; a bare engine spec is one worker.
        timing: the price of a pass.
        sla: latencies that may not be longer (`pc.Sla`), throughputs that may not be lower (`pc.Floor`).
        workload: a closed or an open loop; its own concurrency or rate is what is searched, and does not count.
        unit: `clients` or `rate` (requests a second); by default that of the workload. With the other one, its lengths and arrival plane hold,
            and an open loop is Poisson.
        most: where the search ends: 1,024 clients, or the rate that the deployment can serve.
        tolerance: relative step between rates, 0.01 by default: the answer is that sharp. For rates only.
        checks: most loads evaluated only to see whether the targets are monotone in load, see below; 64 of clients and 8 of rates by default.
            With as many as the answer, every number of clients below it is tried.
        stop, start, phases: as in `evaluate`, at each load.
        on_point: called with each `Point` as it is done.

    The search bisects, which is right where a load that violates is followed by such loads only. Cohorts of requests break that at times, so loads below
    and above the answer are tried as well. The answer is the largest load below the first violation; a larger one that keeps the targets is
    named in the notes. A floor is violated by low loads: it is looked at below the most that keeps the latencies.

    Clients that start in a burst and run to the default stop are screened first: where the closed form's bounds keep or break the latencies for sure, a
    load is not evaluated, and the search goes the same way. The answer and its neighbour that violates always are.

    Raises:
        SpecError: a value out of range, or a workload that is no loop.
        And what `evaluate` raises.
    """
    targets = targets_of(sla)
    engines = deployed(deployment)
    unit, asked = in_unit(workload, unit)
    checks = CHECKS[unit] if checks is None else checks
    require_whole("checks", checks, 0)
    if unit == "clients":
        loads: Sequence[float] = range(1, clients_at_most(most, tolerance) + 1)
    else:
        limit = capacity_per_s(asked, lambda sent, until: measure(sent, engines, timing, until))
        loads = rates_up_to(limit, most, tolerance)

    def run(load: float) -> Report:
        sent = asked.model_copy(update={LOADS[unit]: load})
        return evaluate(sent, engines, timing, stop=stop, start=start, phases=phases)

    covered = unit == "clients" and stop in (None, LimitCycle()) and start == "burst" and phases == 1
    screened = verdicts(engines, asked, timing, targets) if covered else nothing_known
    trial = Trial(run, loads, targets, on_point or (lambda _: None), screened)
    capped = unit == "clients" or most == loads[-1]
    try:
        return searched(trial, unit, checks, capped)
    except Misled:
        return searched(trial, unit, checks, capped)


def searched(trial: Trial, unit: Unit, checks: int, capped: bool) -> Capacity:
    """The answer; `capped` says that nothing was asked about above the largest load."""
    found = largest(len(trial.loads), trial.quick, climb=unit == "clients", checks=checks)
    notes = [] if not found.again else [not_monotone(trial, found.last, found.again)]
    if found.last == len(trial.loads):
        notes.append(everything_kept(unit, trial.loads[-1], capped))
    if trial.misled is not None:
        notes.append(f"bounds of the closed form do not hold at load {trial.misled:.6g}: every load was evaluated")
    return answered(trial, unit, found.last, notes)


def answered(trial: Trial, unit: Unit, last: int, notes: list[str]) -> Capacity:
    """The answer, when `last` is the most that keeps the latencies; floors may be kept further down, or nowhere."""
    level = last
    if last and not trial.kept(last):
        lower = next((k for k in sorted(trial.points, reverse=True) if k < last and trial.kept(k)), 0)
        level = between(lower, last, trial.kept) if lower else 0
    reason = "" if level else why_nothing(trial, last)
    beyond = level + 1 if level else max(last, 1)
    binds, value = trial.worst(beyond) if beyond <= len(trial.loads) else (None, 0.0)
    if level and binds is not None:
        notes = [*notes, *how_sharp(trial.point(beyond), binds, value)]
    return Capacity(
        unit=unit,
        load=trial.loads[level - 1] if level else 0,
        report=trial.report(level) if level else None,
        violated_load=trial.loads[beyond - 1] if binds else None,
        binds=binds,
        reason=reason,
        sla=trial.sla,
        tried=tuple(trial.points.values()),
        notes=tuple(notes),
    )


def why_nothing(trial: Trial, last: int) -> str:
    """Of the least load if that violates a latency, else of the most that keeps all latencies and misses a floor."""
    target, value = trial.worst(max(last, 1))
    load = f"load {trial.loads[max(last, 1) - 1]:.6g}"
    who = f"{load} is the most that keeps the latencies" if last else f"{load} is the least"
    return f"{written(target)}: {value:.6g} at {who}; nothing is feasible"


def not_monotone(trial: Trial, last: int, again: Sequence[int]) -> str:
    """The first violation, and a larger load that keeps the latencies all the same."""
    target, value = trial.worst(last + 1)
    first, other = (trial.point(level) for level in (last + 1, again[-1]))
    kept = other.figures[trial.sla.index(target)]
    return (
        f"not monotone: load {first.load:.6g} violates {written(target)} with {value:.6g}, {other.load:.6g} keeps it with"
        f" {kept:.6g}; the answer is below the first violation"
    )


def how_sharp(point: Point, target: Target, value: float) -> list[str]:
    """What a reader must know where the next load violates TTFT p99 by less than that is known to."""
    if not isinstance(target, Sla) or (target.metric, target.quantile) != ("ttft", 0.99):
        return []
    if value - point.half_width_ms >= target.limit_ms:
        return []
    return [
        f"{written(target)}: known to ± {point.half_width_ms:.3g} ms at load {point.load:.6g}, so the answer is no sharper;"
        " for more give stop=Window(tolerance=) below 0.1"
    ]


def everything_kept(unit: Unit, load: float, capped: bool) -> str:
    """What a reader must know where no load violates a latency."""
    if capped:
        return f"most={load:.6g}: the largest load asked about keeps the latencies; raise most to ask about more"
    return f"{load:.6g} requests/s keep the latencies, and at a step more the queue grows without end"
