"""How SGLang decodes: who leaves (S4), who rides a prefill pass (S11), the new-token ratio (S12), retraction (S13)."""

from typing import Any

from passcal.calendar.sglang_batch import DROPPED, NONE, WAITING, add_row, kept_tokens
from passcal.core import radix
from passcal.core.compiled import jit
from passcal.core.rank import HELD_BLOCKS, append
from passcal.core.tables import State

__all__ = ["decode"]

STEPS = 20  # decode passes that a retraction makes room for


@jit
def decode(state: State, rank: Any, s: Any, k: int, starts: float) -> None:
    """Add the decode rows: alone, or riding the prefill batch that is planned; the pass would start at this time."""
    before = rank.running
    if rank.most_flying > 1 and s.kind != NONE:
        drop_leavers(state, rank, k)
    leaving = before > rank.running
    if leaving and (s.rows > 0 or rank.running == 0):
        s.full = 0
    if rank.running == 0:
        return
    need = pages_needed(state, rank, s, k)
    if s.tree:
        radix.make_room(state, rank, s, need)
    if s.rows > 0:
        if need <= rank.free:  # else all sit the pass out (S11)
            ride(state, rank, s, k, starts)
            rank.running = 0
        return
    if need > rank.free and leaving:  # their KV is free after the pass in flight (S12)
        s.full = 0
        return
    if need > rank.free:
        retract(state, rank, s, k)
        if state.world[0].lost:
            return
    else:
        s.ratio = max(s.ratio - s.decay, s.least_ratio)
    if rank.running < before:
        s.full = 0
    ride(state, rank, s, k, starts)


@jit
def drop_leavers(state: State, rank: Any, k: int) -> None:
    """Rows whose token in flight is their last take no further row (S4)."""
    kept = 0
    for n in range(rank.running):
        i = state.running[k, n]
        life = state.sglang_lives[i]
        if life.launched == rank.number and state.sequences[i].generated + 1 >= life.limit:
            life.place = DROPPED
            continue
        state.running[k, kept] = i
        kept += 1
    rank.running = kept


@jit
def pages_needed(state: State, rank: Any, s: Any, k: int) -> int:
    """Tokens of the pages that one more token of every row needs (S12)."""
    if s.page == 1 and not rank.attaching:
        return rank.running
    need = 0
    for n in range(rank.running):
        if needs_page(s, state.sequences[state.running[k, n]]):
            need += s.page
    return need


@jit
def needs_page(s: Any, sequence: Any) -> bool:
    """Whether one more token of a sequence takes a page: what it holds is full."""
    return sequence.computed % s.page == 0 and sequence.computed >= sequence.held


@jit
def ride(state: State, rank: Any, s: Any, k: int, starts: float) -> None:
    """Every running request gets a row, and a slot for the token that it stores."""
    if s.tree:
        radix.make_room(state, rank, s, rank.running * s.page)
    context = 0
    for n in range(rank.running):
        i = state.running[k, n]
        sequence = state.sequences[i]
        if needs_page(s, sequence):
            rank.free -= s.page
        sequence.computed += 1
        context += sequence.computed
        if state.legs[i].admitted_ms < 0.0:
            state.legs[i].admitted_ms = starts
        add_row(state, rank, s, k, i)
    state.shape[0].decode_requests += rank.running
    state.shape[0].decode_kv_tokens += context


@jit
def retract(state: State, rank: Any, s: Any, k: int) -> None:
    """Send rows back to the queue until the others have the pages that they need (S13).

    One is left at least; not even that one where hand-offs that do not run yet hold what it lacks (D10).
    """
    if s.radix and not s.tree:
        state.world[0].lost = 1  # what a resumed prompt finds of itself depends on the tree
        return
    sort_running(state, rank, k)
    first, least = True, 0 if rank.staging > 0 else 1
    while rank.running > least:
        if not first:
            need = pages_needed(state, rank, s, k)
            if s.tree:
                radix.make_room(state, rank, s, need)
            if rank.free >= need:
                break
        first = False
        rank.running -= 1
        send_back(state, rank, s, state.running[k, rank.running])
    outputs, most = STEPS * rank.running, 1
    for n in range(rank.running):
        i = state.running[k, n]
        outputs += state.sequences[i].generated
        most += state.sglang_lives[i].limit
    s.ratio = min(1.0, outputs / most)


@jit
def sort_running(state: State, rank: Any, k: int) -> None:
    """Most outputs first, then shortest prompt, then as they stood."""
    for a in range(1, rank.running):
        i, b = state.running[k, a], a
        outputs, isl = state.sequences[i].generated, state.legs[i].isl
        while b > 0:
            j = state.running[k, b - 1]
            more = outputs - state.sequences[j].generated
            if more < 0 or (more == 0 and state.legs[j].isl <= isl):
                break
            state.running[k, b] = j
            b -= 1
        state.running[k, b] = i


@jit
def send_back(state: State, rank: Any, s: Any, i: int) -> None:
    """Request i loses its KV, but for the tree's share, and its token in flight, and goes to the tail of the queue."""
    sequence, life = state.sequences[i], state.sglang_lives[i]
    rank.free += kept_tokens(state, s, i) - state.nodes[life.leaf].end
    sequence.held = 0
    if s.tree:
        radix.grab(state, rank, s, life.leaf, -1)
        radix.make_room(state, rank, s, STEPS * rank.running)
    sequence.reached = max(sequence.reached, sequence.computed)
    sequence.computed, sequence.given, life.place, life.leaf = 0, 0, WAITING, life.root
    state.legs[i].preemptions += 1
    state.world[0].preemptions += 1
    rank.preempted += 1
    rank.resuming += 1
    rank.held_by = HELD_BLOCKS
    append(state, rank, i)
