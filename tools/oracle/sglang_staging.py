"""What SGLang keeps for a transfer, and what it reserves before one (D5, D6), one method a rule."""

from tools.oracle.requests import Lengths, Request
from tools.oracle.sglang_memory import Holding, SglangMemory
from tools.oracle.staging import Staged


class SglangStaging(Staged, SglangMemory):
    """The waiting queue, the one partial prompt, and memory that is reserved by the request."""

    num_reserved_decode_tokens = 512

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.queue: list[Request] = []
        self.partial: Request | None = None

    def give_back(self, request: Request) -> None:
        """S15: as at any end; while it is held, what it shares with the tree is locked."""
        self.release(request)

    def somebody_resumes(self) -> bool:
        """D10: whoever waits here, or is between chunks, was retracted."""
        return bool(self.queue) or self.partial is not None

    def has_room(self, request: Request) -> bool:
        """D6, S15: what the tree keeps and nobody locks counts as free."""
        return self.staged(request.lengths) <= self.capacity()

    def take_in(self, request: Request) -> None:
        """D6: pages of its own, which its first outputs fill; they are published when it ends (S15)."""
        need = self.staged(request.lengths)
        self.reserve(need)
        self.tree.lock(self.tree.root)
        self.holdings[request] = Holding(self.tree.root, 0, published=True, reserved=need)
        self.set_own(request, need)

    def staged(self, lengths: Lengths) -> int:
        """D6: the prompt, and room for outputs."""
        return self.ceil(lengths.isl + self.num_reserved_decode_tokens)

    def most(self) -> float:
        """S17: the pool."""
        return self.pool()
