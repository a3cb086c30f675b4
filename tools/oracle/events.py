"""Time: a heap of events, and the contract on what comes first at one instant."""

from collections.abc import Callable
from enum import IntEnum
from heapq import heappop, heappush


class Kind(IntEnum):
    """Order of events at one instant; within a kind by place, then in the order of scheduling."""

    TURN = 0  # a dispatch that waits for nothing but the clock goes before those that a completion causes
    TOKEN = 1  # outputs of a pass appear, engine by engine, in row order
    PASS_END = 2  # the pass is over
    HANDOFF = 3  # what a pass computed is ready to go over, engine by engine, in row order (D7)
    GRANT = 4  # memory that came free goes to hand-offs that wait for it (D6)
    FLOW = 5  # bytes are through, or begin to flow (D3)
    LANDED = 6  # a transfer is over, in the order in which they were ready
    BEGIN = 7  # transfers that wait may start, now that all have ended that end (D3)
    THOUGHT = 8  # a session takes its next turn, lane by lane
    VISIBLE = 9  # the scheduler sees a request
    DECIDE = 10  # an engine that is free plans and starts, knowing all of the above


class Clock:
    """Runs events in order of (time, turn, kind, place, scheduling).

    All that is decided at one instant is decided in one turn; what that makes happen at the same instant is the next
    turn, and starts over with what ends. Else one worker's outputs would come before, and another's after, what both cause.
    """

    def __init__(self) -> None:
        self.now_ms = 0.0
        self._turn = 0
        self._kind: int = Kind.TURN
        self._heap: list[tuple[float, int, int, int, int, Callable[..., None], tuple]] = []
        self._count = 0

    def at(self, time_ms: float, kind: Kind, action: Callable[..., None], *arguments: object, place: int = 0) -> None:
        """Have `action(*arguments)` happen at a time that is not past; engines and lanes take their number for a place."""
        turn = self._turn + (self._kind == Kind.DECIDE) if time_ms == self.now_ms else 0
        heappush(self._heap, (time_ms, turn, kind, place, self._count, action, arguments))
        self._count += 1

    @property
    def is_empty(self) -> bool:
        """Whether nothing is to come."""
        return not self._heap

    def run(self) -> None:
        """Let everything happen."""
        heap = self._heap
        while heap:
            self.now_ms, self._turn, self._kind, _, _, action, arguments = heappop(heap)
            action(*arguments)
