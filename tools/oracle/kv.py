"""KV memory as blocks: who holds each, what it holds, and the queue of those that nobody holds (V7, V9)."""

from collections import OrderedDict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from math import inf


@dataclass(slots=True, eq=False)
class Block:
    """A block of KV memory. `content` is set while the prefix cache knows it, held or not."""

    number: int
    holders: int = 0
    content: Hashable | None = None


class BlockPool:
    """All usable blocks of an engine; without a limit, new ones are made on demand."""

    def __init__(self, usable: int | None) -> None:
        self.limited = usable is not None
        self._made = usable or 0
        self._free: OrderedDict[Block, None] = OrderedDict((Block(i), None) for i in range(self._made))
        self.known: dict[Hashable, dict[Block, None]] = {}

    @property
    def free(self) -> float:
        """Blocks that nobody holds."""
        return len(self._free) if self.limited else inf

    def take(self) -> Block:
        """The block at the front of the free queue; it loses what it held (V9)."""
        if self.limited:
            block, _ = self._free.popitem(last=False)
            self._forget(block)
        else:
            block = Block(self._made)
            self._made += 1
        block.holders = 1
        return block

    def hold(self, block: Block) -> None:
        """Share a block with known content; if nobody held it, it leaves the free queue (V9)."""
        if block.holders == 0:
            self._free.pop(block)
        block.holders += 1

    def release(self, blocks: Iterable[Block]) -> None:
        """Give blocks back in the given order: known ones to the tail of the queue, others to its front (V9)."""
        for block in blocks:
            block.holders -= 1
            if block.holders == 0:
                self._free[block] = None
                if block.content is None:
                    self._free.move_to_end(block, last=False)

    def register(self, block: Block, content: Hashable) -> None:
        """Let a block be found by its content; several may hold the same (V9)."""
        block.content = content
        self.known.setdefault(content, {})[block] = None

    def find(self, content: Hashable) -> Block | None:
        """The oldest block with this content (V9)."""
        return next(iter(self.known.get(content, ())), None)

    def _forget(self, block: Block) -> None:
        if block.content is not None:
            same = self.known[block.content]
            del same[block]
            if not same:
                del self.known[block.content]
            block.content = None
