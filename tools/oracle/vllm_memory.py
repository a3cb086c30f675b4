"""vLLM's KV memory, one method a rule: blocks, and the prefix cache that they make (V7, V9)."""

from collections.abc import Hashable

from tools.oracle.kv import Block, BlockPool
from tools.oracle.requests import Request, State
from tools.oracle.vllm_options import Options


class VllmMemory:
    """Who holds which blocks; `pool_class` can be replaced to break the block queue alone."""

    pool_class: type[BlockPool] = BlockPool

    def __init__(self, engine: object) -> None:
        self.options = Options.read(engine)
        self.running: list[Request] = []
        self.pool = self.pool_class(self.usable_blocks())

    # V7: blocks.

    def usable_blocks(self) -> int | None:
        """V7: one block is the null block; no limit, if the scenario has none."""
        total = self.options.num_gpu_blocks
        return None if total is None else total - 1

    def margin(self) -> int:
        """V7: blocks that an admission leaves free while anything runs."""
        total = self.options.num_gpu_blocks
        return int(self.options.watermark * total) if total is not None and self.running else 0

    def cover(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.options.block_size)

    # V9: the prefix cache.

    def content(self, request: Request, index: int) -> Hashable:
        """V9: the identity of a block is its whole prefix: shared while all of it is the group's, else its own."""
        lengths, end = request.lengths, (index + 1) * self.options.block_size
        if lengths.prefix_group is not None and end <= min(lengths.prefix_len, lengths.isl):
            return "group", lengths.prefix_group, index
        return "request", request.number, index

    def hit_limit(self, request: Request) -> int:
        """V9: at most (length - 1) // block_size blocks, so that a token is left to compute."""
        return (request.known - 1) // self.options.block_size

    def lookup(self, request: Request) -> list[Block]:
        """V9: at admission only, resumed or not: the leading blocks that the cache knows."""
        hits: list[Block] = []
        if self.options.enable_prefix_caching:
            for index in range(self.hit_limit(request)):
                block = self.pool.find(self.content(request, index))
                if block is None:
                    break
                hits.append(block)
        return hits

    def hold(self, request: Request, hits: list[Block]) -> None:
        """V9: take the hits as the leading blocks."""
        for block in hits:
            self.pool.hold(block)
        request.blocks, request.registered = list(hits), len(hits)

    def grow(self, request: Request, stored: int) -> None:
        """V7: take blocks for all tokens stored by the end of the pass."""
        for _ in range(self.cover(stored) - len(request.blocks)):
            request.blocks.append(self.pool.take())

    def register(self, request: Request, stored: int) -> None:
        """V9: planning makes full blocks known, as far as their tokens are: one in flight is not."""
        if self.options.enable_prefix_caching:
            full = min(stored, request.known) // self.options.block_size
            for index in range(request.registered, full):
                self.pool.register(request.blocks[index], self.content(request, index))
            request.registered = max(request.registered, full)

    def register_output(self, request: Request) -> None:
        """V9: an output that appears makes known the full blocks before it; with async, planning could not do it all.

        An async plan does not know the token in flight, so what the last row of a request filled would stay unknown.
        """
        if request.state is State.RUNNING:
            self.register(request, request.computed - request.in_flight)

    def free(self, request: Request) -> None:
        """V9: blocks return last one first."""
        self.pool.release(reversed(request.blocks))
        request.blocks, request.registered = [], 0
