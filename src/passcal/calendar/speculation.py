"""Speculation: what drafts cost, and how many are accepted (V16).

A decode row verifies drafts in the pass that writes its next token, and emits that token and the accepted drafts. How many are accepted follows a stream
with the stated mean: in the j-th decode row of a request, `floor((j + 1) mean) - floor(j mean)`, as far as it has drafts. `SEQUENCE.given` leaves drafts out,
so whatever counts progress need not know of them.
"""

from math import floor
from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["accept", "begin", "draft", "emitted", "given", "will_accept", "write"]


@jit
def begin(state: State, rank: Any, i: int) -> None:
    """Sequence i is admitted: it decodes only after a pass that emits; a new one is at the start of its stream."""
    if rank.drafts > 0:
        life = state.vllm_lives[i]
        life.drafts, life.emitted = 0, 0
        if state.legs[i].preemptions == 0:
            life.rows = 0


@jit
def draft(state: State, rank: Any, i: int, budget: int) -> int:
    """Drafts of sequence i in the plan at hand: of a decode row, within the budget and the output that is left."""
    if rank.drafts == 0:
        return 0
    life, s = state.vllm_lives[i], state.sequences[i]
    drafts = 0
    if life.emitted > 0:
        drafts = max(0, min(rank.drafts, min(budget - 1, state.legs[i].osl - s.generated - 1)))
    life.drafts = drafts
    return drafts


@jit
def given(state: State, rank: Any, i: int) -> int:
    """Drafts that the plan gives sequence i."""
    return 1 * state.vllm_lives[i].drafts if rank.drafts > 0 else 0


@jit
def emitted(state: State, rank: Any, i: int) -> int:
    """Tokens that the newest pass of sequence i emitted."""
    return 1 * state.vllm_lives[i].emitted if rank.drafts > 0 else 1


@jit
def will_accept(state: State, rank: Any, i: int) -> int:
    """Drafts that are accepted in the pass in flight, which carries a row of sequence i."""
    if rank.drafts == 0 or state.vllm_lives[i].emitted == 0:
        return 0
    life = state.vllm_lives[i]
    return min(floor((life.rows + 1) * rank.accepted) - floor(life.rows * rank.accepted), 1 * life.drafts)


@jit
def accept(state: State, rank: Any, i: int) -> None:
    """Sequence i has emitted a token of the pass that lands; a decode row emits its accepted drafts with it, at gaps of zero."""
    s, life, world = state.sequences[i], state.vllm_lives[i], state.world[0]
    decoded, accepted = life.emitted > 0, will_accept(state, rank, i)
    life.emitted = 1
    if not decoded:
        return
    life.rows += 1
    for _ in range(0 if rank.launching else accepted):  # else they are logged when they leave (V14)
        stall = state.stalls[world.stalls]
        stall.request, stall.from_pass, stall.to_pass = i, rank.number, rank.number
        stall.gap_ms, stall.end_ms = 0.0, rank.land_ms
        world.stalls += world.logging
    life.emitted += accepted
    s.generated += accepted
    s.computed += accepted


@jit
def write(state: State, rank: Any, k: int, out: Any, n: int) -> int:
    """Write what rank k keeps of its sequences in `VLLM_LIFE`, from position n on; returns the next position."""
    for j in range(rank.running):
        life = state.vllm_lives[state.running[k, j]]
        out[n], out[n + 1], out[n + 2] = life.rows, life.emitted, life.rode == rank.number
        n += 3
    i = rank.waiting_head
    while i != NOBODY:
        out[n] = state.vllm_lives[i].rows if state.legs[i].preemptions > 0 else 0
        n += 1
        i = state.sequences[i].after
    return n
