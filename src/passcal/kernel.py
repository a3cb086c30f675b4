"""run(): the one loop. A pass is planned, priced and committed; a backend says only how it is planned.

Order of events at one instant: passes that end now land, clients and arrivals act, idle engines start a pass. The loop runs in slices and
says why it stopped; everything that it knows is in the tables, so it goes on from there.
"""

from typing import Any

from passcal.calendar.backends import land, plan, write_rank
from passcal.calendar.launch import come_out, next_decision
from passcal.calendar.packing import clear_shape
from passcal.core import cycle, remains
from passcal.core.compiled import entry, jit
from passcal.core.engine import align, landed, launched, may_start, plans_again, plans_first
from passcal.core.handle import handle
from passcal.core.rank import arrive as join
from passcal.core.rank import free_seats
from passcal.core.stage import choose, next_visible
from passcal.core.tables import NEVER, NOBODY, State
from passcal.hand_offs import enter, hand_over, write_hand_offs
from passcal.instants import next_arrival, next_elsewhere, next_event
from passcal.sources.closed import born, send
from passcal.sources.sessions import take_turns
from passcal.timing.linear import decode_price, price

__all__ = ["AGAIN", "ASK", "CYCLE", "DONE", "GROW", "SLICE", "STALLED", "run"]

DONE, SLICE, GROW, ASK, CYCLE, STALLED, AGAIN = 0, 1, 2, 3, 4, 5, 6


@entry
def run(tables: State, apart: int | None) -> int:
    """Advance until something stops the loop; returns why.

    `apart` is None where there is one stage: hand-offs are not even compiled then, which saves a fifth of the time that compiling takes.
    """
    return loop(handle(tables), apart)


@jit
def loop(state: State, apart: int | None) -> int:
    """Events in the order of time: what ends lands, clients and arrivals act, free engines start."""
    world = state.world[0]
    while True:
        while world.cursor < len(state.ranks):  # plan the engines that are free at this instant
            rank = state.ranks[world.cursor]
            if not start(state, rank, world.cursor, apart):
                return ASK
            if rank.width > 1 and world.cursor == rank.leader + rank.width:
                gather(state, 1 * rank.leader)
        if world.lost:
            return AGAIN
        if world.done >= world.until_done:
            return DONE
        if world.passes >= world.until_pass:
            return SLICE
        if full(state):
            return GROW
        now = next_event(state, apart)
        if now == NEVER:
            return STALLED
        world.now, world.gone, world.cursor = now, 0, 0
        for k in range(len(state.ranks)):
            rank = state.ranks[k]
            if rank.flying > 0 and rank.land_ms <= now and not plans_first(rank):
                land(state, k)
                landed(rank)
            if rank.launching:
                come_out(state, k, now)
        if apart is not None:
            hand_over(state, now)
        arrive(state, now, apart)
        if world.gone > 0:
            if world.logging and logged(state):
                return DONE
            if world.watch and world.unborn == 0 and repeats(state, apart):
                return CYCLE


@jit
def start(state: State, rank: Any, k: int, apart: int | None) -> bool:
    """Plan, price and launch what rank k may run now, then pass the cursor on; False: Python must price the plan first."""
    world = state.world[0]
    form = state.forms[rank.form]
    if rank.width > 1 and not world.asked and not may_start(state, rank):
        world.cursor += 1
        return True
    if apart is not None and sleeps(rank):
        world.cursor += 1
        return True
    if rank.flying == 0:
        rank.dry = 0
    while world.asked or (rank.flying < rank.most_flying and not rank.dry and rank.ready_ms <= world.now):
        if world.asked:
            world.asked = 0
            launch(state, rank, k, world.answer_ms)
            if rank.width > 1:
                break
            continue
        rank.again = 0
        rows = plan(state, k, world.now)
        if rows == 0 and rank.again and rank.width == 1:
            continue
        if rows == 0:
            rank.dry = 1
            rank.idle = rank.flying == 0
            if rank.idle and rank.width == 1:
                rank.step = 0
            break
        rank.idle = 0
        if form.kind == 0:
            world.asked = 1
            return False
        launch(state, rank, k, price(form, state.captured[rank.form], state.shape[0]))
        repeat(state, rank, k, apart)
        if rank.width > 1:
            break
    world.cursor += 1
    return True


