"""A worker whose host takes time to launch a pass, and to turn tokens into text (V14)."""

from collections.abc import Callable, Sequence

from tools.oracle.engine import Launch, Pass, Scheduler
from tools.oracle.events import Clock, Kind
from tools.oracle.host import HostWorker
from tools.oracle.requests import Request, Row
from tools.oracle.timing import Timing


class LaunchingWorker(HostWorker):
    """Lets outputs go when the host comes to them; no pass moves for it."""

    costs: Launch

    def __init__(
        self, index: int, ranks: Sequence[Scheduler], timing: Timing, clock: Clock, on_done: Callable[[Request], None]
    ) -> None:
        super().__init__(index, ranks, timing, clock, on_done)
        self.detokenized_ms = 0.0

    def launch_next(self, rows: list[list[Row]]) -> float:
        """V14: the pass starts when the one before ends; the launch ends, the eager one while the device works."""
        now_ms = self.clock.now_ms
        self.book(rows, max(now_ms, self.flying_end_ms))
        booked = self.passes[-1]
        launch_end_ms = now_ms + self.launch_ms(rows[0])
        if self.is_eager(rows[0]):
            launch_end_ms = max(launch_end_ms, self.eager_floor_ms(booked))
        return min(launch_end_ms, booked.end_ms)

    def launch_ms(self, rows: list[Row]) -> float:
        """V14: over the capture size eager; else piecewise with prefill, else decode."""
        if self.is_eager(rows):
            return self.costs.eager_ms
        return self.costs.decode_ms if all(row.is_decode for row in rows) else self.costs.piecewise_ms

    def is_eager(self, rows: list[Row]) -> bool:
        """V14: tokens above the capture size have no graph."""
        return sum(row.new for row in rows) > self.costs.max_cudagraph_capture_size

    def eager_floor_ms(self, booked: Pass) -> float:
        """V14: an eager launch is not over before this fraction of its pass is."""
        return booked.start_ms + self.costs.eager_queue_fraction * (booked.end_ms - booked.start_ms)

    def emit(self, rank: int, request: Request) -> None:
        """V14: the scheduler knows an output as it leaves; the client has it once a serial detokenizer is done."""
        done = self.ranks[rank].receive(request, self.clock.now_ms)
        self.detokenized_ms = max(self.detokenized_ms, self.clock.now_ms) + self.costs.detokenizer_ms
        request.token_ms[-1] = self.detokenized_ms
        if done:
            self.clock.at(self.detokenized_ms, Kind.TOKEN, self.on_done, request, place=self.first)
