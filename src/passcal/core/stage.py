"""A pool of workers behind a router. A request is given to a rank at the instant at which it becomes visible (E4)."""

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["LEAST_LOADED", "PREFIX_AFFINITY", "ROUND_ROBIN", "route"]

ROUND_ROBIN, LEAST_LOADED, PREFIX_AFFINITY = 0, 1, 2


@jit
def route(state: State, now: float) -> None:
    """Hand requests that are visible by now to their schedulers, in order of visibility."""
    world = state.world[0]
    while world.inbox_head != NOBODY and state.requests[world.inbox_head].visible_ms <= now:
        i = world.inbox_head
        world.inbox_head = state.sequences[i].after
        if world.inbox_head == NOBODY:
            world.inbox_tail = NOBODY
        else:
            state.sequences[world.inbox_head].before = NOBODY
        k = choose(state, i) if len(state.ranks) > 1 else 0
        rank = state.ranks[k]
        state.requests[i].engine = k
        state.sequences[i].after = NOBODY
        if rank.arrived_tail == NOBODY:
            rank.arrived_head = i
        else:
            state.sequences[rank.arrived_tail].after = i
        rank.arrived_tail = i
        rank.outstanding += 1


@jit
def choose(state: State, i: int) -> int:
    """The rank that request i goes to."""
    world, group = state.world[0], state.requests[i].group
    if world.routing == LEAST_LOADED:
        best = 0
        for k in range(len(state.ranks)):
            if state.ranks[k].outstanding < state.ranks[best].outstanding:
                best = k
        return best
    if world.routing == PREFIX_AFFINITY and group >= 0 and state.homes[group] != NOBODY:
        return state.homes[group]
    turn = world.turn
    world.turn = (turn + 1) % len(state.ranks)
    k = turn % world.workers * world.width + turn // world.workers % world.width
    if world.routing == PREFIX_AFFINITY and group >= 0:
        state.homes[group] = k
    return k
