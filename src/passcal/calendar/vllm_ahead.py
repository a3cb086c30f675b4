"""Hand-offs beside a plan that is already formed (V12, D6).

With async scheduling the plan of a pass is formed when the pass before it starts. Alone, an engine is none the wiser for forming it later, with what was
known then, and so does the kernel: when that pass lands. But memory that hand-offs take or set free in between is neither there for that plan nor taken
from it: `RANK.shift` keeps what they took since the pass in flight began, and what the plan will take is foreseen here.
"""

from typing import Any

from passcal.calendar import speculation
from passcal.core import blocks
from passcal.core.compiled import jit
from passcal.core.rank import free_seats, seats_taken
from passcal.core.tables import NOBODY, State

__all__ = ["room", "seated"]

BLOCKED = -1


@jit
def seated(state: State, rank: Any, k: int) -> int:
    """Sequences in a seat, without those that a stop token has ended: of them a wasted row may still be to run."""
    taken = seats_taken(rank)
    if rank.stopping:
        for j in range(rank.running):
            taken -= state.legs[state.running[k, j]].done_ms >= 0.0
    return taken


@jit
def room(state: State, rank: Any, k: int) -> int:
    """Blocks that the plan behind the pass in flight leaves to hand-offs; BLOCKED: it preempts, or leaves somebody waiting to resume."""
    free, budget = crowd_leaves(state, rank, k)
    for j in range(rank.running):
        if budget > 0:
            need, cost = row_takes(state, rank, state.running[k, j], budget)
            free, budget = free - need, budget - cost
    if free < 0:
        return BLOCKED
    free = resumed_leave(state, rank, k, free, budget)
    return free - rank.shift if free >= 0 else BLOCKED


@jit
def row_takes(state: State, rank: Any, i: int, budget: int) -> tuple[int, int]:
    """Blocks and budget that running sequence i takes behind the pass in flight; nothing if it ends there, or is over."""
    s, request = state.sequences[i], state.legs[i]
    if request.done_ms >= 0.0:  # a stop token ended it, and its row is wasted
        return 0, 0
    computed, generated = s.computed + s.given, 1 * s.generated
    emits = s.given > 0 and computed == request.isl + generated
    if emits:
        accepted = speculation.will_accept(state, rank, i)
        computed, generated = computed + accepted, generated + 1 + accepted
        if generated == request.osl and request.osl == request.most:
            return 0, 0
    new, drafts = min(request.isl + generated - computed, budget), 0
    if rank.long_prefill > 0:
        new = min(new, rank.long_prefill)
    if rank.drafts > 0 and (emits or state.vllm_lives[i].emitted > 0):
        drafts = max(0, min(rank.drafts, min(budget - 1, request.osl - generated - 1)))
    return blocks.missing(rank, s, computed + new + drafts), new + drafts


@jit
def crowd_leaves(state: State, rank: Any, k: int) -> tuple[int, int]:
    """Blocks and budget that the crowd's rows leave, of which those that end with the pass in flight take none."""
    ring, number = state.bucket_head.shape[1], rank.number
    need, rows = state.residues[k, (number + 1) % rank.block_size], rank.crowd
    i = state.bucket_head[k, number % ring]
    while i != NOBODY:
        rows -= 1
        need -= (state.legs[i].isl + state.legs[i].osl - 1) % rank.block_size == 0
        i = state.sequences[i].after
    return rank.free + rank.shift - need, rank.budget - rows


@jit
def resumed_leave(state: State, rank: Any, k: int, free: int, budget: int) -> int:
    """Blocks that are left when those who wait to resume have taken theirs; BLOCKED: they cannot all."""
    i, seats = rank.waiting_head, free_seats(rank)
    while i != NOBODY:
        length = state.legs[i].isl + state.sequences[i].generated
        hits, idle_hits = blocks.lookup(state, rank, i, length)
        past = hits * rank.block_size
        new = min(length - past, budget)
        gate = length if rank.reserve_full else past + new
        spare = free - (rank.mark if seated(state, rank, k) > 0 else 0)
        if seats <= 0 or new <= 0 or blocks.cover(gate, rank.block_size) - hits + idle_hits > spare:
            return BLOCKED
        free -= blocks.cover(past + new, rank.block_size) - hits + idle_hits
        budget -= new
        seats -= 1
        i = state.sequences[i].after
    return free
