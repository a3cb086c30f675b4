"""evaluate() and its named shortcuts: spec in, report out."""

from collections.abc import Callable
from typing import Any, Literal

from passcal.assemble import assemble
from passcal.errors import SpecError
from passcal.fitting_stages import Timings, timings_of
from passcal.machine import IdentitiesNeeded
from passcal.open_loop import TOLERANCE, Measures, answer_open_loop
from passcal.report import Report
from passcal.spec.deployment import Aggregated, Deployment, Disaggregated
from passcal.spec.engine import EngineSpec
from passcal.spec.lengths import Lengths
from passcal.spec.open_loop import OpenLoop
from passcal.spec.sessions import Sessions
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.stopping import Drained, LimitCycle, Stop, Window
from passcal.timing.base import TimingModel
from passcal.traffic import arrivals, tier
from passcal.window import Measured

__all__ = [
    "due_ms",
    "evaluate",
    "evaluate_closed_loop",
    "evaluate_open_loop",
    "evaluate_replay",
    "evaluate_sessions",
]

Start = Literal["burst", "spread"]


def evaluate(
    workload: Workload,
    deployment: Deployment | EngineSpec,
    timing: Timings,
    *,
    stop: Stop | None = None,
    start: Start = "burst",
    phases: int = 1,
) -> Report:
    """Run the calendar of a deployment under a workload.

    Args:
        workload: who sends what.
        deployment: the engines; a bare engine spec is one worker.
        timing: the price of a pass; of prefill and decode apart, one model for both, or a mapping `{"prefill": ..., "decode": ...}`.
        stop: when to stop; by default `LimitCycle()` for an endless closed loop, `Window(tolerance=0.1)` for an open one or lengths of a law,
            else `Drained()`.
        start: how the clients of an endless closed loop begin: all at once, as a benchmark does, or spread evenly over one cycle.
        phases: evaluate this many staggers from burst to spread and mix them equally.

    Raises:
        SpecError: a value out of range, or a stop that does not suit the workload.
        Unsupported: a wish that is not modelled.
        TimingError: the timing model raised or answered with no duration.
        Stalled: the engine can never run what waits.
        Diverged: an open loop without a horizon offers as much as the deployment can serve, or more.
    """
    deployment = deployed(deployment)
    if not isinstance(workload, Workload):
        raise SpecError(
            f"workload={type(workload).__name__}: must be a workload; make it with pc.Workload.closed_loop, .open_loop, .replay or .sessions"
        )
    stop = stop or default_stop(workload)
    if not isinstance(stop, LimitCycle | Window | Drained):
        raise SpecError(f"stop={type(stop).__name__}: must be LimitCycle(), Window() or Drained()")
    check_phases(workload, start, phases)
    if isinstance(workload, OpenLoop):
        return report_open_loop(workload, deployment, timing, stop)
    parts = measure_phases(workload, lambda asked: measure(asked, deployment, timing, stop), start, phases)

    def again(requests: int | None = None, start: Start = "burst", max_concurrency: int | None = None) -> Report:
        if max_concurrency is not None:
            return evaluate(held_back(workload, max_concurrency), deployment, timing, stop=Drained())
        if requests is not None:
            assert isinstance(workload, ClosedLoop)
            shorter = workload.model_copy(update={"requests": requests})
            return evaluate(shorter, deployment, timing, stop=Drained())
        return evaluate(workload, deployment, timing, stop=stop, start=start)

    notes = workload.notes if isinstance(workload, Replay) else ()
    return Report(
        parts,
        timings_of(deployment, timing),
        closed=isinstance(workload, ClosedLoop),
        fidelity=fidelity(workload),
        again=again,
        notes=notes,
        arrivals_ms=due_ms(workload),
        labels=workload.labels if isinstance(workload, Sessions) else None,
    )


def evaluate_closed_loop(
    workload: ClosedLoop,
    engine: EngineSpec,
    timing: TimingModel,
    *,
    start: Start = "burst",
    phases: int = 1,
    stop: Stop | None = None,
) -> Report:
    """A closed loop of clients on one worker; see `evaluate`."""
    if not isinstance(workload, ClosedLoop):
        raise SpecError(
            f"workload={type(workload).__name__}: must be a closed loop; make it with pc.Workload.closed_loop"
        )
    return evaluate(workload, engine, timing, stop=stop, start=start, phases=phases)


def evaluate_replay(workload: Replay, engine: EngineSpec, timing: TimingModel, *, stop: Stop | None = None) -> Report:
    """Requests at given times on one worker; see `evaluate`."""
    if not isinstance(workload, Replay):
        raise SpecError(f"workload={type(workload).__name__}: must be a replay; make it with pc.Workload.replay")
    return evaluate(workload, engine, timing, stop=stop)


def evaluate_open_loop(
    workload: OpenLoop,
    engine: EngineSpec,
    timing: TimingModel,
    *,
    tolerance: float | None = None,
    stop: Window | None = None,
) -> Report:
    """An open loop on one worker; see `evaluate`.

    `tolerance` is the largest half-width of TTFT p99's 95% confidence interval, as a share of it (0.1 where nothing is given);
    `stop=Window(...)` says that and more.
    """
    if not isinstance(workload, OpenLoop):
        raise SpecError(f"workload={type(workload).__name__}: must be an open loop; make it with pc.Workload.open_loop")
    if tolerance is not None:
        if stop is not None:
            raise SpecError(
                f"tolerance={tolerance}, stop={stop}: must not both be given; give Window(tolerance=)"[:199]
            )
        stop = Window(tolerance=tolerance)
    return evaluate(workload, engine, timing, stop=stop)


