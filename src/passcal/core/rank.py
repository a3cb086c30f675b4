"""One scheduler: its queues, its seats, and what landing a pass does to its sequences.

inbox --visible--> arrived --horizon--> waiting --plan--> running or crowd --land--> gone
                                          ^                  |
                                          +--- preempted ----+

Where requests come with their KV (`RANK.attaching`), arrivals go to `handed` and wait there for a seat; `waiting` has those that were preempted.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.lists import put_last
from passcal.core.tables import NOBODY, State

__all__ = [
    "HELD_BLOCKS",
    "HELD_BUDGET",
    "HELD_NOT",
    "HELD_SEATS",
    "LEFT",
    "append",
    "arrive",
    "attach",
    "count_done",
    "emit",
    "forget",
    "free_seats",
    "intake",
    "leave",
    "may_send",
    "pop",
    "post",
    "push_front",
    "seats_taken",
    "send_chunk",
]

HELD_NOT, HELD_SEATS, HELD_BUDGET, HELD_BLOCKS = 0, 1, 2, 3
LEFT = -1  # instead of a token, in `State.leaving`: the leg has ended


@jit
def post(state: State, i: int) -> None:
    """Put request i in the inbox: by visibility, ties in dispatch order."""
    world, sequences, visible = state.world[0], state.sequences, state.legs[i].visible_ms
    at = world.inbox_tail
    while at != NOBODY and state.legs[at].visible_ms > visible:
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
def arrive(state: State, rank: Any, i: int) -> None:
    """Sequence i reaches the scheduler, which looks at it when its horizon has come there."""
    if put_last(state.sequences, rank.arrived_tail, i):
        rank.arrived_head = i
    rank.arrived_tail = i


@jit
def intake(state: State, rank: Any, horizon: float) -> None:
    """Queue what arrived up to the horizon."""
    while rank.arrived_head != NOBODY and state.legs[rank.arrived_head].visible_ms <= horizon:
        i = rank.arrived_head
        rank.arrived_head = state.sequences[i].after
        if rank.arrived_head == NOBODY:
            rank.arrived_tail = NOBODY
        if rank.attaching:
            append_handed(state, rank, i)
        else:
            append(state, rank, i)


@jit
def append_handed(state: State, rank: Any, i: int) -> None:
    """Sequence i, whose KV is here, waits for a seat."""
    if put_last(state.sequences, rank.handed_tail, i):
        rank.handed_head = i
    rank.handed_tail = i
    rank.handed += 1


@jit
def attach(state: State, rank: Any, k: int) -> int:
    """The hand-off that has waited longest takes a seat, behind the running ones."""
    i = rank.handed_head
    rank.handed_head = state.sequences[i].after
    if rank.handed_head == NOBODY:
        rank.handed_tail = NOBODY
    rank.handed -= 1
    rank.staging -= 1
    state.sequences[i].last_pass = NOBODY
    state.running[k, rank.running] = i
    rank.running += 1
    return i


@jit
def append(state: State, rank: Any, i: int) -> None:
    """Put sequence i at the tail of the waiting queue."""
    if put_last(state.sequences, rank.waiting_tail, i):
        rank.waiting_head = i
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
    """Sequences in a seat, those whose end an async plan cannot see yet included."""
    return rank.running + rank.crowd + rank.lates


@jit
def free_seats(rank: Any) -> int:
    """Seats that nobody is in and that no transfer keeps (D5)."""
    return rank.max_seats - rank.keeping - seats_taken(rank)


@jit
def forget(state: State, i: int) -> None:
    """Where no log is kept, the rows of a finished request are used again, unless it was logged before; all its legs must be over."""
    world = state.world[0]
    request, first = i, i
    if world.stages > 1:
        request, first = i // world.stages, i - i % world.stages
        hand = state.hands[request * (world.stages - 1)]
        hand.left += 1
        if hand.left < world.stages:
            return
    if not world.logging and request >= world.first_open:
        state.sequences[first].after = world.spare
        world.spare = request


@jit
def leave(state: State, rank: Any, i: int) -> None:
    """Sequence i has emitted its last token here at the end of the pass that lands; among several stages, `hand_offs` says what follows."""
    world, leg = state.world[0], state.legs[i]
    leg.done_ms = rank.land_ms
    rank.outstanding -= 1
    rank.tokens -= leg.isl
    if world.stages > 1:
        state.leaving[world.leaving, 0], state.leaving[world.leaving, 1] = i, LEFT
        world.leaving += 1
        return
    count_done(state, i)


@jit
def count_done(state: State, request: int) -> None:
    """A request is done for its client, who acts at this instant."""
    world = state.world[0]
    world.done += 1
    state.gone[world.gone] = request
    world.gone += 1


@jit
def send_chunk(state: State, i: int, upto: int) -> None:
    """The landing pass has computed a chunk of prompt i, up to this token, which is sent now (D4)."""
    world = state.world[0]
    state.leaving[world.leaving, 0], state.leaving[world.leaving, 1] = i, upto
    world.leaving += 1


@jit
def emit(state: State, rank: Any, i: int, number: int) -> int:
    """Sequence i emits a token at the end of the pass that lands; 1 if its token before came one pass earlier.

    A resumed row may emit in a pass of chunks alone, which pauses all others, so its gap is listed.
    """
    s, request = state.sequences[i], state.legs[i]
    s.generated += 1
    if rank.launching:  # it is logged when it leaves (V14)
        s.last_pass = number
        return 0
    standard = 0
    if request.first_ms < 0.0:
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
