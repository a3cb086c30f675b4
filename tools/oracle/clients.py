"""Who sends, and when: the closed loop, the replay and sessions, numbering requests as they are dispatched."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from tools.oracle import scenario
from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Lengths, Request
from tools.oracle.sessions import Sessions


class Clients(Protocol):
    """A source of requests."""

    def start(self) -> None:
        """Schedule the dispatches that depend on nothing."""

    def done(self, request: Request) -> None:
        """Hear that a request has its last token, now."""


class Dispatcher:
    """Numbers requests in the order of their dispatch and delivers each when it becomes visible."""

    def __init__(self, plane: scenario.Plane, clock: Clock, deliver: Callable[[Request], None]) -> None:
        self.sent: list[Request] = []
        self._plane, self._clock, self._deliver = plane, clock, deliver

    def send(self, lengths: Lengths, arrival_ms: float | None = None) -> Request:
        """Dispatch a request now, that may have come before."""
        now = self._clock.now_ms
        request = Request(len(self.sent), lengths, now, self._plane.visible_ms(now, lengths.isl), arrival_ms)
        self.sent.append(request)
        self._clock.at(request.visible_ms, Kind.VISIBLE, self._deliver, request)
        return request


class ClosedLoop:
    """Each client has one request out. Every client gets its first turn, so successors share what is left of n."""

    def __init__(self, workload: scenario.ClosedLoop, clock: Clock, dispatcher: Dispatcher) -> None:
        self._workload, self._clock, self._dispatcher = workload, clock, dispatcher
        self._first_turns = min(workload.concurrency, workload.requests)
        self._successors = workload.requests - self._first_turns

    def start(self) -> None:
        """Client k's first turn comes k staggers after the start."""
        for k in range(self._first_turns):
            self._clock.at(k * self._workload.stagger_ms, Kind.TURN, self._send)

    def done(self, request: Request) -> None:
        """The client of a finished request sends its next one at once, while any are left."""
        if self._successors:
            self._successors -= 1
            self._send()

    def _send(self) -> None:
        shapes = self._workload.shapes
        self._dispatcher.send(shapes[len(self._dispatcher.sent) % len(shapes)])


class Replay:
    """Requests at their recorded times."""

    def __init__(self, workload: scenario.Replay, clock: Clock, dispatcher: Dispatcher) -> None:
        self._workload, self._clock, self._dispatcher = workload, clock, dispatcher

    def start(self) -> None:
        """All dispatches are known beforehand."""
        for dispatch_ms, lengths in self._workload.requests:
            self._clock.at(dispatch_ms, Kind.TURN, self._dispatcher.send, lengths)

    def done(self, request: Request) -> None:
        """Nobody reacts to a completion."""


class Queueing:
    """A client that has at most so many requests out; the others wait for their turn, first come, first served."""

    def __init__(self, workload: scenario.Replay, clock: Clock, dispatcher: Dispatcher) -> None:
        self._free = workload.max_concurrency
        self._left = deque(workload.requests)
        self._clock, self._dispatcher = clock, dispatcher

    def start(self) -> None:
        """The first one is waited for."""
        self._go_on()

    def done(self, request: Request) -> None:
        """Whoever waits goes now; if nobody did for want of arrivals, the next is waited for already."""
        self._free += 1
        if self._free == 1:
            self._go_on()

    def _go_on(self) -> None:
        """Send what has come, as far as the limit goes; with room left, wait for the next."""
        while self._left and self._free and self._left[0][0] <= self._clock.now_ms:
            arrival_ms, lengths = self._left.popleft()
            self._free -= 1
            self._dispatcher.send(lengths, arrival_ms)
        if self._left and self._free:
            self._clock.at(self._left[0][0], Kind.TURN, self._go_on)


def make_clients(workload: scenario.Workload, clock: Clock, dispatcher: Dispatcher) -> Clients:
    """The source that a workload describes."""
    if isinstance(workload, scenario.Sessions):
        return Sessions(workload, clock, dispatcher.send)
    if isinstance(workload, scenario.ClosedLoop):
        return ClosedLoop(workload, clock, dispatcher)
    source = Replay if workload.max_concurrency is None else Queueing
    return source(workload, clock, dispatcher)
