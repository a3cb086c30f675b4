"""Decode rows as an aggregate: a count, a sum of contexts, a ring of finish passes, and who needs a block when.

Every row of the crowd gets one token in every pass (the budget covers all seats, and its rows stand before every prompt), so nothing about
a row need be touched until it finishes. Rows join in admission order, hence those of one bucket finish in running order. When
blocks run short the crowd is dissolved into literal rows, since then the order of single rows decides; it forms again when they suffice.
"""

from typing import Any

from passcal.core import blocks
from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["dissolve", "finishers", "join", "needs", "reform"]


@jit
def join(state: State, rank: Any, k: int, i: int) -> None:
    """Sequence i, whose first token the landing pass emitted, decodes from the next pass on."""
    s, request = state.sequences[i], state.requests[i]
    bucket = (rank.number + request.osl - s.generated) % state.bucket_head.shape[1]
    s.after = NOBODY
    if state.bucket_head[k, bucket] == NOBODY:
        state.bucket_head[k, bucket] = i
    else:
        state.sequences[state.bucket_tail[k, bucket]].after = i
    state.bucket_tail[k, bucket] = i
    rank.crowd += 1
    rank.crowd_kv += request.isl + s.generated
    if rank.memory:
        state.residues[k, (rank.number + 1 - s.computed) % rank.block_size] += 1


@jit
def needs(state: State, rank: Any, k: int) -> int:
    """Blocks that the crowd takes in the next pass."""
    return state.residues[k, (rank.number + 1) % rank.block_size] if rank.memory else 0


@jit
def finishers(state: State, rank: Any, k: int) -> int:
    """Advance the crowd by the pass that lands; returns the head of the list of rows that end with it."""
    bucket = rank.number % state.bucket_head.shape[1]
    head = state.bucket_head[k, bucket]
    i = head
    while i != NOBODY:
        s, request = state.sequences[i], state.requests[i]
        s.generated = request.osl
        s.computed = request.isl + request.osl - 1
        rank.crowd -= 1
        rank.crowd_kv -= s.computed
        if rank.memory:
            s.held = blocks.cover(s.computed, rank.block_size)
            state.residues[k, (rank.number - s.computed + 1) % rank.block_size] -= 1
        i = s.after
    state.bucket_head[k, bucket] = NOBODY
    rank.crowd_kv += rank.crowd
    return head


@jit
def reform(state: State, rank: Any, k: int) -> None:
    """The leading decode rows of rank k join the crowd again, if a block is free for each: then their order cannot matter for a while.

    Rows behind them stay literal, and join when they emit, as prompts do.
    """
    rows = 0
    while rows < rank.running and decodes(state, rank, state.running[k, rows]):
        rows += 1
    if rows == 0 or rank.free < rows:
        return
    for j in range(rows):
        join(state, rank, k, state.running[k, j])
    rank.running -= rows
    for j in range(rank.running):
        state.running[k, j] = state.running[k, j + rows]
    rank.crowded = 1


@jit
def decodes(state: State, rank: Any, i: int) -> bool:
    """Whether sequence i emitted in the pass that lands, and lacks one token only before the next."""
    s = state.sequences[i]
    return s.last_pass == rank.number and s.generated > 0 and state.requests[i].isl + s.generated - s.computed == 1


@jit
def dissolve(state: State, rank: Any, k: int) -> None:
    """Turn the crowd into literal rows, before the others of running; decode rows stay literal until `reform`."""
    ring, members, found = state.bucket_head.shape[1], state.scratch, 0
    for remaining in range(1, ring):
        i = state.bucket_head[k, (rank.number + remaining) % ring]
        while i != NOBODY:
            s, request = state.sequences[i], state.requests[i]
            s.generated = request.osl - remaining
            s.computed = request.isl + s.generated - 1
            s.held = blocks.cover(s.computed, rank.block_size) if rank.memory else 0
            s.last_pass, s.last_ms = rank.number, rank.end_ms
            at = found
            while at > 0 and state.sequences[members[at - 1]].serial > s.serial:
                members[at] = members[at - 1]
                at -= 1
            members[at] = i
            found += 1
            i = s.after
        state.bucket_head[k, (rank.number + remaining) % ring] = NOBODY
    for j in range(rank.running - 1, -1, -1):
        state.running[k, j + found] = state.running[k, j]
    for j in range(found):
        state.running[k, j] = members[j]
    rank.running += found
    rank.crowd, rank.crowd_kv, rank.crowded = 0, 0, 0
    state.residues[k, :] = 0
