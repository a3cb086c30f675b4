"""TensorRT-LLM's capacity policies: which seated requests may be in a pass at all, and who is paused for them (T1-T3).

A request's life has four states. A prompt is fresh while it holds nothing and partial between chunks; a row decodes; a leaver,
under overlap only, has its last token in flight. Started requests hold blocks: a prompt from its first chunk on its whole prompt's.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.rank import HELD_BLOCKS
from passcal.core.tables import State

__all__ = [
    "DONE",
    "KEPT",
    "LEAVER",
    "MAX_UTILIZATION",
    "NO_EVICT",
    "PAUSED",
    "POLICIES",
    "PROMPT",
    "ROW",
    "STATIC_BATCH",
    "keep",
]

NO_EVICT, MAX_UTILIZATION, STATIC_BATCH = 0, 1, 2
POLICIES = {"GUARANTEED_NO_EVICT": NO_EVICT, "MAX_UTILIZATION": MAX_UTILIZATION, "STATIC_BATCH": STATIC_BATCH}
PROMPT, ROW, LEAVER, DONE = 0, 1, 2, 3
KEPT, PAUSED = 0, 1  # lists of a rank


@jit
def keep(state: State, rank: Any, own: Any, k: int) -> None:
    """Fill the list of those that are kept, by the rank's policy."""
    own.kept, own.paused = 0, 0
    if own.policy == MAX_UTILIZATION:
        keep_next_tokens(state, rank, own, k)
    else:
        keep_whole_outputs(state, rank, own, k)


@jit
def keep_whole_outputs(state: State, rank: Any, own: Any, k: int) -> None:
    """Rows and leavers first, then prompts while prompt and full output of each still find blocks (T1)."""
    room = rank.free
    for j in range(rank.running):
        i = state.running[k, j]
        life = state.trtllm_lives[i]
        if life.state != PROMPT:
            room -= life.reserve - state.sequences[i].held
            state.lists[k, KEPT, own.kept] = i
            own.kept += 1
    if own.kept == rank.running or (own.policy == STATIC_BATCH and own.kept > 0):  # T3
        return
    for j in range(rank.running):
        i = state.running[k, j]
        life = state.trtllm_lives[i]
        if life.state == PROMPT:
            need = life.reserve - state.sequences[i].held
            if need > room:
                rank.held_by = HELD_BLOCKS
                return
            room -= need
            state.lists[k, KEPT, own.kept] = i
            own.kept += 1


@jit
def keep_next_tokens(state: State, rank: Any, own: Any, k: int) -> None:
    """In list order while blocks for the next token last; a misfit pauses the last started ones behind it, then itself (T2)."""
    room, j, end = rank.free, 0, rank.running
    while j < end:
        i = state.running[k, j]
        need = next_blocks(state, rank, i)
        if need <= room:
            room -= need
            state.lists[k, KEPT, own.kept] = i
            own.kept += 1
            j += 1
            continue
        rank.held_by = HELD_BLOCKS
        end -= 1
        while end >= j and state.sequences[state.running[k, end]].held == 0:
            end -= 1
        if end < j:
            return
        room += pause(state, rank, own, k, state.running[k, end])


@jit
def next_blocks(state: State, rank: Any, i: int) -> int:
    """Blocks that request i takes for its next token: a fresh prompt its whole prompt's, a partial one none (T2)."""
    s, life = state.sequences[i], state.trtllm_lives[i]
    if life.state == PROMPT:
        return 0 if s.held > 0 else (life.prompt + rank.block_size - 1) // rank.block_size
    return 1 if s.computed == s.held * rank.block_size else 0


@jit
def pause(state: State, rank: Any, own: Any, k: int, i: int) -> int:
    """Take request i's blocks for the plan at hand; returns how many. It starts over when what is in flight has landed (T12)."""
    s = state.sequences[i]
    back = s.held
    rank.free += back
    s.reached = max(s.reached, s.computed)
    s.held, s.computed = 0, 0
    state.lists[k, PAUSED, own.paused] = i
    own.paused += 1
    state.legs[i].preemptions += 1
    rank.resuming += 1
    state.world[0].preemptions += 1
    return back
