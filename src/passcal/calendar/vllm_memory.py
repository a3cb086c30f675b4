"""What vLLM's KV does beyond counting: who may lose it, when it comes back, and what is known of it (V8, V9, V12, V13)."""

from typing import Any

from passcal.calendar import speculation
from passcal.core import blocks, crowd, remains
from passcal.core.compiled import jit
from passcal.core.rank import forget, push_front
from passcal.core.tables import NOBODY, State

__all__ = ["crowd_blocks", "known_tokens", "newest_flies", "preempt", "register_outputs", "release", "release_late"]


@jit
def known_tokens(state: State, rank: Any, i: int) -> int:
    """Tokens of sequence i that a plan knows: under lookahead those in flight are missing, until the pipeline drains (V9, V12)."""
    s = state.sequences[i]
    in_flight = rank.lookahead and not rank.drained and s.generated > 0 and s.last_pass == rank.number
    return state.requests[i].isl + s.generated - (speculation.emitted(state, rank, i) if in_flight else 0)


@jit
def register_outputs(state: State, rank: Any, k: int) -> None:
    """Outputs have appeared: of the newest known ones all but the last are stored, and can be hit though their owner be preempted (V9, V16)."""
    for j in range(rank.running):
        i = state.running[k, j]
        blocks.register(state, rank, i, min(state.sequences[i].computed, known_tokens(state, rank, i) - 1))
    for j in range(rank.lates):
        i = state.late[k, j]
        blocks.register(state, rank, i, min(state.sequences[i].computed, known_tokens(state, rank, i) - 1))


@jit
def newest_flies(state: State, rank: Any, k: int) -> bool:
    """Whether preemption would take a sequence of the pass in flight, which a host tier forbids: who needs its blocks waits a pass (V13)."""
    if not rank.offload or not rank.lookahead or rank.drained:
        return False
    i = state.running[k, rank.running - 1]
    if rank.lates > 0 and state.sequences[state.late[k, rank.lates - 1]].serial > state.sequences[i].serial:
        return True
    return state.vllm_lives[i].rode == rank.number


@jit
def crowd_blocks(state: State, rank: Any, k: int) -> None:
    """The crowd's rows take their blocks, oldest first; each time one finds none, the newest sequence is preempted (V8)."""
    served = 0
    while crowd.needs(state, rank, k) - served > rank.free:
        served += rank.free
        remains.take_front(state, rank, rank.free)
        preempt(state, rank, k)
    remains.take_front(state, rank, crowd.needs(state, rank, k) - served)


@jit
def preempt(state: State, rank: Any, k: int) -> int:
    """The newest running sequence of rank k loses its KV and goes back to the head of waiting (V8); returns it.

    Under lookahead a sequence whose last token is in flight still stands in the engine's running list, and may be the newest: it loses
    its blocks, and is done all the same.
    """
    rank.preempted += 1
    state.world[0].preemptions += 1
    i = state.running[k, rank.running - 1] if rank.running > 0 else rank.newest
    if rank.lates > 0:
        late = state.late[k, rank.lates - 1]
        if i == NOBODY or state.sequences[late].serial > state.sequences[i].serial:
            rank.lates -= 1
            state.requests[late].preemptions += 1
            release(state, rank, late)
            return late
    if rank.running > 0:
        rank.running -= 1
    else:
        crowd.evict(state, rank, k)
    s = state.sequences[i]
    if stopped(state, i):
        state.requests[i].preemptions += 1
        release(state, rank, i)
        return i
    blocks.give_back(state, rank, i, True)
    s.reached = max(s.reached, s.computed)
    s.computed, s.given = 0, 0
    state.requests[i].preemptions += 1
    push_front(state, rank, i)
    return i


@jit
def stopped(state: State, i: int) -> bool:
    """Whether a stop token has ended running sequence i, which the plan at hand cannot know yet."""
    return state.requests[i].done_ms >= 0.0


@jit
def release_late(state: State, rank: Any, k: int) -> None:
    """The ends of the pass before become known: seats and blocks are free again."""
    if rank.stopping:
        release_stopped(state, rank, k)
    for j in range(rank.lates):
        i = state.late[k, j]
        if rank.caching:  # its last full block becomes known with its last output
            blocks.register(state, rank, i, state.sequences[i].computed)
        release(state, rank, i)
    rank.lates = 0


@jit
def release_stopped(state: State, rank: Any, k: int) -> None:
    """Sequences that a stop token has ended leave running, their wasted rows are passed over."""
    kept = 0
    for j in range(rank.running):
        i = state.running[k, j]
        s, request = state.sequences[i], state.requests[i]
        if stopped(state, i):
            s.given = 0
            if rank.caching:
                blocks.register(state, rank, i, request.isl + request.osl - 1)
            release(state, rank, i)
            continue
        state.running[k, kept] = i
        kept += 1
    rank.running = kept


@jit
def release(state: State, rank: Any, i: int) -> None:
    """Sequence i gives back its blocks for good."""
    blocks.give_back(state, rank, i, False)
    if rank.identities:
        blocks.close_slot(state, rank, i)
    forget(state, i)
