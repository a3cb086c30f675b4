"""A worker: ranks in lockstep (E1), and its passes in flight."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["align", "landed", "may_start"]


@jit
def may_start(state: State, rank: Any) -> bool:
    """Whether no rank of the group had a pass in flight when this instant's planning began (E1)."""
    leader = state.ranks[rank.leader]
    if rank.index == rank.leader:
        leader.open = 1
        for k in range(rank.leader, rank.leader + state.world[0].width):
            if state.ranks[k].flying > 0:
                leader.open = 0
    return leader.open > 0


@jit
def align(state: State, first: int) -> None:
    """The ranks of a worker that starts a pass end it together, with the slowest; an idle one waits (E1)."""
    world, leader = state.world[0], state.ranks[first]
    if not leader.open:
        return
    end, busy = world.now, False
    for k in range(first, first + world.width):
        if state.ranks[k].flying > 0:
            end, busy = max(end, state.ranks[k].end_ms), True
    again = not busy and leader.lookahead and not leader.draining
    for k in range(first, first + world.width):
        state.ranks[k].draining = again
    if again:
        world.cursor = first
        return
    leader.step = leader.step + 1 if busy else 0
    if not busy:
        return
    for k in range(first, first + world.width):
        rank = state.ranks[k]
        rank.start_ms, rank.end_ms, rank.idle = world.now, end, 0
        rank.waited = rank.flying == 0
        if rank.flying > 0:
            rank.land_ms = end
            state.runs[rank.row].end_ms = end


@jit
def landed(rank: Any) -> None:
    """The oldest pass in flight is over; the next one, if any, is the oldest now."""
    rank.flying -= 1
    rank.dry = 0
    if rank.flying > 0:
        rank.land_ms, rank.land_row = rank.end_ms, rank.row
