"""One scheduler: its queues, its seats, and what landing a pass does to its sequences.

inbox --visible--> arrived --horizon--> waiting --plan--> running or crowd --land--> gone
                                          ^                  |
                                          +--- preempted ----+
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = [
    "HELD_BLOCKS",
    "HELD_BUDGET",
    "HELD_NOT",
    "HELD_SEATS",
    "append",
    "emit",
    "forget",
    "intake",
    "leave",
    "may_send",
    "pop",
    "post",
    "push_front",
    "seats_taken",
]

HELD_NOT, HELD_SEATS, HELD_BUDGET, HELD_BLOCKS = 0, 1, 2, 3


@jit
def post(state: State, i: int) -> None:
    """Put request i in the inbox: by visibility, ties in dispatch order."""
    world, sequences, visible = state.world[0], state.sequences, state.requests[i].visible_ms
    at = world.inbox_tail
    while at != NOBODY and state.requests[at].visible_ms > visible:
        at = sequences[at].before
    after = world.inbox_head if at == NOBODY else sequences[at].after
    sequences[i].before, sequences[i].after = at, after
    if at == NOBODY:
        world.inbox_head = i
    else:
        sequences[at].after = i
    if after == NOBODY:
        world.inbox_tail = i
    else:
        sequences[after].before = i


@jit
def may_send(world: Any) -> bool:
    """Whether a lane has a turn to send, and may."""
    return world.thinking > 0 and world.open < world.most_open


@jit
def intake(state: State, rank: Any, horizon: float) -> None:
    """Queue what arrived up to the horizon."""
    while rank.arrived_head != NOBODY and state.requests[rank.arrived_head].visible_ms <= horizon:
        i = rank.arrived_head
        rank.arrived_head = state.sequences[i].after
        if rank.arrived_head == NOBODY:
            rank.arrived_tail = NOBODY
        append(state, rank, i)


@jit
def append(state: State, rank: Any, i: int) -> None:
    """Put sequence i at the tail of the waiting queue."""
    state.sequences[i].after = NOBODY
    if rank.waiting_tail == NOBODY:
        rank.waiting_head = i
    else:
        state.sequences[rank.waiting_tail].after = i
    rank.waiting_tail = i
    rank.waiting += 1


@jit
def push_front(state: State, rank: Any, i: int) -> None:
    """Put sequence i at the head of the waiting queue."""
    state.sequences[i].after = rank.waiting_head
    rank.waiting_head = i
    if rank.waiting_tail == NOBODY:
        rank.waiting_tail = i
    rank.waiting += 1


@jit
def pop(state: State, rank: Any) -> int:
    """Take the head of the waiting queue out of it."""
    i = rank.waiting_head
    rank.waiting_head = state.sequences[i].after
    if rank.waiting_head == NOBODY:
        rank.waiting_tail = NOBODY
    rank.waiting -= 1
    return i


@jit
def seats_taken(rank: Any) -> int:
    """Sequences that hold a seat, those whose end an async plan cannot see yet included."""
    return rank.running + rank.crowd + rank.lates


@jit
def forget(state: State, i: int) -> None:
    """Where no log is kept, the row of a finished request is used again, unless it was logged before."""
    world = state.world[0]
    if not world.logging and i >= world.first_open:
        state.sequences[i].after = world.spare
        world.spare = i


@jit
def leave(state: State, rank: Any, i: int) -> None:
    """Sequence i has emitted its last token at the end of the pass that lands."""
    world = state.world[0]
    state.requests[i].done_ms = rank.land_ms
    world.done += 1
    rank.outstanding -= 1
    rank.tokens -= state.requests[i].isl
    state.gone[world.gone] = i
    world.gone += 1


@jit
def emit(state: State, rank: Any, i: int, number: int) -> int:
    """Sequence i emits a token at the end of the pass that lands; 1 if its token before came one pass earlier.

    A resumed row may emit in a pass of chunks alone, which pauses all others, so its gap is listed.
    """
    s, request = state.sequences[i], state.requests[i]
    s.generated += 1
    if rank.launching:  # it is logged when it leaves (V14)
        s.last_pass = number
        return 0
    standard = 0
    if s.generated == 1:
        request.first_ms, request.first_pass = rank.land_ms, number
    elif s.last_pass == number - 1 and not rank.selecting and state.runs[rank.land_row].decode_requests > 0:
        standard = 1
    else:
        world = state.world[0]
        stall = state.stalls[world.stalls]
        stall.request, stall.from_pass, stall.to_pass = i, s.last_pass, number
        stall.gap_ms, stall.end_ms = rank.land_ms - s.last_ms, rank.land_ms
        world.stalls += world.logging
    s.last_pass, s.last_ms = number, rank.land_ms
    return standard
