"""When a run has said enough: a limit cycle is found, a window is settled, or everything is drained.

Each stop drives a machine and returns a `Measured`: which rows of the log count, and with what confidence.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.drift import drift_note, p99_interval, settled
from passcal.errors import NotConverged, SpecError
from passcal.kernel import CYCLE, SLICE
from passcal.machine import Machine
from passcal.window import Measured, WindowInfo, begin_log, cut_out, slice_of_passes, stalls_until, ttft_ms

__all__ = ["Drained", "LimitCycle", "Measured", "Stop", "Window", "WindowInfo", "require_whole"]

FOREVER = 2**31 - 1


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
MAX_PASSES = 1_000_000
EARLY_EACH, EARLY_MORE = (
    16,
    2048,
)  # requests served before a cycle of several stages is given up: so many a client, and so many more


@dataclass(frozen=True)
class LimitCycle:
    """Find the cycle that the closed loop settles in, and measure one turn of it exactly.

    Attributes:
        max_passes: passes to search before a window is used instead; None: 1,000,000, and of several stages no more than serve 16 requests a
            client and 2,048 (half of that where clients start one by one; their passes seldom fall into step later: a cycle is found early or hardly ever).
        jump_after: passes after which a start from the cohorts that a burst tends to is tried; taken only if its state repeats. None: never.
        strict: raise `NotConverged` instead of using a window.
    """

    max_passes: int | None = None
    jump_after: int | None = 100_000
    strict: bool = False

    def __post_init__(self) -> None:
        if self.max_passes is not None:
            require_whole("LimitCycle.max_passes", self.max_passes, 1)
        if self.jump_after is not None:
            require_whole("LimitCycle.jump_after", self.jump_after, 1)
        if not isinstance(self.strict, bool):
            raise SpecError(f"LimitCycle.strict={self.strict!r}: must be true or false; correct it")

    def measure(self, machine: Machine) -> Measured:
        """Log the first request of every client, search without a log, then log one turn of the cycle."""
        require_endless(machine, "LimitCycle()")
        startup = log_startup(machine)
        if self.max_passes is None and machine.world["stages"] > 1:
            return self._early(machine, startup)
        most = MAX_PASSES if self.max_passes is None else self.max_passes
        patience = most if self.jump_after is None else min(self.jump_after, most)
        if search(machine, patience, self.strict):
            return self._turn(machine, startup, ())
        alone = machine.world["stages"] == 1 and not machine.world["preemptions"]
        if self.jump_after is not None and alone and (jumped := jump(machine)) is not None:
            note = (
                f"start-up is longer than {patience} passes: this is the cycle of the cohorts that the burst tends to"
            )
            return self._turn(jumped, startup, (note,))
        if machine.world["passes"] >= patience and search(machine, most - patience, self.strict):
            return self._turn(machine, startup, ())
        if self.strict:
            raise NotConverged(
                f"max_passes={most}: no limit cycle within them; raise it, or allow a window with strict=False"
            )
        note = f"no limit cycle within {most} passes: a window is used instead"
        if machine.world["passes"] < most:
            why = "cached KV is part of the state" if machine.by_content else "sequences go on being evicted"
            note = f"{why}, no limit cycle in {int(machine.world['passes'])} passes: a window is used instead"
        return Window().measure_from(machine, startup, (note,))

    def _early(self, machine: Machine, startup: Any) -> Measured:
        """The same of several stages: a cycle that is found early, or a window."""
        world = machine.world
        requests = EARLY_EACH * int(world["clients"]) + EARLY_MORE
        if world["stagger_ms"]:  # who do not start at once have less to get over
            requests //= 2
        world["until_done"] = FOREVER if self.strict else requests
        found = search(machine, MAX_PASSES, True)
        world["until_done"] = FOREVER
        if found:
            return self._turn(machine, startup, ())
        if self.strict:
            raise NotConverged(
                f"max_passes={MAX_PASSES}: no limit cycle within them; raise it, or allow a window with strict=False"
            )
        note = f"no limit cycle within {requests} requests: a window is used instead; LimitCycle(max_passes=) looks for longer"
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
    """Measure a stretch of a closed or an open loop after a warm-up.

    Attributes:
        requests: requests in the window; None: at least 20 a client (4 where there are several stages) and 1,000 in all (8,192 of an open loop),
            more until a drift test passes.
        warmup: requests before the window; None: ten a client (1,000 of an open loop), and as many more as the drift test asks for.
        max_requests: where growing ends.
        tolerance: let the window grow until half of the 95% confidence interval of TTFT p99 is at most this share of it; None: however wide.
    """

    requests: int | None = None
    warmup: int | None = None
    max_requests: int = 200_000
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.requests is not None:
            require_whole("Window.requests", self.requests, 1)
        if self.warmup is not None:
            require_whole("Window.warmup", self.warmup, 0)
        require_whole("Window.max_requests", self.max_requests, 1)
        if self.tolerance is not None and (isinstance(self.tolerance, bool) or not 0 < self.tolerance < 1):
            raise SpecError(f"Window.tolerance={self.tolerance!r}: must lie between 0 and 1; 5% is 0.05")

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
        each = 20 if world["stages"] == 1 else 4
        wanted, drift, loose = self.requests or max(1000, each * clients), True, True
        while True:
            machine.world["until_row"] = first.rows + wanted
            machine.finish()
            ttft = ttft_ms(machine.state.requests[first.rows : first.rows + wanted])
            skip, drift = settled(ttft)
            loose = self.too_loose(*p99_interval(ttft[skip:]))
            if self.requests or not (drift or loose) or 2 * wanted > self.max_requests:
                break
            wanted *= 2
        skip = 0 if self.requests else skip
        notes = (*notes, *drift_note(drift), *self.loose_note(loose))
        stop = float(machine.state.requests["dispatch_ms"][min(first.rows + wanted, int(machine.world["rows"]) - 1)])
        return cut_out(machine, first, slice(first.rows + skip, first.rows + wanted), stop, startup, notes)

    def too_loose(self, p99_ms: float, half_ms: float) -> bool:
        """Whether the 99th percentile is less sure than wanted."""
        return self.tolerance is not None and not half_ms <= self.tolerance * p99_ms

    def loose_note(self, loose: bool) -> tuple[str, ...]:
        """What a reader must know of a window that ended before its percentile was sure."""
        return (
            (
                f"TTFT p99 is less sure than tolerance={self.tolerance}: see window.p99_half_width_ms; raise max_requests",
            )
            if loose
            else ()
        )


Stop = LimitCycle | Window | Drained


def search(machine: Machine, passes: int, stubborn: bool = True) -> bool:
    """Run without a log until the state repeats, for at most this many passes; whether it did.

    Where KV is kept by identity, states are not compared: what is cached would belong to them. Unless stubborn, give up where
    sequences go on being evicted: such runs hardly ever close a cycle, and their passes are dear.
    """
    world = machine.world
    if machine.by_content:
        return False
    world["logging"], world["watch"] = 0, 1
    while passes > 0:
        evicted, some = int(world["preemptions"]), passes if stubborn else min(passes, EVICTING)
        reason = machine.advance(some)
        if reason != SLICE:
            return bool(reason == CYCLE)
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
