"""vLLM's calendar: fused passes. Running sequences first, then the waiting queue, one token budget; recompute the newest (V1-V13)."""

from typing import Any

from passcal.core import blocks, crowd
from passcal.core.compiled import jit
from passcal.core.rank import (
    HELD_BLOCKS,
    HELD_BUDGET,
    HELD_NOT,
    HELD_SEATS,
    intake,
    pop,
    preempt,
    release_late,
    seats_taken,
)
from passcal.core.tables import State

__all__ = ["plan"]


@jit
def plan(state: State, k: int, now: float) -> int:
    """Form the next pass of rank k at this instant; returns how many rows it has."""
    rank = state.ranks[k]
    horizon = rank.start_ms if rank.lookahead and not rank.idle else now  # V12
    rows = decide(state, rank, k, horizon)
    if rows == 0 and rank.lookahead:  # the pipeline drains and the engine decides again at once (V12)
        release_late(state, rank, k)
        rows = decide(state, rank, k, now)
    return rows


@jit
def decide(state: State, rank: Any, k: int, horizon: float) -> int:
    """Running first, in admission order, then waiting, in order of visibility (V1)."""
    intake(state, rank, horizon)
    rank.held_by, rank.preempted = HELD_NOT, 0
    need = crowd.needs(state, rank, k)
    if need > rank.free and rank.memory:
        crowd.dissolve(state, rank, k)
        need = 0
    rank.free -= need
    capped = rank.long_prefill > 0 and seats_taken(rank) + rank.waiting != 1  # V10
    rows, budget = continue_running(state, rank, k, rank.budget - rank.crowd, capped)
    if rank.preempted == 0:
        rows += admit(state, rank, k, budget, capped)
    return rank.crowd + rows


@jit
def continue_running(state: State, rank: Any, k: int, budget: int, capped: bool) -> tuple[int, int]:
    """Give running sequences their tokens; who lacks a block preempts the newest, possibly itself (V8)."""
    rows = 0
    while rows < rank.running and budget > 0:
        i = state.running[k, rows]
        s = state.sequences[i]
        new = state.requests[i].isl + s.generated - s.computed
        if capped:
            new = min(new, rank.long_prefill)
        new = min(new, budget)
        need = blocks.missing(rank, s, s.computed + new)
        lost = False
        while need > rank.free and rank.memory and not lost:
            lost = preempt(state, rank, k) == i
        if lost:
            break
        blocks.take(rank, s, need)
        s.given = new
        budget -= new
        rows += 1
    return rows, budget


@jit
def admit(state: State, rank: Any, k: int, budget: int, capped: bool) -> int:
    """Admit waiting sequences while seats, budget and blocks last; the head of the queue blocks it (V3, V6, V11)."""
    rows = 0
    while rank.waiting > 0:
        if seats_taken(rank) >= rank.max_seats:
            rank.held_by = HELD_SEATS
            break
        if budget <= 0:
            rank.held_by = HELD_BUDGET
            break
        i = rank.waiting_head
        s, request = state.sequences[i], state.requests[i]
        length = request.isl + s.generated
        past = min(request.prefix, length - 1) if request.preemptions == 0 else 0
        new = length - past
        if capped:
            new = min(new, rank.long_prefill)
        if not rank.chunked and new > budget:
            rank.held_by = HELD_BUDGET
            break
        new = min(new, budget)
        spare = rank.free - (rank.mark if rank.running + rank.crowd > 0 else 0)
        gate = length if rank.reserve_full else past + new
        if rank.memory and blocks.cover(gate, rank.block_size) > spare:
            rank.held_by = HELD_BLOCKS
            break
        pop(state, rank)
        s.computed, s.given = past, new
        blocks.take(rank, s, blocks.cover(past + new, rank.block_size))
        rank.serial += 1
        s.serial = rank.serial
        state.running[k, rank.running] = i
        rank.running += 1
        budget -= new
        rows += 1
    return rows
