"""TensorRT-LLM's blocks, and what two stages ask of them (T11, D5, D6), one method a rule."""

from math import inf

from tools.oracle.errors import ScenarioError
from tools.oracle.kv import BlockPool
from tools.oracle.requests import Lengths, Request
from tools.oracle.staging import Staged
from tools.oracle.trtllm_budget import TrtllmBudget


class TrtllmStaging(Staged, TrtllmBudget):
    """A pool of blocks, and the seated requests that hold them."""

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.active: list[Request] = []
        self.pool = BlockPool(self.usable_blocks())

    def usable_blocks(self) -> int | None:
        """All whole blocks of the memory; no limit, if the scenario has none."""
        tokens = self.options.max_tokens_in_kv
        return None if tokens is None else tokens // self.options.tokens_per_block

    def cover(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.options.tokens_per_block)

    def take(self, request: Request, count: int) -> None:
        """T11: blocks move at launch."""
        request.blocks += [self.pool.take() for _ in range(count)]

    def free(self, request: Request) -> None:
        """T8, T12: all blocks of a request return together."""
        self.pool.release(request.blocks)
        request.blocks = []

    def longest(self, lengths: Lengths) -> int:
        """T1: blocks of the prompt and all outputs that may come."""
        return self.cover(lengths.isl + lengths.limit)

    # D5, D6.

    def give_back(self, request: Request) -> None:
        """T8: as at any end."""
        self.free(request)

    def somebody_resumes(self) -> bool:
        """D10: whoever has a seat and no blocks here was paused."""
        return not all(request.blocks for request in self.active)

    def has_room(self, request: Request) -> bool:
        """D6: all that run have what they may need, or have been promised nothing."""
        return self.staged(request.lengths) <= self.pool.free

    def take_in(self, request: Request) -> None:
        """D6: the blocks are there before the tokens."""
        self.take(request, self.staged(request.lengths))

    def staged(self, lengths: Lengths) -> int:
        """D6, T1, T2: all that may come if nobody is ever paused, else the prompt and the token of its first row."""
        evicts = self.options.capacity_policy == "MAX_UTILIZATION"
        return self.cover(lengths.isl + 1) if evicts else self.longest(lengths)

    def most(self) -> float:
        """All usable blocks."""
        usable = self.usable_blocks()
        return inf if usable is None else usable

    def refuse_hand_off(self, lengths: Lengths) -> None:
        """T3: hand-offs are rows when they come, and no static batch would be one."""
        if self.options.capacity_policy == "STATIC_BATCH":
            raise ScenarioError("deployment: capacity_policy STATIC_BATCH is not modelled on the decode side")
        super().refuse_hand_off(lengths)
