"""From one stage to the next: asking for memory there, transfers, arrival (D1-D7).

ready --ask--> asking --grant--> queue --bounds--> latency --> flow --> arrived

Where the next stage reserves before this one starts (SGLang), a request asks when it comes, and joins this stage when it is granted. Everything
happens at the instant at which it is known: which worker a request goes to is decided when it asks.
"""

from typing import Any

from passcal.calendar.backends import let_go, reserve
from passcal.core import cycle
from passcal.core.compiled import jit
from passcal.core.fabric import ended, enqueue, next_moment, open_transfer, start
from passcal.core.hand import goes_on, hand_of, seat_is_free
from passcal.core.lists import put_last
from passcal.core.rank import LEFT, arrive, count_done, forget
from passcal.core.stage import choose
from passcal.core.tables import NOBODY, State
from passcal.core.tandem_tables import FIRST_DECODE, FIRST_DECODE_PASS, FIRST_PREFILL

__all__ = ["enter", "hand_over", "write_hand_offs"]


@jit
def enter(state: State, i: int, now: float) -> None:
    """Leg i comes to its stage: to a scheduler at once, or when the stage behind has memory for it (D6)."""
    world = state.world[0]
    at = i % world.stages
    if at < world.stages - 1 and state.hops[at].fresh and state.legs[i].isl == 0:  # nothing to encode
        forget(state, i)
        at, i = at + 1, i + 1
    k = choose(state, state.stages[at], i)
    if at < world.stages - 1 and state.hops[at].early and goes_on(state, i):
        ask(state, i, now)
    else:
        arrive(state, state.ranks[k], i)


@jit
def hand_over(state: State, now: float) -> None:
    """All that moves between stages at this instant, when the passes that end now have landed."""
    world = state.world[0]
    for n in range(world.leaving):
        i, upto = state.leaving[n, 0], state.leaving[n, 1]
        if upto != LEFT:
            if upto <= state.sequences[i].computed:  # one that was preempted by now has nothing to send (D4)
                send(state, i, upto, now)
        elif goes_on(state, i):
            go_on(state, i, now)
        else:
            complete(state, i, now)
    world.leaving = 0
    for k in range(len(state.ranks)):
        grant_freed(state, k, now)
    moved = True
    while moved:
        moved = False
        for h in range(len(state.hops)):
            if next_moment(state, state.hops[h]) <= now:
                moved = carry(state, h, now) or moved


@jit
def go_on(state: State, i: int, now: float) -> None:
    """This stage is done with leg i: what has not been sent is, and it asks for memory, if it has not yet."""
    hand = hand_of(state, i)
    hand.ready = 1
    send(state, i, 1 * state.legs[i].isl, now)
    if hand.open == 0:
        arrived(state, i, now)


@jit
def send(state: State, i: int, upto: int, now: float) -> None:
    """A transfer of the tokens up to this one that were not sent before; it waits for the grant, which leg i asks for with its first (D4, D6)."""
    hand, hop = hand_of(state, i), state.hops[i % state.world[0].stages]
    if not goes_on(state, i) or upto <= hand.sent:
        return
    t = open_transfer(state, i, upto - hand.sent)
    hand.sent = upto
    hand.open += 1
    if put_last(state.transfers, hand.staged_tail, t):
        hand.staged_head = t
    hand.staged_tail = t
    if hand.asked_ms < 0.0:
        ask(state, i, now)
    elif hand.granted_ms >= 0.0:
        release_staged(state, hop, hand, i)


@jit
def ask(state: State, i: int, now: float) -> None:
    """Leg i asks a rank of the next stage for memory; who asked first is granted first (D6, D10)."""
    world = state.world[0]
    hand_of(state, i).asked_ms = now
    k = choose(state, state.stages[i % world.stages + 1], i + 1)
    rank = state.ranks[k]
    if put_last(state.sequences, rank.asking_tail, i + 1):
        rank.asking_head = i + 1
    rank.asking_tail = i + 1
    grant(state, k, now)


@jit
def grant(state: State, k: int, now: float) -> None:
    """Give memory to those who ask rank k, in order, while it lasts and nobody there waits to resume (D6)."""
    rank = state.ranks[k]
    rank.freed = 0
    while rank.asking_head != NOBODY:
        i = rank.asking_head
        fresh = state.hops[i % state.world[0].stages - 1].fresh
        if not fresh and not reserve(state, k, i):
            return
        rank.asking_head = state.sequences[i].after
        if rank.asking_head == NOBODY:
            rank.asking_tail = NOBODY
        rank.staging += 1 - fresh
        granted(state, i - 1, now)


@jit
def granted(state: State, i: int, now: float) -> None:
    """There is memory for leg i at the next stage: its transfers are ready, or it may begin here."""
    hand, hop = hand_of(state, i), state.hops[i % state.world[0].stages]
    hand.granted_ms = now
    if hop.early:
        state.legs[i].visible_ms = now
        arrive(state, state.ranks[state.legs[i].engine], i)
    release_staged(state, hop, hand, i)


@jit
def release_staged(state: State, hop: Any, hand: Any, i: int) -> None:
    """The transfers of leg i that waited for the grant are ready, in order."""
    here, there = state.ranks[state.legs[i].engine], state.ranks[state.legs[i + 1].engine]
    while hand.staged_head != NOBODY:
        t = 1 * hand.staged_head
        hand.staged_head = state.transfers[t].after
        transfer = state.transfers[t]
        transfer.source = (here.index - state.stages[here.stage].first) // here.width
        transfer.sink = (there.index - state.stages[there.stage].first) // there.width
        enqueue(state, hop, t)
    hand.staged_tail = NOBODY


