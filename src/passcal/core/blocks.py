"""A pool of KV blocks, by count.

`memory == 0` on a rank means that KV never binds: nothing is counted and every request for blocks fits.
"""

from passcal.core.compiled import jit

__all__ = ["cover", "give_back", "take"]


@jit
def cover(tokens, block_size):  # type: ignore[no-untyped-def]
    """Blocks that hold this many tokens."""
    return (tokens + block_size - 1) // block_size


@jit
def missing(rank, s, tokens):  # type: ignore[no-untyped-def]
    """Blocks that sequence s lacks to hold this many tokens."""
    return cover(tokens, rank.block_size) - s.held if rank.memory else 0


@jit
def take(rank, s, count):  # type: ignore[no-untyped-def]
    """Give sequence s this many more blocks; the caller has seen that they are free."""
    if rank.memory:
        s.held += count
        rank.free -= count


@jit
def give_back(rank, s):  # type: ignore[no-untyped-def]
    """Free all blocks of sequence s."""
    rank.free += s.held
    s.held = 0
