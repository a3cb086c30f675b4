"""A pool of workers behind a router. A request is given to a rank at the instant at which it becomes visible (E4), or when it asks (D7)."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["LEAST_LOADED", "PREFIX_AFFINITY", "ROUND_ROBIN", "choose", "next_visible"]

ROUND_ROBIN, LEAST_LOADED, PREFIX_AFFINITY = 0, 1, 2


@jit
def next_visible(state: State, now: float) -> int:
    """Take the request out of the inbox that is the first to be visible, if it is by now; its first leg, or nobody."""
    world = state.world[0]
    i: int = 1 * world.inbox_head
    if i == NOBODY or state.legs[i].visible_ms > now:
        return NOBODY
    world.inbox_head = state.sequences[i].after
    if world.inbox_head == NOBODY:
        world.inbox_tail = NOBODY
    else:
        state.sequences[world.inbox_head].before = NOBODY
    return i


@jit
def choose(state: State, stage: Any, i: int) -> int:
    """The rank of a stage that leg i goes to: a worker by the router, then one of its ranks."""
    k = pick(state, stage, i) if stage.ranks > 1 else 1 * stage.first
    rank, leg = state.ranks[k], state.legs[i]
    leg.engine = k
    rank.outstanding += 1
    rank.tokens += leg.isl
    return k


@jit
def pick(state: State, stage: Any, i: int) -> int:
    """Which of several."""
    leg = state.legs[i]
    if stage.routing == LEAST_LOADED:
        return least_loaded(state, stage, leg.pinned)
    if stage.routing == PREFIX_AFFINITY and leg.group >= 0 and state.homes[leg.group] != NOBODY:
        home = state.homes[leg.group]
        return home if leg.pinned < 0 else home // stage.width * stage.width + leg.pinned
    turn = stage.turn
    stage.turn = (turn + 1) % stage.ranks
    first = stage.first + turn % stage.workers * stage.width
    if leg.pinned >= 0:
        k = first + leg.pinned
    elif state.ranks[first].lightest:
        k = lightest(state, first)
    else:
        k = first + turn // stage.workers % stage.width
    if stage.routing == PREFIX_AFFINITY and leg.group >= 0:
        state.homes[leg.group] = k
    return k


@jit
def least_loaded(state: State, stage: Any, pinned: int) -> int:
    """The rank with the fewest requests, of those that a pinned request may go to; where ranks are chosen by tokens, the worker's lightest."""
    width = stage.width
    whole = state.ranks[stage.first].lightest > 0 and pinned < 0
    best, fewest = 0, -1
    for k in range(stage.first, stage.first + stage.ranks):
        place = (k - stage.first) % width
        if (whole and place > 0) or (pinned >= 0 and place != pinned):
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
    for k in range(first + 1, first + state.ranks[first].width):
        rank, other = state.ranks[k], state.ranks[best]
        if rank.tokens < other.tokens or (rank.tokens == other.tokens and rank.outstanding < other.outstanding):
            best = k
    return best