def deployed(deployment: Deployment | EngineSpec) -> Deployment:
    """A bare engine is one worker."""
    if isinstance(deployment, EngineSpec):
        return Aggregated(engine=deployment)
    if not isinstance(deployment, Aggregated | Disaggregated):
        raise SpecError(
            f"deployment={type(deployment).__name__}: must be an engine, pc.Aggregated(engine) or pc.Disaggregated(...)"
        )
    return deployment


def default_stop(workload: Workload) -> Stop:
    """What suits a workload where nothing is said: a cycle is exact for what repeats, a law's order does not."""
    if isinstance(workload, OpenLoop):
        return Window(tolerance=TOLERANCE) if workload.horizon_requests is None else Drained()
    if not isinstance(workload, ClosedLoop) or workload.requests is not None:
        return Drained()
    return Window(tolerance=TOLERANCE) if isinstance(workload.shapes, Lengths) else LimitCycle()


def report_open_loop(workload: OpenLoop, deployment: Deployment, timing: Timings, stop: Stop) -> Report:
    """The report on an open loop."""
    endless = workload.horizon_requests is None
    if not isinstance(stop, Window if endless else Drained):
        rule = "needs Window() for an open loop, or give that horizon_requests" if endless else "a horizon ends the run"
        raise SpecError(f"stop={type(stop).__name__}(): {rule}; leave stop unset")
    window = stop if isinstance(stop, Window) else Window()
    found = answer_open_loop(workload, lambda asked, until: measure(asked, deployment, timing, until), window)

    def report(part: Measured, notes: tuple[str, ...] = (), due: Any = None) -> Report:
        told, most = fidelity(workload), found.capacity_per_s
        kept: dict[str, Any] = {"closed": False, "fidelity": told, "again": again, "capacity_per_s": most}
        return Report((part,), timings_of(deployment, timing), notes=notes, arrivals_ms=due, **kept)

    def again(requests: int, max_concurrency: int | None = None) -> Report:
        sent: Workload = arrivals(workload, requests)
        if max_concurrency is not None:
            sent = held_back(sent, max_concurrency)
        return report(measure(sent, deployment, timing, Drained()), due=due_ms(sent))

    return report(found.measured, found.notes)


def evaluate_sessions(
    workload: Sessions, engine: EngineSpec, timing: TimingModel, *, stop: Stop | None = None
) -> Report:
    """Sessions of turns on one worker; see `evaluate`."""
    if not isinstance(workload, Sessions):
        raise SpecError(f"workload={type(workload).__name__}: must be sessions; make them with pc.Workload.sessions")
    return evaluate(workload, engine, timing, stop=stop)


def measure(workload: Workload, deployment: Deployment, timing: Timings, stop: Measures) -> Measured:
    """One run from an empty system to its stop."""
    try:
        return stop.measure(assemble(workload, deployment, timing))
    except IdentitiesNeeded:
        return stop.measure(assemble(workload, deployment, timing, identities=True))


def held_back(workload: Workload, most: int) -> Workload:
    """The same requests from a client that has at most so many out.

    Raises:
        SpecError: sessions, whose turns wait for each other already.
    """
    if not isinstance(workload, Replay):
        raise SpecError(
            f"benchmark: max_concurrency={most}: sessions wait for their own answers; leave it out, or give fewer lanes"
        )
    return workload.model_copy(update={"max_concurrency": min(most, workload.max_concurrency or most)})


def due_ms(workload: Workload) -> Any:
    """When each request of a client that sends only so many at a time is due (ms), by number; None: all are sent when due."""
    if isinstance(workload, Replay) and workload.max_concurrency is not None:
        return workload.rows["dispatch_ms"]
    return None


def check_phases(workload: Workload, start: str, phases: int) -> None:
    """Refuse a start or a number of phases that does not suit the workload."""
    if start not in ("burst", "spread"):
        raise SpecError(f"start={start!r}: must be 'burst' or 'spread'")
    if isinstance(phases, bool) or not isinstance(phases, int) or phases < 1:
        raise SpecError(f"phases={phases!r}: must be a whole number, at least 1")
    if start == "burst" and phases == 1:
        return
    if not isinstance(workload, ClosedLoop) or workload.requests is not None:
        raise SpecError(
            f"start={start!r}, phases={phases}: are for a closed loop without a number of requests; leave them at 'burst' and 1"
        )
    if workload.stagger_ms:
        raise SpecError(
            f"stagger_ms={workload.stagger_ms}: start='spread' and phases choose the stagger themselves; leave it at 0"
        )
    if start == "spread" and phases > 1:
        raise SpecError(f"phases={phases}: go from burst to spread already; leave start at 'burst'")


def measure_phases(
    workload: Workload, run: Callable[[Workload], Measured], start: str, phases: int
) -> tuple[Measured, ...]:
    """One run a phase, the first requests of clients staggered further apart in each.

    A spread start sends one request each `1 / X`, X the throughput that a burst settles at, so that clients stand evenly over a cycle.
    """
    burst = run(workload)
    if start == "burst" and phases == 1:
        return (burst,)
    interval = burst.window.length_ms / burst.done
    shares = (1.0,) if phases == 1 else tuple(k / (phases - 1) for k in range(1, phases))
    spread = tuple(run(workload.model_copy(update={"stagger_ms": interval * share})) for share in shares)
    return spread if phases == 1 else (burst, *spread)


def fidelity(workload: Workload) -> str:
    """The traffic tier of a workload: W0 fixed lengths in a closed loop, W1 at a rate, W2 lengths that vary, W3 joint rows, listed gaps, replays,
    W4 sessions.
    """
    if isinstance(workload, Sessions):
        return "W4"
    if isinstance(workload, OpenLoop):
        return "W3" if workload.gaps_ms else tier(workload.shapes) or "W1"
    if isinstance(workload, ClosedLoop):
        return tier(workload.shapes) or "W0"
    return "W3"
