"""What vLLM keeps for a transfer, and what it takes in from one (D5, D6, D10), one method a rule."""

from collections import deque
from math import inf
from typing import Any

from tools.oracle.requests import Lengths, Request, State
from tools.oracle.staging import Staged
from tools.oracle.vllm_memory import VllmMemory


class VllmStaging(Staged, VllmMemory):
    """Two queues: who waits for blocks, preempted or never admitted, and hand-offs that have theirs and wait for a seat."""

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.arrived: deque[Request] = deque()

    def has_seat(self) -> bool:
        """V3: partial prompts and, in an async plan, those about to leave hold seats too. D5, D7: held ones, and a cap."""
        return len(self.running) + self.seats_held < min(self.options.max_num_seqs, self.seat_cap)

    def give_back(self, request: Request) -> None:
        """V9: as at any end."""
        self.free(request)

    def plan_arrived(self, plan: Any) -> None:
        """D10: after those who resume, but not behind them: hand-offs have their blocks, and may be what others wait for."""
        while self.arrived and plan.budget > 0 and self.has_seat():
            request = self.arrived.popleft()
            request.state = State.RUNNING
            self.running.append(request)
            self.give(request, request.todo, plan)

    def somebody_resumes(self) -> bool:
        """D10: whoever waits here without blocks was preempted."""
        return bool(self.waiting)

    def has_room(self, request: Request) -> bool:
        """D6, V7: with the watermark, as for all that wait."""
        return self.staged(request.lengths) <= self.pool.free - self.margin()

    def take_in(self, request: Request) -> None:
        """D6: blocks for the prompt and a token; the cache knows them when the first row is planned."""
        self.grow(request, request.lengths.isl + 1)

    def staged(self, lengths: Lengths) -> int:
        """D6: the prompt, and the token that its first row stores."""
        return self.cover(lengths.isl + 1)

    def most(self) -> float:
        """V7: usable blocks."""
        usable = self.usable_blocks()
        return inf if usable is None else usable
