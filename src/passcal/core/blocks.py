"""A pool of KV blocks, by count.

`memory == 0` on a rank means that KV never binds: nothing is counted and every request for blocks fits.
"""

from typing import Any

from passcal.core.compiled import jit

__all__ = ["cover", "give_back", "take"]


@jit
def cover(tokens: int, block_size: int) -> int:
    """Blocks that hold this many tokens."""
    return (tokens + block_size - 1) // block_size


@jit
def missing(rank: Any, s: Any, tokens: int) -> int:
    """Blocks that sequence s lacks to hold this many tokens."""
    return cover(tokens, rank.block_size) - s.held if rank.memory else 0


@jit
def take(rank: Any, s: Any, count: int) -> None:
    """Give sequence s this many more blocks; the caller has seen that they are free."""
    if rank.memory:
        s.held += count
        rank.free -= count


@jit
def give_back(rank: Any, s: Any) -> None:
    """Free all blocks of sequence s."""
    rank.free += s.held
    s.held = 0
