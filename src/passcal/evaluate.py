"""evaluate() and its named shortcuts: spec in, report out."""

from typing import Literal

from passcal.assemble import assemble
from passcal.errors import SpecError
from passcal.machine import IdentitiesNeeded
from passcal.report import Report
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import EngineSpec
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.stopping import Drained, LimitCycle, Measured, Stop, Window
from passcal.timing.base import TimingModel

__all__ = ["evaluate", "evaluate_closed_loop", "evaluate_replay"]

Start = Literal["burst", "spread"]


def evaluate(
    workload: Workload,
    deployment: Aggregated | EngineSpec,
    timing: TimingModel,
    *,
    stop: Stop | None = None,
    start: Start = "burst",
    phases: int = 1,
) -> Report:
    """Run the calendar of a deployment under a workload.

    Args:
        workload: who sends what.
        deployment: the engines; a bare engine spec is one worker.
        timing: the price of a pass.
        stop: when to stop; by default `LimitCycle()` for a closed loop that never ends, else `Drained()`.
        start: how the clients of an endless closed loop begin: all at once, as a benchmark does, or spread evenly over one cycle.
        phases: evaluate this many staggers from burst to spread and mix them equally.

    Raises:
        SpecError: a value out of range, or a stop that does not suit the workload.
        Unsupported: a wish that is not modelled.
        TimingError: the timing model raised or answered with no duration.
        Stalled: the engine can never run what waits.
    """
    if isinstance(deployment, EngineSpec):
        deployment = Aggregated(engine=deployment)
    if not isinstance(deployment, Aggregated):
        raise SpecError(f"deployment={type(deployment).__name__}: must be an engine or pc.Aggregated(engine)")
    if not isinstance(workload, Workload):
        raise SpecError(
            f"workload={type(workload).__name__}: must be a workload; make it with pc.Workload.closed_loop or .replay"
        )
    endless = isinstance(workload, ClosedLoop) and workload.requests is None
    stop = stop or (LimitCycle() if endless else Drained())
    if not isinstance(stop, LimitCycle | Window | Drained):
        raise SpecError(f"stop={type(stop).__name__}: must be LimitCycle(), Window() or Drained()")
    staggers = choose_staggers(workload, deployment, timing, stop, start, phases)
    parts = tuple(measure(with_stagger(workload, stagger), deployment, timing, stop) for stagger in staggers)

    def again(requests: int | None, other: str | None) -> Report:
        if requests is not None:
            assert isinstance(workload, ClosedLoop)
            shorter = workload.model_copy(update={"requests": requests})
            return evaluate(shorter, deployment, timing, stop=Drained())
        return evaluate(workload, deployment, timing, stop=stop, start="spread" if other == "spread" else "burst")

    notes = workload.notes if isinstance(workload, Replay) else ()
    return Report(
        parts, timing, closed=isinstance(workload, ClosedLoop), fidelity=fidelity(workload), again=again, notes=notes
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


def measure(workload: Workload, deployment: Aggregated, timing: TimingModel, stop: Stop) -> Measured:
    """One run from an empty system to its stop."""
    try:
        return stop.measure(assemble(workload, deployment, timing))
    except IdentitiesNeeded:
        return stop.measure(assemble(workload, deployment, timing, identities=True))


def with_stagger(workload: Workload, stagger_ms: float | None) -> Workload:
    """The workload with another stagger between its clients' first requests."""
    return workload if stagger_ms is None else workload.model_copy(update={"stagger_ms": stagger_ms})


def choose_staggers(
    workload: Workload, deployment: Aggregated, timing: TimingModel, stop: Stop, start: str, phases: int
) -> tuple[float | None, ...]:
    """The stagger of each phase; None leaves the workload as it is.

    A spread start sends one request each `1 / X`, X the throughput that a burst settles at, so that clients stand evenly over a cycle.
    """
    if start not in ("burst", "spread"):
        raise SpecError(f"start={start!r}: must be 'burst' or 'spread'")
    if isinstance(phases, bool) or not isinstance(phases, int) or phases < 1:
        raise SpecError(f"phases={phases!r}: must be a whole number, at least 1")
    if start == "burst" and phases == 1:
        return (None,)
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
    burst = measure(workload, deployment, timing, stop)
    interval = burst.window.length_ms / burst.done
    if phases == 1:
        return (interval,)
    return tuple(interval * k / (phases - 1) for k in range(phases))


def fidelity(workload: Workload) -> str:
    """The traffic tier of a workload: W0 fixed lengths in a closed loop, W2 lengths that vary, W3 joint rows verbatim."""
    if isinstance(workload, Replay):
        return "W3"
    if isinstance(workload, ClosedLoop) and len(set(workload.shapes)) > 1:
        return "W2"
    return "W0"
