"""What evicted sequences left in the free queue, counted, where no two sequences share a block (V9).

Only a sequence itself can hit what it left, so how many blocks of whom stand in a row is all that the queue need tell: `rank.blank` ones at
its front that nobody can hit; then, in order of eviction, each sequence's `registered` leading blocks and, `behind` them, more that nobody can
hit. A sequence's blocks return last one first, so the front takes its last ones first, and its leading ones are what is left.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["leave_behind", "reclaim", "take_front", "write"]


@jit
def take_front(state: State, rank: Any, count: int) -> None:
    """So many blocks leave the front of the queue."""
    rank.free -= count
    rank.blank -= count
    while rank.blank < 0:
        s = state.sequences[rank.remains_head]
        s.registered += rank.blank
        rank.blank = 0
        if s.registered <= 0:
            rank.blank = s.registered + s.behind
            s.registered = 0
            unlink(state, rank, s)


@jit
def leave_behind(state: State, rank: Any, i: int, hittable: bool) -> None:
    """Sequence i gives its blocks back: unregistered ones to the front of the queue, registered ones to its end; it may hit them if it comes again."""
    s = state.sequences[i]
    kept, tail = min(s.registered, s.held), rank.remains_tail
    rank.free += s.held
    rank.blank += s.held - kept
    s.held, s.registered = 0, 0
    if hittable and kept > 0:
        s.registered, s.behind, s.older, s.newer = kept, 0, tail, NOBODY
        if tail == NOBODY:
            rank.remains_head = i
        else:
            state.sequences[tail].newer = i
        rank.remains_tail = i
    elif tail == NOBODY:
        rank.blank += kept
    else:
        state.sequences[tail].behind += kept


@jit
def reclaim(state: State, rank: Any, i: int) -> None:
    """Sequence i, admitted again, holds what is left of its blocks."""
    s = state.sequences[i]
    if s.registered == 0:
        return
    s.held = s.registered
    rank.free -= s.held
    if s.older == NOBODY:
        rank.blank += s.behind
    else:
        state.sequences[s.older].behind += s.behind
    unlink(state, rank, s)


@jit
def unlink(state: State, rank: Any, s: Any) -> None:
    """Sequence s has nothing in the queue any more."""
    if s.older == NOBODY:
        rank.remains_head = s.newer
    else:
        state.sequences[s.older].newer = s.newer
    if s.newer == NOBODY:
        rank.remains_tail = s.older
    else:
        state.sequences[s.newer].older = s.older


@jit
def write(state: State, rank: Any, out: Any, n: int) -> int:
    """Write the queue as numbers from position n on, owners by their place in waiting; returns the next position."""
    place, i = 0, rank.waiting_head
    while i != NOBODY:
        state.sequences[i].slot = place
        place += 1
        i = state.sequences[i].after
    out[n] = rank.blank
    n += 1
    i = rank.remains_head
    while i != NOBODY:
        s = state.sequences[i]
        out[n], out[n + 1], out[n + 2] = s.slot, s.registered, s.behind
        n += 3
        i = s.newer
    return n
