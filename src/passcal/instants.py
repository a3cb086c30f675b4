"""When the loop has something to do next."""

from passcal.calendar.launch import next_out
from passcal.core.compiled import jit
from passcal.core.fabric import next_moment
from passcal.core.stage import LEAST_LOADED
from passcal.core.tables import NEVER, NOBODY, State
from passcal.sources.closed import next_birth
from passcal.sources.sessions import next_turn

__all__ = ["next_arrival", "next_elsewhere", "next_event"]


@jit
def next_event(state: State, apart: int | None) -> float:
    """The next instant at which anything happens: a pass ends, a loop comes round, a client starts, or an arrival wakes an idle engine."""
    when = NEVER
    looks = state.stages[0].routing == LEAST_LOADED or state.ranks[0].lightest > 0  # a router that does is there then
    idle = looks or apart is not None
    for k in range(len(state.ranks)):
        rank = state.ranks[k]
        if rank.flying > 0:
            when = min(when, rank.land_ms)
        else:
            idle = True
        if rank.ready_ms > state.world[0].now:
            when = min(when, rank.ready_ms)
        if rank.launching:
            when = min(when, next_out(state, k))
    if apart is not None:
        when = min(when, next_hand_off(state))
    return min(when, next_arrival(state)) if idle else when


@jit
def next_hand_off(state: State) -> float:
    """The next instant at which a transfer moves on, or memory is granted that a plan set free."""
    when = NEVER
    for h in range(len(state.hops)):
        when = min(when, next_moment(state, state.hops[h]))
    for k in range(len(state.ranks)):
        if state.ranks[k].freed and state.ranks[k].asking_head != NOBODY:
            when = state.world[0].now
    return when


@jit
def next_elsewhere(state: State, k: int) -> float:
    """The next instant at which anything happens but on rank k."""
    when = min(next_arrival(state), next_hand_off(state))
    for j in range(len(state.ranks)):
        if j != k and state.ranks[j].flying > 0:
            when = min(when, state.ranks[j].land_ms)
    return when


@jit
def next_arrival(state: State) -> float:
    """The next instant at which a request may become visible."""
    world = state.world[0]
    when = next_birth(world) if world.closed else next_turn(state)
    if world.inbox_head != NOBODY:
        when = min(when, state.legs[world.inbox_head].visible_ms)
    return when
