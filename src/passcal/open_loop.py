"""The steady state of an open loop: capacity first, then as long a run as its 99th percentile needs; or a finite run from an empty system."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from passcal import samples
from passcal.drift import drift_note, p99_interval, settled
from passcal.errors import Diverged
from passcal.machine import Machine
from passcal.spec.open_loop import OpenLoop
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.stopping import Drained, LimitCycle, Window
from passcal.traffic import arrivals, whole_period
from passcal.window import LogStart, Measured, cut_out, ttft_ms

__all__ = ["TOLERANCE", "Answered", "Measures", "answer_open_loop", "capacity_per_s"]

TOLERANCE = 0.1  # of TTFT p99, for its half-width, where nothing else is said
FIRST, LARGEST_FIRST, GRAIN = 8192, 65_536, 4096  # requests of the first window, and by what windows grow
MEMORY = (
    4096  # requests that a percentile takes, times the square of what load leaves free: so long does a queue remember
)
WARMUP, REPLACED = 1000, 3
SAFETY = 1.2  # since a half-width is itself an estimate
SATURATED = LimitCycle(max_passes=20_000, jump_after=2_000)
EMPTY = LogStart(0, 0, 0, 0)


class Measures(Protocol):
    """What drives a machine to its end: any `Stop`, or a stretch of an open loop."""

    def measure(self, machine: Machine) -> Measured:
        """Drive the machine, and say what of its log counts."""


Run = Callable[[Workload, Measures], Measured]


@dataclass(frozen=True)
class Answered:
    """What was measured, what the deployment could serve at most, and what a reader must know."""

    measured: Measured
    capacity_per_s: float
    notes: tuple[str, ...] = ()


def answer_open_loop(workload: OpenLoop, run: Run, window: Window) -> Answered:
    """Answer an open loop.

    Args:
        workload: the open loop.
        run: runs a workload on the deployment until its stop.
        window: how long, and how sure.

    Raises:
        Diverged: the rate is at or above capacity, and no horizon is given.
    """
    capacity = capacity_per_s(workload, run)
    if workload.horizon_requests is not None:
        return finite(workload, workload.horizon_requests, run, capacity)
    if workload.rate_per_s >= capacity:
        raise Diverged(
            f"rate_per_s={workload.rate_per_s:.6g}: must be below the capacity of {capacity:.6g} requests/s, or the queue"
            " grows without end; lower it, or set horizon_requests"
        )
    most, free = max(window.max_requests, window.requests or 0), 1 - workload.rate_per_s / capacity
    first = int(min(max(FIRST, MEMORY / free**2), LARGEST_FIRST, most))
    count = window.requests or whole_period(workload, first, most)
    while True:
        measured = stretch(workload, run, window, count)
        p99, half = p99_interval(ttft_ms(measured.state.requests[measured.rows]))
        loose = window.too_loose(p99, half)
        if window.requests or count >= most or not (loose or measured.notes):
            return Answered(measured, capacity, (*measured.notes, *window.loose_note(loose)))
        growth = SAFETY * (half / (window.tolerance * p99)) ** 2 if window.tolerance and loose else 2.0
        wanted = math.ceil(count * min(max(growth, 1.5), 16.0) / GRAIN) * GRAIN
        count = min(most, whole_period(workload, wanted, most))


def capacity_per_s(workload: OpenLoop, run: Run) -> float:
    """Requests a second that the deployment serves while its queue is never empty: twice as many clients as it has seats.

    Saturated engines may lock in several cycles; the lesser of those of a burst and of a spread start counts, since traffic may find it.
    """
    seats = run(Replay(rows=[(0.0, 1, 1)]), Drained()).state.ranks["max_seats"]  # each engine has its own name for it
    crowd = ClosedLoop(shapes=workload.shapes, concurrency=2 * int(seats.sum()))
    burst = run(crowd, SATURATED)
    most = burst.window.per_s(burst.done)
    if math.isinf(most):
        return most
    spread = run(crowd.model_copy(update={"stagger_ms": 1000.0 / most}), SATURATED)
    return min(most, spread.window.per_s(spread.done))


def finite(workload: OpenLoop, count: int, run: Run, capacity: float) -> Answered:
    """So many requests from an empty system, exactly; rates until the next one would come."""
    sent = arrivals(workload, count, after=1)
    stop = float(sent.rows["dispatch_ms"][count])
    measured = run(sent.model_copy(update={"rows": sent.rows[:count]}), Stretch(slice(0, count), stop))
    exact = replace(measured.window, half_width_ms=0.0, p99_half_width_ms=0.0)
    note = f"horizon_requests={count}: figures are of these requests from an empty system, not of a steady state"
    if workload.rate_per_s >= capacity:
        note = (
            f"rate_per_s={workload.rate_per_s:.6g} is not below the capacity of {capacity:.6g}: the queue grows; {note}"
        )
    return Answered(replace(measured, window=exact), capacity, (note,))


def stretch(workload: OpenLoop, run: Run, window: Window, count: int) -> Measured:
    """One period of arrivals after a warm-up; they go on until the last measured request is done.

    A warm-up lasts until everybody in the system has been replaced a few times, as Little counts them.
    """
    before, after = WARMUP if window.warmup is None else window.warmup, GRAIN
    while True:
        sent = arrivals(workload, count, before, after)
        measured = run(sent, Stretch(slice(before, before + count), settle=window.requests is None))
        crowd = math.ceil(workload.rate_per_s / 1000.0 * samples.e2e(measured).mean)
        ended = measured.state.world[0]["now"] > sent.rows["dispatch_ms"][-1]
        short = window.warmup is None and before < REPLACED * crowd
        if not (ended or short):
            return measured
        after, before = 4 * after if ended else after, REPLACED * crowd if short else before


@dataclass(frozen=True)
class Stretch:
    """These requests of a replay, until the next one is sent or until the given instant; the notes say whether they drift.

    To settle is to leave out leading ones until the rest does not drift.
    """

    rows: slice
    stop_ms: float | None = None
    settle: bool = False

    def measure(self, machine: Machine) -> Measured:
        """Run until all of them are done."""
        machine.world["until_row"] = self.rows.stop
        machine.finish()
        sent = machine.state.requests
        stop = sent["dispatch_ms"][self.rows.stop] if self.stop_ms is None else self.stop_ms
        skip, drift = settled(ttft_ms(sent[self.rows])) if self.stop_ms is None else (0, False)
        rows = slice(self.rows.start + skip * self.settle, self.rows.stop)
        return cut_out(machine, EMPTY, rows, float(stop), (), drift_note(drift))
