"""Sessions: lanes of turns with think time, each turn a request of its own and the calls that it makes beside it."""

from collections.abc import Callable

from tools.oracle import scenario
from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Lengths, Request


class Sessions:
    """A lane takes its turns one after the other; `send` dispatches a request now."""

    def __init__(self, workload: scenario.Sessions, clock: Clock, send: Callable[[Lengths], Request]) -> None:
        self._workload, self._clock, self._send = workload, clock, send
        self._turns = [iter(lane) for lane in workload.lanes]
        self._out = [0 for _ in workload.lanes]  # requests of each lane's turn that are not done
        self._lane_of: dict[Request, int] = {}

    def start(self) -> None:
        """Lane k thinks about its first turn from k staggers after the start."""
        for lane in range(len(self._turns)):
            self._think(lane, lane * self._workload.stagger_ms)

    def done(self, request: Request) -> None:
        """A turn is done with the last of its requests; then the lane thinks about the next."""
        lane = self._lane_of.pop(request)
        self._out[lane] -= 1
        if not self._out[lane]:
            self._think(lane, self._clock.now_ms)

    def _think(self, lane: int, from_ms: float) -> None:
        """Turns of one instant go lane by lane, once all that ends at that instant has ended."""
        turn = next(self._turns[lane], None)
        if turn is not None:
            self._clock.at(from_ms + turn.think_ms, Kind.THOUGHT, self._take, lane, turn, place=lane)

    def _take(self, lane: int, turn: scenario.Turn) -> None:
        """The turn's own request, then its calls, at one instant."""
        for lengths in turn.requests:
            self._lane_of[self._send(lengths)] = lane
        self._out[lane] = len(turn.requests)
