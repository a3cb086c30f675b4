"""A worker: ranks in lockstep (E1), and its passes in flight."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["align", "landed", "launched", "may_start", "plans_again", "plans_first"]


@jit
def may_start(state: State, rank: Any) -> bool:
    """Whether the group could take another pass when this round of its planning began (E1)."""
    leader = state.ranks[rank.leader]
    if rank.index == rank.leader:
        leader.open = leader.flying == 0 or not leader.dry
        for k in range(rank.leader, rank.leader + rank.width):
            if state.ranks[k].flying >= rank.most_flying:
                leader.open = 0
    return leader.open > 0


@jit
def align(state: State, first: int) -> None:
    """The ranks of a worker have planned: those that launched end together, with the slowest; an idle one waits (E1)."""
    world, leader = state.world[0], state.ranks[first]
    end, busy = world.now, launched(state, first)
    for k in range(first, first + leader.width):
        rank = state.ranks[k]
        if not rank.dry:
            end = max(end, rank.end_ms)
    leader.step = leader.step + 1 if busy else 0
    if not busy:
        return
    for k in range(first, first + leader.width):
        rank = state.ranks[k]
        rank.waited, rank.idle, rank.end_ms = rank.dry, 0, end
        if rank.dry:
            rank.start_ms = world.now
            continue
        state.runs[rank.row].end_ms = end
        if rank.flying == 1:
            rank.land_ms = end


@jit
def launched(state: State, first: int) -> bool:
    """Whether a rank of the group launched a pass in this round."""
    for k in range(first, first + state.ranks[first].width):
        if not state.ranks[k].dry:
            return True
    return False


@jit
def plans_again(state: State, first: int) -> bool:
    """Whether the group plans once more at this instant: an empty round drains (V12) or moved something, or a second pass may fly (S1, T5)."""
    leader, busy = state.ranks[first], launched(state, first)
    if leader.nulls and busy:
        return leader.flying < leader.most_flying
    again = not busy and leader.lookahead and not leader.draining
    for k in range(first, first + state.ranks[first].width):
        state.ranks[k].draining = again
    for k in range(first, first + state.ranks[first].width):
        again = again or (not busy and state.ranks[k].again > 0)
    return again


@jit
def plans_first(rank: Any) -> bool:
    """Whether the loop has a round to plan before it looks at the pass in flight, which then took no time (S19)."""
    return rank.selecting and rank.flying == 1 and not rank.dry


@jit
def landed(rank: Any) -> None:
    """The oldest pass in flight is over; the next one, if any, is the oldest now."""
    rank.flying -= 1
    rank.dry = 0
    if rank.flying > 0:
        rank.land_ms, rank.land_row = rank.end_ms, rank.row
