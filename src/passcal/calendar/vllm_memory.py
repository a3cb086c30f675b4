"""What vLLM's KV does beyond counting: who may lose it, when it comes back, and what is known of it (V8, V9, V12, V13)."""

from typing import Any

from passcal.calendar import speculation
from passcal.calendar.vllm_ahead import room, seated
from passcal.core import blocks, crowd, remains
from passcal.core.compiled import jit
from passcal.core.hand import kept_back, shifted
from passcal.core.rank import forget, push_front
from passcal.core.tables import NOBODY, State

__all__ = [
    "crowd_blocks",
    "known_tokens",
    "let_go",
    "newest_flies",
    "preempt",
    "register_outputs",
    "release",
    "release_ahead",
    "release_late",
    "reserve",
]


@jit
def known_tokens(state: State, rank: Any, i: int) -> int:
    """Tokens of sequence i that a plan knows: under lookahead those in flight are missing, until the pipeline drains (V9, V12)."""
    s = state.sequences[i]
    in_flight = rank.lookahead and not rank.drained and s.generated > 0 and s.last_pass == rank.number
    return state.legs[i].isl + s.generated - (speculation.emitted(state, rank, i) if in_flight else 0)


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
            state.legs[late].preemptions += 1
            release(state, rank, late)
            return late
    if rank.running > 0:
        rank.running -= 1
    else:
        crowd.evict(state, rank, k)
    s = state.sequences[i]
    if stopped(state, i):
        state.legs[i].preemptions += 1
        release(state, rank, i)
        return i
    blocks.give_back(state, rank, i, True)
    s.reached = max(s.reached, s.computed)
    s.computed, s.given = 0, 0
    state.legs[i].preemptions += 1
    push_front(state, rank, i)
    rank.resuming += 1
    return i


@jit
def stopped(state: State, i: int) -> bool:
    """Whether a stop token has ended running sequence i, which the plan at hand cannot know yet."""
    return state.legs[i].done_ms >= 0.0


@jit
def release_late(state: State, rank: Any, k: int) -> None:
    """The ends of the pass before become known: seats and blocks are free again."""
    if rank.stopping:
        release_stopped(state, rank, k)
    release_lates(state, rank, k)


@jit
def release_stopped(state: State, rank: Any, k: int) -> None:
    """Sequences that a stop token has ended leave running, their wasted rows are passed over."""
    kept = 0
    for j in range(rank.running):
        i = state.running[k, j]
        if stopped(state, i):
            state.sequences[i].given = 0
            free_stopped(state, rank, i)
            forget(state, i)
            continue
        state.running[k, kept] = i
        kept += 1
    rank.running = kept


@jit
def free_stopped(state: State, rank: Any, i: int) -> None:
    """The blocks of a sequence that a stop token has ended are free, though a wasted row of it may be planned."""
    if state.sequences[i].held > 0:
        if rank.caching:
            blocks.register(state, rank, i, state.legs[i].isl + state.legs[i].osl - 1)
        free_blocks(state, rank, i)


@jit
def release_lates(state: State, rank: Any, k: int) -> None:
    """Seats and blocks of those whose end was foreseen are free."""
    for j in range(rank.lates):
        i = state.late[k, j]
        if rank.caching:  # its last full block becomes known with its last output
            blocks.register(state, rank, i, state.sequences[i].computed)
        release(state, rank, i)
    rank.lates = 0


@jit
def release_ahead(state: State, rank: Any, k: int) -> None:
    """The next plan is formed, so hand-offs may have what the ends of the pass before set free; wasted rows are still to run."""
    if rank.stopping:
        for j in range(rank.running):
            if stopped(state, state.running[k, j]):
                free_stopped(state, rank, state.running[k, j])
    release_lates(state, rank, k)


@jit
def release(state: State, rank: Any, i: int) -> None:
    """Sequence i gives back its blocks for good, but for one that keeps them until it has arrived elsewhere (D5)."""
    if not kept_back(state, rank, i):
        free_blocks(state, rank, i)
    forget(state, i)


@jit
def free_blocks(state: State, rank: Any, i: int) -> None:
    """Nobody needs the blocks of sequence i any more."""
    rank.freed = 1
    blocks.give_back(state, rank, i, False)
    if rank.identities:
        blocks.close_slot(state, rank, i)


@jit
def let_go(state: State, k: int, i: int) -> None:
    """Sequence i, which is done here, has arrived elsewhere, or had nothing left to make: its blocks are free, and the seat that it kept."""
    rank = state.ranks[k]
    before = rank.free
    free_blocks(state, rank, i)
    if shifted(rank):
        rank.shift -= rank.free - before


@jit
def reserve(state: State, k: int, i: int) -> bool:
    """Give hand-off i the blocks of its prompt and one more token, beside the watermark, if they are free (D6, V7)."""
    rank = state.ranks[k]
    if not rank.memory:
        return True
    need, ahead = blocks.cover(state.legs[i].isl + 1, rank.block_size), shifted(rank)
    if rank.resuming > 0 and not ahead:
        return False
    spare = room(state, rank, k) if ahead else rank.free
    if need > spare - (rank.mark if seated(state, rank, k) > 0 else 0):
        return False
    if ahead:
        rank.shift += need
    if rank.identities:
        blocks.open_slot(state, rank, i)
    blocks.take(state, rank, i, need)
    return True
