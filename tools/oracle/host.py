"""Workers whose host takes its time: it decides passes at moments of its own, and comes to their outputs when it can."""

from collections.abc import Callable, Sequence

from tools.oracle.engine import Scheduler, Worker
from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Request, Row
from tools.oracle.timing import Timing


class HostWorker(Worker):
    """The host goes round: decide and launch pass k+1, wait for the end of pass k, hand on its outputs, decide k+2."""

    def __init__(
        self, index: int, ranks: Sequence[Scheduler], timing: Timing, clock: Clock, on_done: Callable[[Request], None]
    ) -> None:
        super().__init__(index, ranks, timing, clock, on_done)
        self.costs = ranks[0].host_times
        self.flying: list[Row] = []  # rows of the last pass that was launched, while its outputs are not handed on
        self.flying_end_ms = 0.0  # when the device is free

    def decide(self) -> None:
        """Plan the next pass; with it launched, or with none to launch, wait for the outputs of the one before."""
        self.deciding, self.busy = False, True
        rows = self.plan([self.flying]) if self.flying else self.plan_now()
        if any(rows):
            launch_end_ms = self.launch_next(rows)
            self.hand_on(self.leave_ms(launch_end_ms))
            self.next_decision(self.decision_ms(launch_end_ms))
            self.flying, self.flying_end_ms = rows[0], self.passes[-1].end_ms
        elif self.flying:
            self.hand_on(self.flying_end_ms)
            self.next_decision(self.flying_end_ms)
            self.flying = []
        else:
            self.busy, self.step = False, self.drained()

    def launch_next(self, rows: list[list[Row]]) -> float:
        """Write the pass down; when the host is done with it."""
        raise NotImplementedError

    def leave_ms(self, launch_end_ms: float) -> float:
        """V14, S19: outputs of k leave at the end of k, and not before k+1 is launched."""
        return max(self.flying_end_ms, launch_end_ms)

    def decision_ms(self, launch_end_ms: float) -> float:
        """V14, S19: k+2 is decided once k+1 is launched and k is over."""
        return max(self.flying_end_ms, launch_end_ms)

    def hand_on(self, at_ms: float) -> None:
        """The outputs under way appear."""
        self.schedule_outputs([self.flying], at_ms)

    def next_decision(self, at_ms: float) -> None:
        """Decide when the host is free again."""
        self.deciding = True
        self.clock.at(at_ms, Kind.DECIDE, self.decide)
