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
        rank.tokens += state.requests[i].isl


@jit
def choose(state: State, i: int) -> int:
    """The rank that request i goes to: a worker by the router, then one of its ranks."""
    world, request = state.world[0], state.requests[i]
    if world.routing == LEAST_LOADED:
        return least_loaded(state, request.pinned)
    if world.routing == PREFIX_AFFINITY and request.group >= 0 and state.homes[request.group] != NOBODY:
        home = state.homes[request.group]
        return home if request.pinned < 0 else home // world.width * world.width + request.pinned
    turn = world.turn
    world.turn = (turn + 1) % len(state.ranks)
    first = turn % world.workers * world.width
    if request.pinned >= 0:
        k = first + request.pinned
    elif state.ranks[0].lightest:
        k = lightest(state, first)
    else:
        k = first + turn // world.workers % world.width
    if world.routing == PREFIX_AFFINITY and request.group >= 0:
        state.homes[request.group] = k
    return k


@jit
def least_loaded(state: State, pinned: int) -> int:
    """The rank with the fewest requests, of those that a pinned request may go to; where ranks are chosen by tokens, the worker's lightest."""
    width = state.world[0].width
    whole = state.ranks[0].lightest > 0 and pinned < 0
    best, fewest = 0, -1
    for k in range(len(state.ranks)):
        if (whole and k % width > 0) or (pinned >= 0 and k % width != pinned):
            continue
        load = 0
        for j in range(k, k + (width if whole else 1)):
            load += state.ranks[j].outstanding
        if fewest < 0 or load < fewest:
            best, fewest = k, load
    return lightest(state, best) if whole else best


@jit
def lightest(state: State, first: int) -> int:
    """The rank of a worker with the fewest prompt tokens that are not done, then with the fewest requests (T7)."""
    best = first
    for k in range(first + 1, first + state.world[0].width):
        rank, other = state.ranks[k], state.ranks[best]
        if rank.tokens < other.tokens or (rank.tokens == other.tokens and rank.outstanding < other.outstanding):
            best = k
    return best