@jit
def sleeps(rank: Any) -> bool:
    """Whether an idle rank has nothing that it could run, so that it need not be asked at what happens elsewhere."""
    here = rank.waiting + rank.running + rank.crowd + rank.lates + rank.handed
    return rank.width == 1 and rank.idle and rank.flying == 0 and here == 0 and rank.arrived_head == NOBODY


@jit
def gather(state: State, first: int) -> None:
    """The ranks of a worker have planned: what has no rows may run empty beside the others (S18, T7), and all end together (E1)."""
    world, leader = state.world[0], state.ranks[first]
    if not leader.open:
        return
    if leader.nulls and launched(state, first):
        for k in range(first, first + leader.width):
            if state.ranks[k].dry:
                clear_shape(state, 0, 0)
                launch(state, state.ranks[k], k, leader.null_ms)
    again = plans_again(state, first)
    if leader.nulls or not again:
        align(state, first)
    if again:
        world.cursor = first


@jit
def arrive(state: State, now: float, apart: int | None) -> None:
    """Clients act, and what is visible by now reaches its scheduler; an arrival wakes an engine that sleeps."""
    world = state.world[0]
    if world.closed:
        if world.unborn > 0:
            born(state, now)
        for _ in range(world.gone):
            send(state, now)
    elif world.lanes:
        take_turns(state, now)
    i = next_visible(state, now)
    while i != NOBODY:
        if apart is not None:
            enter(state, i, now)
        else:
            join(state, state.ranks[choose(state, state.stages[0], i)], i)
        i = next_visible(state, now)


@jit
def logged(state: State) -> bool:
    """Whether the requests of all rows that are waited for are done."""
    world = state.world[0]
    while world.first_open < world.rows and state.requests[world.first_open].done_ms >= 0.0:
        world.first_open += 1
    return world.first_open >= world.until_row


@jit
def repeats(state: State, apart: int | None) -> bool:
    """Whether the state equals the kept one, absolute time left out; keeps it where a power of two is reached (Brent)."""
    world = state.world[0]
    world.landings += 1
    if cycle.may_repeat(state):
        length = write(state, state.fresh, apart)
        if cycle.same(state, length):
            cycle.mark(state, 1, length)
            return True
    if world.landings == world.renew:
        world.renew *= 2
        cycle.mark(state, 0, write(state, state.kept, apart))
    return False


@jit
def write(state: State, out: Any, apart: int | None) -> int:
    """Write the state out as numbers, times relative to now; returns how many."""
    world = state.world[0]
    out[0] = world.dealt
    n = 1
    for h in range(len(state.stages)):
        out[n] = state.stages[h].turn
        n += 1
    if apart is not None:
        n = write_hand_offs(state, out, n)
    for k in range(len(state.ranks)):
        rank = state.ranks[k]
        out[n], out[n + 1], out[n + 2] = rank.start_ms - world.now, rank.flying, rank.free
        out[n + 3], out[n + 4] = 0.0, 0.0
        if rank.flying > 0:
            out[n + 3], out[n + 4] = rank.end_ms - world.now, rank.land_ms - world.now
        out[n + 5] = rank.step % rank.interval
        n = write_rank(state, k, out, n + 6)
        n = cycle.write_list(state, rank.waiting_head, False, out, n)
        n = cycle.write_list(state, rank.arrived_head, True, out, n)
    return cycle.write_list(state, world.inbox_head, True, out, n)


@jit
def full(state: State) -> bool:
    """Whether a table could overflow before the loop looks again."""
    world = state.world[0]
    seats, slots = state.running.size, state.running.shape[1] if world.stages == 1 else len(state.gone)
    for k in range(len(state.ranks)):
        if state.ranks[k].identities and state.ranks[k].slots_free < slots:
            return True
    return (
        world.runs + 4 * len(state.ranks) + 1 > len(state.runs)
        or world.stalls + seats * (1 + world.most_drafts) > len(state.stalls)
        or (world.stages > 1 and world.transfers + len(state.leaving) > len(state.transfers))
        or (
            world.closed
            and world.rows + min(world.limit - world.sent, world.unborn + min(seats, world.clients))
            > len(state.requests)
        )
    )


