"""run(): the one loop. A pass is planned, priced and committed; a backend says only how it is planned.

Order of events at one instant: passes that end now land, clients and arrivals act, idle engines start a pass. The loop runs in slices and
says why it stopped; everything that it knows is in the tables, so it goes on from there.
"""

from passcal.calendar.backends import plan
from passcal.core import cycle
from passcal.core.compiled import entry, jit
from passcal.core.rank import land, route
from passcal.core.tables import NEVER, NOBODY, State
from passcal.sources.closed import born, next_birth, send
from passcal.timing.linear import decode_price, price

__all__ = ["ASK", "CYCLE", "DONE", "GROW", "SLICE", "STALLED", "run"]

DONE, SLICE, GROW, ASK, CYCLE, STALLED = 0, 1, 2, 3, 4, 5


@entry
def run(state: State) -> int:
    """Advance until something stops the loop; returns why."""
    world, ranks = state.world[0], state.ranks
    while True:
        while world.cursor < len(ranks):  # plan the engines that are free at this instant
            rank = ranks[world.cursor]
            if not rank.flying:
                if world.asked:
                    world.asked = 0
                    launch(state, world.cursor, world.answer_ms)
                elif plan(state, world.cursor, world.now) == 0:
                    rank.idle = 1
                else:
                    rank.idle = 0
                    shape(state, world.cursor)
                    form = state.forms[rank.form]
                    if form.kind == 0:
                        world.asked = 1
                        return ASK
                    launch(state, world.cursor, price(form, state.captured[rank.form], state.shape[0]))
                    repeat(state, world.cursor)
            world.cursor += 1
        if world.done >= world.until_done:
            return DONE
        if world.passes >= world.until_pass:
            return SLICE
        if full(state):
            return GROW
        now = next_event(state)
        if now == NEVER:
            return STALLED
        world.now, world.gone, world.cursor = now, 0, 0
        for k in range(len(ranks)):
            if ranks[k].flying and ranks[k].end_ms <= now:
                land(state, k)
        if world.closed:
            if world.unborn > 0:
                born(state, now)
            for _ in range(world.gone):
                send(state, now)
        route(state, now)
        if world.gone > 0:
            if world.logging:
                while world.first_open < world.rows and state.requests[world.first_open].done_ms >= 0.0:
                    world.first_open += 1
                if world.first_open >= world.until_row:
                    return DONE
            if world.watch and world.unborn == 0 and cycle.repeats(state):
                return CYCLE


@jit
def next_event(state: State) -> float:
    """The next instant at which anything happens: a pass ends, a client starts, or an arrival wakes an idle engine."""
    when, idle = NEVER, False
    for k in range(len(state.ranks)):
        rank = state.ranks[k]
        if rank.flying:
            when = min(when, rank.end_ms)
        else:
            idle = True
    return min(when, next_arrival(state)) if idle else when


@jit
def next_arrival(state: State) -> float:
    """The next instant at which a request may become visible."""
    world = state.world[0]
    when = next_birth(world) if world.closed else NEVER
    if world.inbox_head != NOBODY:
        when = min(when, state.requests[world.inbox_head].visible_ms)
    return when


@jit
def full(state: State) -> bool:
    """Whether a table could overflow before the loop looks again."""
    world = state.world[0]
    seats = state.running.size
    return (
        world.runs + len(state.ranks) + 1 > len(state.runs)
        or world.stalls + seats > len(state.stalls)
        or (world.closed and world.rows + min(world.limit - world.sent, world.unborn + seats) > len(state.requests))
    )


@jit
def shape(state: State, k: int) -> None:
    """Sum up the plan of rank k for its price; a row with one token and its whole prompt computed is a decode row."""
    rank, sums = state.ranks[k], state.shape[0]
    sums.decode_requests, sums.decode_kv_tokens = rank.crowd, rank.crowd_kv
    sums.prefill_requests, sums.prefill_tokens, sums.prefill_kv_tokens = 0, 0, 0
    sums.prefill_cross, sums.prefill_squares, sums.prefill_partial = 0, 0, 0
    for j in range(rank.running):
        i = state.running[k, j]
        s, request = state.sequences[i], state.requests[i]
        new, past = s.given, s.computed
        if new == 0:
            continue
        if new == 1 and past >= request.isl:
            sums.decode_requests += 1
            sums.decode_kv_tokens += past + 1
            continue
        state.chunks[sums.prefill_requests, 0], state.chunks[sums.prefill_requests, 1] = new, past
        sums.prefill_requests += 1
        sums.prefill_tokens += new
        sums.prefill_kv_tokens += past
        sums.prefill_cross += new * past
        sums.prefill_squares += new * new
        if new != request.isl - request.prefix or request.preemptions > 0:
            sums.prefill_partial += 1


@jit
def launch(state: State, k: int, duration: float) -> None:
    """Commit the plan of rank k to the clock and to the log."""
    world, rank, sums = state.world[0], state.ranks[k], state.shape[0]
    rank.number += 1
    rank.flying, rank.start_ms, rank.end_ms = 1, world.now, world.now + duration
    rank.row = world.runs
    world.runs += world.logging
    world.passes += 1
    row = state.runs[rank.row]
    row.start_ms, row.end_ms, row.number, row.count, row.engine = rank.start_ms, rank.end_ms, rank.number, 1, k
    row.prefill_requests, row.prefill_tokens = sums.prefill_requests, sums.prefill_tokens
    row.prefill_kv_tokens = sums.prefill_kv_tokens
    row.decode_requests, row.decode_kv_tokens = sums.decode_requests, sums.decode_kv_tokens
    row.held_by, row.seats = rank.held_by, rank.running + rank.crowd
    row.blocks = rank.usable - rank.free if rank.memory else 0
    for j in range(rank.running):
        request = state.requests[state.running[k, j]]
        if request.admitted_ms < 0.0 and state.sequences[state.running[k, j]].given > 0:
            request.admitted_ms = rank.start_ms


@jit
def repeat(state: State, k: int) -> None:
    """While the plan of rank k stands, run it again: only the crowd decodes, nobody finishes, nothing can be admitted."""
    rank = state.ranks[k]
    if rank.running > 0 or rank.lates > 0 or rank.crowd == 0 or len(state.ranks) > 1:
        return
    world, row, form = state.world[0], state.runs[rank.row], state.forms[rank.form]
    captured = state.captured[rank.form]
    news = next_arrival(state) if rank.waiting == 0 else NEVER
    if rank.arrived_head != NOBODY:
        return
    first, last = rank.number, rank.number + world.until_pass - world.passes
    start, end, context = rank.start_ms, rank.end_ms, rank.crowd_kv
    ring = state.bucket_head.shape[1]
    number, rows = rank.number, rank.crowd
    while number < last and state.bucket_head[k, number % ring] == NOBODY and news > (start if rank.lookahead else end):
        if rank.memory:
            need = state.residues[k, (number + 1) % rank.block_size]
            if need > rank.free:
                break
            rank.free -= need
        number += 1
        context += rows
        start = end
        end = start + decode_price(form, captured, rows, context)
    repeated = number - first
    rank.number, rank.start_ms, rank.end_ms, rank.crowd_kv = number, start, end, context
    world.passes += repeated
    row.count += repeated
    row.end_ms = end
    if rank.memory:
        row.blocks = rank.usable - rank.free
