"""What of a log counts: where logging was taken up, and the window that figures are averages over."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.core.tables import State
from passcal.drift import half_width, p99_interval
from passcal.machine import Machine

__all__ = [
    "LogStart",
    "Measured",
    "WindowInfo",
    "begin_log",
    "cut_out",
    "ended_by",
    "slice_of_passes",
    "stalls_until",
    "ttft_ms",
]


@dataclass(frozen=True)
class WindowInfo:
    """What a report's figures are averages over.

    Attributes:
        kind: `cycle` (exact averages over one limit cycle), `window` (a drift-free stretch), `drained` (every request of the run).
        start_ms: where it begins on the run's clock.
        length_ms: how long it is.
        requests: requests dispatched in it, the sample of TTFT, TPOT, E2E and queue wait.
        passes: passes in it, the sample of ITL.
        half_width_ms: half of the 95% confidence interval of the mean TTFT (batch means); 0 where the figure is exact.
        p99_half_width_ms: the same of its 99th percentile; infinite where the window is too short to say.
    """

    kind: str
    start_ms: float
    length_ms: float
    requests: int
    passes: int
    half_width_ms: float = 0.0
    p99_half_width_ms: float = 0.0

    def per_s(self, count: float) -> float:
        """This many in the window, as a rate a second; infinite where passes cost nothing."""
        return 1000.0 * count / self.length_ms if self.length_ms else float("inf")

    def share(self, ms: float) -> float:
        """This part of the window's length; NaN where it has none."""
        return ms / self.length_ms if self.length_ms else float("nan")


@dataclass(frozen=True)
class Measured:
    """Rows of the log that count. `rows` and `runs` index the tables of `state`; `first_id` numbers the first row.

    `startup_ttft_ms` is of the first request of every client of a closed loop, whether or not it lies in the rows.
    """

    state: State
    window: WindowInfo
    rows: slice
    runs: slice
    stalls: slice
    done: int
    first_id: int
    startup_ttft_ms: Any
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogStart:
    """Where logging was taken up again."""

    rows: int
    runs: int
    stalls: int
    sent: int


def ttft_ms(requests: Any) -> Any:
    """TTFT of rows of the request table."""
    return requests["first_ms"] - requests["dispatch_ms"]


def begin_log(machine: Machine) -> LogStart:
    """Log from here on, on fresh rows."""
    world = machine.world
    world["logging"], world["watch"], world["spare"] = 1, 0, -1
    world["first_open"] = world["rows"]
    world["runs"] += 2 * len(machine.state.ranks)  # what passes in flight have written to
    return LogStart(*(int(world[name]) for name in ("rows", "runs", "stalls", "sent")))


def slice_of_passes(state: State, first: int, end: int, passes: int) -> slice:
    """The rows of the log that hold this many passes from a row on."""
    upto = np.cumsum(state.runs["count"][first:end])
    at = int(np.searchsorted(upto, passes))
    return slice(first, first + at + 1)


def stalls_until(state: State, first: int, end: int, when: float) -> slice:
    """Stalls that end by this instant, but for the rounding of an absolute clock."""
    return slice(
        first, first + int(np.searchsorted(state.stalls["end_ms"][first:end], when * (1 + 1e-12), side="right"))
    )


def ended_by(ends_ms: Any, instants_ms: Any) -> Any:
    """How many leading entries of a log have ended by each instant; ranks overtake, so ends need not ascend."""
    return np.searchsorted(np.maximum.accumulate(ends_ms), instants_ms, side="right")


def cut_out(
    machine: Machine, first: LogStart, rows: slice, stop_ms: float, startup: Any, notes: tuple[str, ...]
) -> Measured:
    """A window of the log: from the dispatch of its first request to this instant.

    Whatever ends in it counts for the rates, no matter when it was sent; latencies are those of the window's own requests.
    """
    state = machine.state
    start = float(state.requests["dispatch_ms"][rows.start])
    ends = state.runs["end_ms"][first.runs : int(machine.world["runs"])]
    low, high = (first.runs + int(at) for at in ended_by(ends, (start, stop_ms)))
    runs = slice(low, max(low + 1, high))
    stalls = slice(*map(int, ended_by(state.stalls["end_ms"][: int(machine.world["stalls"])], (start, stop_ms))))
    done = state.requests["done_ms"][: int(machine.world["rows"])]
    left = int(((done > start) & (done <= stop_ms)).sum())
    ttft = ttft_ms(state.requests[rows])
    passes, count = int(state.runs["count"][runs].sum()), rows.stop - rows.start
    info = WindowInfo("window", start, stop_ms - start, count, passes, half_width(ttft), p99_interval(ttft)[1])
    return Measured(state, info, rows, runs, stalls, left, first.sent + rows.start - first.rows, startup, notes)