@jit
def carry(state: State, h: int, now: float) -> bool:
    """Start and end transfers of a hop at this instant; whether any ended, so that more may start."""
    hop = state.hops[h]
    start(state, hop, now)
    t = ended(state, hop, now)
    some = t != NOBODY
    while t != NOBODY:
        transfer = state.transfers[t]
        i, after = 1 * transfer.leg, 1 * transfer.after
        transfer.after, state.world[0].spare_transfer = state.world[0].spare_transfer, t
        hand = hand_of(state, i)
        hand.open -= 1
        if hand.ready and hand.open == 0:
            arrived(state, i, now)
        t = after
    return some


@jit
def arrived(state: State, i: int, now: float) -> None:
    """All of leg i is at the next stage: what was held here is free, and the scheduler there gets it."""
    hand, leg = hand_of(state, i), state.legs[i + 1]
    hand.end_ms = now
    if hand.owed:
        k = 1 * state.legs[i].engine
        hand.owed = 0
        let_go(state, k, i)
        seat_is_free(state.ranks[k])
    leg.visible_ms = now
    at, world, k = i % state.world[0].stages, state.world[0], 1 * leg.engine
    rank = state.ranks[k]
    if at == world.stages - 2 and state.hops[at].first_token == FIRST_DECODE and leg.osl == 1:
        leg.admitted_ms = now
        rank.staging -= 1
        rank.outstanding -= 1
        rank.tokens -= leg.isl
        let_go(state, k, i + 1)
        forget(state, i + 1)
        complete(state, i + 1, now)
        grant_freed(state, k, now)
    elif at + 1 < world.stages - 1 and state.hops[at + 1].early and goes_on(state, i + 1):
        ask(state, i + 1, now)
    else:
        arrive(state, rank, i + 1)


@jit
def grant_freed(state: State, k: int, now: float) -> None:
    """Memory that came free on rank k at this instant is given to those who ask for it."""
    if state.ranks[k].freed:
        grant(state, k, now)


@jit
def complete(state: State, i: int, now: float) -> None:
    """Leg i was its request's last: the request is done, and what its legs saw is written down."""
    world = state.world[0]
    r, prefill = i // world.stages, i - i % world.stages + world.stages - 2
    request, legs, first = state.requests[r], state.legs, r * world.stages
    if legs[first].admitted_ms < 0.0:  # it had nothing to encode
        first += 1
    request.done_ms = now
    request.engine, request.admitted_ms = legs[first].engine, legs[first].admitted_ms
    request.cached, request.preemptions = legs[prefill + state.hops[world.stages - 2].fresh].cached, 0
    for j in range(first, i + 1):
        request.preemptions += legs[j].preemptions
    where = state.hops[world.stages - 2].first_token
    if where == FIRST_PREFILL:
        request.first_ms = legs[prefill].first_ms
    elif where == FIRST_DECODE_PASS:
        request.first_ms = legs[prefill + 1].first_ms
    else:
        request.first_ms = legs[prefill + 1].admitted_ms
    if i == prefill:
        forget(state, prefill + 1)
    count_done(state, r)


@jit
def write_hand_offs(state: State, out: Any, n: int) -> int:
    """Write what is between the stages as numbers, times relative to now and bytes as the time that they take alone; returns the next position."""
    for k in range(len(state.ranks)):
        rank = state.ranks[k]
        out[n], out[n + 1], out[n + 2], out[n + 3] = rank.staging, rank.resuming, rank.keeping, rank.handed
        n = cycle.write_list(state, rank.handed_head, False, out, n + 4)
        n = cycle.write_list(state, rank.asking_head, False, out, n)
    for h in range(len(state.hops)):
        hop = state.hops[h]
        for e in range(hop.first_end, hop.first_end + hop.sources):
            n = write_queue(state, hop, state.ends[e].head, out, n)
        n = write_queue(state, hop, hop.latent_head, out, n)
        for p in range(hop.first_pair, hop.first_pair + hop.sources * hop.sinks):
            pair = state.pairs[p]
            out[n] = pair.flows
            n += 1
            if pair.flows > 0:
                n = write_heap(state, hop, pair, out, n)
    return n


@jit
def write_queue(state: State, hop: Any, t: int, out: Any, n: int) -> int:
    """Transfers in a list."""
    while t != NOBODY:
        transfer = state.transfers[t]
        out[n], out[n + 1] = transfer.sink, transfer.flows_ms - state.world[0].now
        n = write_transfer(state, hop, transfer, transfer.bytes, out, n + 2)
        t = transfer.after
    return n


@jit
def write_heap(state: State, hop: Any, pair: Any, out: Any, n: int) -> int:
    """Flows of a pair, each above those below it; the list of those to visit goes through their `after`."""
    t: int = 1 * pair.top
    state.transfers[t].after = NOBODY
    while t != NOBODY:
        transfer = state.transfers[t]
        after = 1 * transfer.after
        left = transfer.mark - pair.served - pair.rate * (state.world[0].now - hop.clock_ms)
        n = write_transfer(state, hop, transfer, left, out, n)
        for child in (transfer.right, transfer.left):
            if child != NOBODY:
                state.transfers[child].after = after
                after = child
        t = after
    return n


@jit
def write_transfer(state: State, hop: Any, transfer: Any, left: float, out: Any, n: int) -> int:
    """What is left of a transfer, and whose it is."""
    leg = state.legs[transfer.leg + 1]
    out[n], out[n + 1], out[n + 2] = left / hop.capacity, leg.isl, leg.osl
    return n + 3
