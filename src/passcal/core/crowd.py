"""Decode rows as an aggregate: a count, a sum of contexts, a ring of finish passes, and who needs a block when.

Every row of the crowd gets one token in every pass (the budget covers all seats, and its rows stand before every prompt), so nothing about
a row need be touched until it finishes or is evicted. Rows join in admission order, hence those of one bucket finish in running order, and the
newest is the last that joined: `SEQUENCE.older` and `newer` thread the crowd by age, `before` and `after` each bucket. While a row is in the
crowd its `generated` and `last_pass` stay what they were when it joined.
"""

from typing import Any

from passcal.core import blocks
from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["evict", "finishers", "join", "needs", "write"]


@jit
def join(state: State, rank: Any, k: int, i: int) -> None:
    """Sequence i, whose token the landing pass emitted, decodes from the next pass on."""
    s, request = state.sequences[i], state.legs[i]
    bucket = (rank.number + request.osl - s.generated) % state.bucket_head.shape[1]
    s.after, s.before = NOBODY, state.bucket_tail[k, bucket]
    if state.bucket_head[k, bucket] == NOBODY:
        state.bucket_head[k, bucket], s.before = i, NOBODY
    else:
        state.sequences[s.before].after = i
    state.bucket_tail[k, bucket] = i
    s.older, s.newer = rank.newest, NOBODY
    if rank.newest != NOBODY:
        state.sequences[rank.newest].newer = i
    rank.newest = i
    rank.crowd += 1
    rank.crowd_kv += request.isl + s.generated
    if rank.memory:
        state.residues[k, (rank.number + 1 - s.computed) % rank.block_size] += 1


@jit
def needs(state: State, rank: Any, k: int) -> int:
    """Blocks that the crowd takes in the next pass."""
    return state.residues[k, (rank.number + 1) % rank.block_size] if rank.memory else 0


@jit
def depart(state: State, rank: Any, k: int, i: int, passed: int) -> None:
    """Sequence i leaves the crowd after so many passes in it: what it computed, holds and registered is written down (V9, V12)."""
    s, request = state.sequences[i], state.legs[i]
    if s.newer == NOBODY:
        rank.newest = s.older
    else:
        state.sequences[s.newer].older = s.older
    if s.older != NOBODY:
        state.sequences[s.older].newer = s.newer
    s.generated += passed
    s.computed = request.isl + s.generated - 1
    rank.crowd -= 1
    if rank.memory:
        unknown = 1 if rank.lookahead and passed > 0 else 0  # of its tokens, the one in flight when it was planned last
        s.held = blocks.cover(s.computed, rank.block_size)
        s.registered = (s.computed - unknown) // rank.block_size


@jit
def finishers(state: State, rank: Any, k: int) -> int:
    """Advance the crowd by the pass that lands; returns the head of the list of rows that end with it."""
    bucket = rank.number % state.bucket_head.shape[1]
    head = state.bucket_head[k, bucket]
    i = head
    while i != NOBODY:
        s = state.sequences[i]
        depart(state, rank, k, i, rank.number - s.last_pass)
        rank.crowd_kv -= s.computed
        if rank.memory:
            state.residues[k, (rank.number - s.computed + 1) % rank.block_size] -= 1
        i = s.after
    state.bucket_head[k, bucket] = NOBODY
    rank.crowd_kv += rank.crowd
    return head


@jit
def evict(state: State, rank: Any, k: int) -> int:
    """The newest row leaves the crowd between two passes; returns it. It is the last of its bucket too."""
    i = rank.newest
    s, request = state.sequences[i], state.legs[i]
    bucket = (s.last_pass + request.osl - s.generated) % state.bucket_head.shape[1]
    state.bucket_tail[k, bucket] = s.before
    if s.before == NOBODY:
        state.bucket_head[k, bucket] = NOBODY
    else:
        state.sequences[s.before].after = NOBODY
    depart(state, rank, k, i, rank.number - s.last_pass)
    rank.crowd_kv -= request.isl + s.generated
    if rank.memory:
        state.residues[k, (rank.number + 1 - s.computed) % rank.block_size] -= 1
    s.last_pass, s.last_ms = rank.number, rank.end_ms
    return i


@jit
def write(state: State, rank: Any, out: Any, n: int) -> int:
    """Write the rows as numbers from position n on, newest first, each with the passes that it has left; returns the next position."""
    i = rank.newest
    while i != NOBODY:
        s, request = state.sequences[i], state.legs[i]
        out[n], out[n + 1], out[n + 2] = request.isl, request.osl, request.prefix
        out[n + 3] = s.last_pass + request.osl - s.generated - rank.number
        n += 4
        i = s.older
    return n