@jit
def launch(state: State, rank: Any, k: int, duration: float) -> None:
    """Commit the plan of rank k to the clock and to the log; it runs when the pass in flight is over. A plan without rows is no pass of the log."""
    world, sums = state.world[0], state.shape[0]
    rank.number += 1
    rank.flying += 1
    rank.dry = 0
    if rank.width == 1:
        rank.step += 1
    before, chosen = rank.end_ms, world.now + rank.select_ms
    rank.start_ms = max(chosen, before) if rank.flying > 1 or rank.launching else chosen
    rank.end_ms = rank.start_ms + duration
    rank.row = world.runs
    if not world.logging:  # passes in flight write over two rows of their rank's own
        rank.row += 2 * k + (rank.number & 1)
    if rank.flying == 1:
        rank.land_ms, rank.land_row = rank.end_ms, rank.row
    if rank.selecting:  # outputs wait for the loop's end, and so does the next plan (S19)
        rank.ready_ms = chosen
        if rank.flying > 1:
            rank.land_ms = max(rank.land_ms, chosen)
    if rank.launching:
        rank.land_ms = next_decision(state, rank, k, world.now, before)
    row = state.runs[rank.row]
    row.start_ms, row.end_ms, row.number, row.engine = rank.start_ms, rank.end_ms, rank.number, k
    row.count = min(1, sums.prefill_requests + sums.decode_requests)
    world.runs += world.logging
    world.passes += row.count
    row.prefill_requests, row.prefill_tokens = sums.prefill_requests, sums.prefill_tokens
    row.prefill_kv_tokens, row.recomputed = sums.prefill_kv_tokens, sums.recomputed
    row.decode_requests, row.decode_kv_tokens = sums.decode_requests, sums.decode_kv_tokens
    row.held_by = rank.held_by
    row.blocks = rank.usable - rank.free if rank.memory else 0


@jit
def stands(state: State, rank: Any) -> bool:
    """Whether the plan just launched would be formed again and again: only the crowd decodes, and nothing can be admitted.

    Beside other workers of its stage that needs arrivals that their answers do not move.
    """
    world, stage = state.world[0], state.stages[rank.stage]
    apart = rank.width == 1 and world.stages == 1 and not world.closed and not world.lanes
    alone = stage.ranks == 1 or apart
    settled = rank.preempted == 0 and rank.lates == 0 and rank.arrived_head == NOBODY
    settled = settled and (rank.handed == 0 or free_seats(rank) <= 0)
    settled = settled and (rank.waiting == 0 or not rank.ahead)  # what ended is free since that plan was formed
    return alone and settled and rank.interval == 1 and rank.running == 0 and rank.crowd > 0


@jit
def repeat(state: State, rank: Any, k: int, apart: int | None) -> None:
    """While the plan of rank k stands and nobody finishes, run it again, as one row of the log."""
    if not stands(state, rank):
        return
    world, row, form = state.world[0], state.runs[rank.row], state.forms[rank.form]
    captured, ring = state.captured[rank.form], state.bucket_head.shape[1]
    if apart is not None:
        news = next_elsewhere(state, k)
    else:
        news = next_arrival(state) if rank.waiting == 0 else NEVER
    last = rank.number + world.until_pass - world.passes
    number, rows, context = rank.number, rank.crowd, rank.crowd_kv
    start, end = rank.start_ms, rank.end_ms
    row.block_ms = row.blocks * (end - start)
    early = (
        rank.lookahead and not rank.ahead
    )  # hand-offs that ask look at the pass in flight, so it must be that of their instant
    while number < last and state.bucket_head[k, number % ring] == NOBODY and news > (start if early else end):
        if rank.memory:
            need = state.residues[k, (number + 1) % rank.block_size]
            if need > rank.free:
                break
            remains.take_front(state, rank, need)
        number += 1
        context += rows
        start = end
        end = start + decode_price(form, captured, rows, context)
        if rank.memory:
            row.block_ms += (rank.usable - rank.free) * (end - start)
    world.passes += number - rank.number
    row.count += number - rank.number
    row.end_ms = end
    if rank.memory:
        row.blocks = rank.usable - rank.free
    rank.number, rank.start_ms, rank.end_ms, rank.land_ms, rank.crowd_kv = number, start, end, end, context
