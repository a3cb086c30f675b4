"""TensorRT-LLM's micro-batch: who of those kept gets tokens, how prompts are cut, and when they wait for each other (T4, T6, T9, T10)."""

from typing import Any

from passcal.calendar.trtllm_capacity import KEPT, PROMPT, ROW
from passcal.core.compiled import jit
from passcal.core.rank import HELD_BUDGET
from passcal.core.tables import State

__all__ = ["CHUNKING", "EQUAL_PROGRESS", "FCFS", "PROMPTS", "ROWS", "UNCUT", "balance", "pack"]

UNCUT, FCFS, EQUAL_PROGRESS = 0, 1, 2
CHUNKING = {"FCFS": FCFS, "EQUAL_PROGRESS": EQUAL_PROGRESS}
PROMPTS, ROWS = 2, 3  # lists of a rank


@jit
def pack(state: State, rank: Any, own: Any, k: int) -> None:
    """Deal the budget: one token a row, the rest to prompts; fills the lists of prompts and rows."""
    wanted = walk(state, rank, own, k)
    budget = rank.budget - own.rows
    if wanted > budget:  # T9
        if own.chunking == FCFS:
            deal_in_order(state, own, k, budget)
        else:
            deal_equally(state, own, k, budget)
        wanted = drop_unserved(state, rank, own, k)
    if own.patience > 0 and own.prompts > 0 and own.rows > 0:  # T6
        if own.waited < own.patience and wanted + own.rows < own.ratio * rank.budget:
            own.waited += 1
            own.prompts = 0
        else:
            own.waited = 0


@jit
def balance(state: State, lead: Any, first: int) -> None:
    """Prompts of a group wait until every rank has some, and then for more of them, as long as decode rows are there to run meanwhile (T7)."""
    width = state.ranks[first].width
    prompts, rows = 0, 0  # ranks that have any
    for k in range(first, first + width):
        prompts += state.trtllm[k].prompts > 0
        rows += state.trtllm[k].rows > 0
    if prompts == 0:
        return
    if prompts == width:
        lead.waited = 0
        held = rows == width and lead.batched < lead.most_batches
        if rows == width:
            lead.batched = lead.batched + 1 if held else 0
    else:
        lead.waited += 1
        held = lead.waited < lead.most_waits and rows == width
        if not held:
            lead.waited = 0
    if held:
        for k in range(first, first + width):
            state.trtllm[k].prompts = 0


@jit
def walk(state: State, rank: Any, own: Any, k: int) -> int:
    """Sort the kept ones into rows and prompts (T4); returns the tokens that the prompts lack.

    Rows always fit: a prompt that finishes has spent a token at least, and costs no more as a row. One that was paused may stand before rows that came
    with their KV (D10).
    """
    wanted, cut = 0, False
    own.prompts, own.rows = 0, 0
    for j in range(own.kept):
        i = state.lists[k, KEPT, j]
        if state.trtllm_lives[i].state == ROW:
            state.lists[k, ROWS, own.rows] = i
            own.rows += 1
    for j in range(own.kept):
        i = state.lists[k, KEPT, j]
        life = state.trtllm_lives[i]
        if life.state == PROMPT and not cut:
            s = state.sequences[i]
            left = life.prompt - s.computed
            if own.chunking == UNCUT and own.rows + wanted + left > rank.budget:  # T10
                rank.held_by, cut = HELD_BUDGET, True
                continue
            s.given = left
            wanted += left
            state.lists[k, PROMPTS, own.prompts] = i
            own.prompts += 1
    return wanted


@jit
def deal_in_order(state: State, own: Any, k: int, budget: int) -> None:
    """Each prompt its remainder if that fits, else whole units of what is left; a shorter one behind may still fit (T9)."""
    for j in range(own.prompts):
        s = state.sequences[state.lists[k, PROMPTS, j]]
        if s.given > budget:
            s.given = budget // own.unit * own.unit
        budget -= s.given


@jit
def deal_equally(state: State, own: Any, k: int, budget: int) -> None:
    """Rounds, one more unit a prompt or its last shorter piece, where all of it fits (T9)."""
    for j in range(own.prompts):
        state.sequences[state.lists[k, PROMPTS, j]].given = 0
    dealt = True
    while budget > 0 and dealt:
        dealt = False
        for j in range(own.prompts):
            i = state.lists[k, PROMPTS, j]
            s = state.sequences[i]
            piece = min(own.unit, state.trtllm_lives[i].prompt - s.computed - s.given)
            if 0 < piece <= budget:
                s.given += piece
                budget -= piece
                dealt = True


@jit
def drop_unserved(state: State, rank: Any, own: Any, k: int) -> int:
    """Prompts without a token are out of this pass; returns the tokens of the others."""
    kept, tokens = 0, 0
    for j in range(own.prompts):
        i = state.lists[k, PROMPTS, j]
        s = state.sequences[i]
        if s.given == 0:
            rank.held_by = HELD_BUDGET
            continue
        tokens += s.given
        state.lists[k, PROMPTS, kept] = i
        kept += 1
    own.prompts = kept
    return tokens
