"""When a run has said enough: a limit cycle is found, a window is settled, or everything is drained.

Each stop drives a machine and returns a `Measured`: which rows of the log count, and with what confidence.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.core.tables import State
from passcal.drift import drift_note, half_width, settled
from passcal.errors import NotConverged, SpecError
from passcal.kernel import CYCLE
from passcal.machine import Machine

__all__ = ["Drained", "LimitCycle", "Measured", "Stop", "Window", "WindowInfo", "require_whole"]

FOREVER = 2**31 - 1


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
    """

    kind: str
    start_ms: float
    length_ms: float
    requests: int
    passes: int
    half_width_ms: float = 0.0

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
class Drained:
    """Run until every request is done. For a replay, or a closed loop with a number of requests."""

    def measure(self, machine: Machine) -> Measured:
        """Drive the machine to its end."""
        if machine.world["limit"] >= FOREVER:
            raise SpecError(
                "stop=Drained(): a closed loop without requests never drains; give requests, or stop at LimitCycle()"
            )
        machine.finish()
        state, n = machine.state, int(machine.world["rows"])
        requests = state.requests[:n]
        start = float(requests["dispatch_ms"].min())
        length = float(requests["done_ms"].max()) - start
        info = WindowInfo("drained", start, length, n, int(machine.world["passes"]))
        first = min(n, int(machine.world["clients"])) if machine.world["closed"] else 0
        runs, stalls = slice(0, int(machine.world["runs"])), slice(0, int(machine.world["stalls"]))
        return Measured(state, info, slice(0, n), runs, stalls, n, 0, ttft_ms(requests[:first]))


EVICTING = 50_000


@dataclass(frozen=True)
class LimitCycle:
    """Find the cycle that the closed loop settles in, and measure one turn of it exactly.

    Attributes:
        max_passes: passes to search before a window is used instead.
        jump_after: passes after which a start from the cohorts that a burst tends to is tried; taken only if its state repeats. None: never.
        strict: raise `NotConverged` instead of using a window.
    """

    max_passes: int = 1_000_000
    jump_after: int | None = 100_000
    strict: bool = False

    def __post_init__(self) -> None:
        require_whole("LimitCycle.max_passes", self.max_passes, 1)
        if self.jump_after is not None:
            require_whole("LimitCycle.jump_after", self.jump_after, 1)
        if not isinstance(self.strict, bool):
            raise SpecError(f"LimitCycle.strict={self.strict!r}: must be true or false; correct it")

    def measure(self, machine: Machine) -> Measured:
        """Log the first request of every client, search without a log, then log one turn of the cycle."""
        require_endless(machine, "LimitCycle()")
        startup = log_startup(machine)
        patience = self.max_passes if self.jump_after is None else min(self.jump_after, self.max_passes)
        if search(machine, patience, self.strict):
            return self._turn(machine, startup, ())
        evicting = machine.world["preemptions"] > 0
        if self.jump_after is not None and not evicting and (jumped := jump(machine)) is not None:
            note = (
                f"start-up is longer than {patience} passes: this is the cycle of the cohorts that the burst tends to"
            )
            return self._turn(jumped, startup, (note,))
        if machine.world["passes"] >= patience and search(machine, self.max_passes - patience, self.strict):
            return self._turn(machine, startup, ())
        if self.strict:
            raise NotConverged(
                f"max_passes={self.max_passes}: no limit cycle within them; raise it, or allow a window with strict=False"
            )
        note = f"no limit cycle within {self.max_passes} passes: a window is used instead"
        if machine.world["passes"] < self.max_passes:
            why = "cached KV is part of the state" if machine.rank["identities"] else "sequences go on being evicted"
            note = f"{why}, no limit cycle in {int(machine.world['passes'])} passes: a window is used instead"
        return Window().measure_from(machine, startup, (note,))

    def _turn(self, machine: Machine, startup: Any, notes: tuple[str, ...]) -> Measured:
        """Log one turn of the cycle that the machine has just closed, and the requests dispatched in it to their end."""
        kept, repeated = machine.state.marks
        sent, passes = int(repeated["sent"] - kept["sent"]), int(repeated["passes"] - kept["passes"])
        length, start = float(repeated["now"] - kept["now"]), float(machine.world["now"])
        first = begin_log(machine)
        machine.world["until_row"] = machine.world["rows"] + sent
        machine.finish()
        state, world = machine.state, machine.world
        runs = slice_of_passes(state, first.runs, int(world["runs"]), passes)
        if state.ranks["launching"][0]:  # tokens are listed as they leave, which may be after the turn (V14)
            later = int((state.requests["osl"][first.rows : first.rows + sent] - 1).sum())
            stalls = slice(first.stalls, first.stalls + later)
        else:
            stalls = stalls_until(state, first.stalls, int(world["stalls"]), start + length)
        info = WindowInfo("cycle", start, length, sent, passes)
        return Measured(
            state, info, slice(first.rows, first.rows + sent), runs, stalls, sent, first.sent, startup, notes
        )


