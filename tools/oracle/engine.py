"""An engine: the device that runs one pass at a time, and the moments at which its scheduler is asked for the next."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Lengths, Request, Row
from tools.oracle.timing import Shape, Timing


class Scheduler(Protocol):
    """What a backend has to say; it is built from the raw `engine` object of the scenario."""

    @property
    def plans_ahead(self) -> bool:
        """Whether pass k+1 is planned when pass k starts, or only when it is over."""

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """Raise ScenarioError for a request that could never run."""

    def arrive(self, request: Request) -> None:
        """A request became visible."""

    def plan(self) -> list[Row]:
        """Decide a pass, moving requests and memory to where they stand once it is launched; [] for no pass."""

    def receive(self, request: Request, now_ms: float) -> bool:
        """An output of a request appeared; say whether the request is done."""

    def idle(self) -> bool:
        """A plan was empty with nothing under way; say whether to ask again, which waits for an arrival if one comes."""


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass as it ran."""

    start_ms: float
    end_ms: float
    shape: Shape


class Engine:
    """Runs what the scheduler plans, at the timing's price."""

    def __init__(self, scheduler: Scheduler, timing: Timing, clock: Clock, on_done: Callable[[Request], None]) -> None:
        self.passes: list[Pass] = []
        self._scheduler, self._timing, self._clock, self._on_done = scheduler, timing, clock, on_done
        self._busy = False
        self._deciding = False
        self._ahead: list[Row] = []

    def deliver(self, request: Request) -> None:
        """A request became visible; an idle engine looks at it at once."""
        self._scheduler.arrive(request)
        if not self._busy:
            self._wake()

    def _wake(self) -> None:
        if not self._deciding:
            self._deciding = True
            self._clock.at(self._clock.now_ms, Kind.DECIDE, self._decide)

    def _decide(self) -> None:
        """Start the pass planned ahead, or else plan one now; with that under way, plan ahead again (V12)."""
        self._deciding = False
        rows = self._ahead or self._scheduler.plan()
        self._ahead = []
        while not rows and self._scheduler.idle() and self._clock.is_empty:
            rows = self._scheduler.plan()
        if rows:
            self._launch(rows)
            if self._scheduler.plans_ahead:
                self._ahead = self._scheduler.plan()

    def _launch(self, rows: list[Row]) -> None:
        clock, shape = self._clock, Shape.of(rows)
        start_ms = clock.now_ms
        end_ms = start_ms + self._timing.pass_ms(shape)
        self.passes.append(Pass(start_ms, end_ms, shape))
        self._busy = True
        for row in rows:
            if row.request.admitted_ms is None:
                row.request.admitted_ms = start_ms
            if row.emits:
                clock.at(end_ms, Kind.TOKEN, self._emit, row.request)
        clock.at(end_ms, Kind.PASS_END, self._end)

    def _emit(self, request: Request) -> None:
        if self._scheduler.receive(request, self._clock.now_ms):
            self._on_done(request)

    def _end(self) -> None:
        self._busy = False
        self._wake()