@dataclass(frozen=True)
class Window:
    """Measure a stretch of a closed loop after a warm-up.

    Attributes:
        requests: requests in the window; None: at least 20 a client and 1,000 in all, doubled until a drift test passes.
        warmup: requests before the window; None: ten a client, and as many more as the drift test asks for.
        max_requests: where growing ends.
    """

    requests: int | None = None
    warmup: int | None = None
    max_requests: int = 200_000

    def __post_init__(self) -> None:
        if self.requests is not None:
            require_whole("Window.requests", self.requests, 1)
        if self.warmup is not None:
            require_whole("Window.warmup", self.warmup, 0)
        require_whole("Window.max_requests", self.max_requests, 1)

    def measure(self, machine: Machine) -> Measured:
        """Warm up without a log, then log the window."""
        require_endless(machine, "Window()")
        return self.measure_from(machine, log_startup(machine), ())

    def measure_from(self, machine: Machine, startup: Any, notes: tuple[str, ...]) -> Measured:
        """The same, when the start-up has been logged and the machine has run since."""
        world, clients = machine.world, int(machine.world["clients"])
        warmup = 10 * clients if self.warmup is None else self.warmup
        world["logging"], world["watch"] = 0, 0
        while world["sent"] < warmup:
            machine.advance(max(1000, 4 * clients))
        first = begin_log(machine)
        wanted, drift = self.requests or max(1000, 20 * clients), True
        while True:
            machine.world["until_row"] = first.rows + wanted
            machine.finish()
            logged = machine.state.requests[first.rows : first.rows + wanted]
            skip, drift = settled(logged["first_ms"] - logged["dispatch_ms"])
            if self.requests or not drift or 2 * wanted > self.max_requests:
                break
            wanted *= 2
        if self.requests:
            skip = 0
        return self._cut(machine, first, first.rows + skip, first.rows + wanted, startup, (*notes, *drift_note(drift)))

    def _cut(
        self, machine: Machine, first: "LogStart", begin: int, end: int, startup: Any, notes: tuple[str, ...]
    ) -> Measured:
        state = machine.state
        dispatched = state.requests["dispatch_ms"]
        start, stop = float(dispatched[begin]), float(dispatched[min(end, int(machine.world["rows"]) - 1)])
        ends = np.maximum.accumulate(state.runs["end_ms"][first.runs : int(machine.world["runs"])])  # ranks overtake
        low = first.runs + int(np.searchsorted(ends, start, side="right"))
        high = max(low + 1, first.runs + int(np.searchsorted(ends, stop, side="right")))
        runs = slice(low, high)
        ended = np.maximum.accumulate(state.stalls["end_ms"][: int(machine.world["stalls"])])
        stalls = slice(*(int(at) for at in np.searchsorted(ended, (start, stop), side="right")))
        done = state.requests["done_ms"][first.rows : int(machine.world["rows"])]
        left = int(((done > start) & (done <= stop)).sum())
        ttft = state.requests["first_ms"][begin:end] - dispatched[begin:end]
        passes = int(state.runs["count"][runs].sum())
        info = WindowInfo("window", start, stop - start, end - begin, passes, half_width(ttft))
        return Measured(
            state, info, slice(begin, end), runs, stalls, left, first.sent + begin - first.rows, startup, notes
        )


Stop = LimitCycle | Window | Drained


def search(machine: Machine, passes: int, stubborn: bool = True) -> bool:
    """Run without a log until the state repeats, for at most this many passes; whether it did.

    Where KV is kept by identity, states are not compared: what is cached would belong to them. Unless stubborn, give up where
    sequences go on being evicted: such runs hardly ever close a cycle, and their passes are dear.
    """
    world = machine.world
    if machine.rank["identities"]:
        return False
    world["logging"], world["watch"] = 0, 1
    while passes > 0:
        evicted, some = int(world["preemptions"]), passes if stubborn else min(passes, EVICTING)
        if machine.advance(some) == CYCLE:
            return True
        if not stubborn and world["preemptions"] > evicted:
            return False
        passes -= some
    return False


def jump(machine: Machine) -> Machine | None:
    """The same run on its limit cycle, reached from predicted cohorts; None if they are not predicted or do not close a cycle.

    A burst's first prompts are cut at the budget; every generation heals one cut, until clients travel in cohorts of whole prompts, one
    cohort a pass. Letting the first wave take whole prompts only puts them there at once.
    """
    fresh = machine.rebuild()
    rank, clients, longest = fresh.rank, int(fresh.world["clients"]), int(fresh.state.shapes["isl"].max())
    if not rank["chunked"] or not rank["crowded"] or longest > rank["budget"] - clients or len(fresh.state.shapes) > 1:
        return None
    rank["chunked"] = 0
    log_startup(fresh)
    rank["chunked"] = 1
    generations = 4 * int(fresh.state.shapes["osl"].max())
    return fresh if search(fresh, generations) else None


@dataclass(frozen=True)
class LogStart:
    """Where logging was taken up again."""

    rows: int
    runs: int
    stalls: int
    sent: int


def require_whole(name: str, value: Any, least: int) -> None:
    """A count of a stop is a whole number, and not below the least."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise SpecError(f"{name}={value!r}: must be a whole number, at least {least}; correct it")


def require_endless(machine: Machine, stop: str) -> None:
    """A steady state is asked of clients that go on for ever."""
    if not machine.world["closed"] or machine.world["limit"] < FOREVER:
        raise SpecError(
            f"stop={stop}: needs a closed loop without a number of requests; leave requests unset, or stop at Drained()"
        )


def log_startup(machine: Machine) -> Any:
    """Run until the first request of every client is done, keeping the log; returns their TTFT (ms)."""
    clients = int(machine.world["clients"])
    machine.world["until_row"] = clients
    machine.finish()
    machine.world["until_row"] = FOREVER
    return ttft_ms(machine.state.requests[:clients])


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
