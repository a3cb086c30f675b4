"""vLLM's calendar: fused passes. Running sequences first, then the waiting queue, one token budget; recompute the newest (V1-V16)."""

from typing import Any

from passcal.calendar import launch, speculation
from passcal.calendar.packing import add_chunk, clear_shape
from passcal.calendar.vllm_memory import (
    crowd_blocks,
    known_tokens,
    newest_flies,
    preempt,
    register_outputs,
    release,
    release_ahead,
    release_late,
)
from passcal.core import blocks, crowd, cycle, remains
from passcal.core.compiled import jit
from passcal.core.rank import (
    HELD_BLOCKS,
    HELD_BUDGET,
    HELD_NOT,
    HELD_SEATS,
    attach,
    emit,
    free_seats,
    intake,
    leave,
    pop,
    seats_taken,
    send_chunk,
)
from passcal.core.tables import NOBODY, State

__all__ = ["land", "plan", "write"]


@jit
def plan(state: State, k: int, now: float) -> int:
    """Form the next pass of rank k at this instant; returns how many rows it has."""
    rank = state.ranks[k]
    rows, moved = 0, 0
    if rank.planned > 0:
        rows, rank.planned = 1 * rank.planned, 0
        sum_up(state, rank, k, max(now, rank.end_ms))
        return rows
    if rank.waited:  # the group's pass is over, and with it what was late on this rank
        release_late(state, rank, k)
    rank.drained, rank.waited = rank.waited, 0
    if rank.ahead and not rank.idle and not rank.draining and not rank.drained:
        moved = rank.preempted  # that plan was formed when the last pass landed, and has no rows
    elif not rank.draining:
        seen = rank.start_ms if rank.lookahead and not rank.idle and not rank.launching else now
        rows = decide_as_then(state, rank, k, seen)  # V12
        moved = rank.preempted
        if rows == 0 and rank.launching and not rank.idle:
            launch.drain(rank)
            return 0
    if rank.draining or (rows == 0 and rank.lookahead and rank.width == 1):
        release_late(state, rank, k)  # the pipeline drains and the engine decides again at once (V12)
        rank.drained = 1
        rows = decide(state, rank, k, now)
        moved += rank.preempted
        if rank.launching:
            rank.draining = 0
    rank.drained = 0
    kept = rank.staging > 0 or rank.holding > 0
    rank.again = rows == 0 and moved > 0 and kept  # hand-offs may hold what the last one running lacks (D5, D10)
    if rows > 0:
        sum_up(state, rank, k, max(now, rank.end_ms))
    return rows


@jit
def sum_up(state: State, rank: Any, k: int, start: float) -> None:
    """The shape of the plan for its price; a row with one token and its whole prompt computed is a decode row."""
    clear_shape(state, rank.crowd, rank.crowd_kv)
    sums = state.shape[0]
    for j in range(rank.running):
        i = state.running[k, j]
        s, request = state.sequences[i], state.legs[i]
        if s.given == 0:
            continue
        if request.admitted_ms < 0.0:
            request.admitted_ms = start
        if s.given == 1 and s.computed >= request.isl:
            drafts = speculation.given(state, rank, i)
            sums.decode_requests += 1
            sums.draft_tokens += drafts
            sums.decode_kv_tokens += s.computed + 1 + drafts
        else:
            whole = s.given == request.isl - request.prefix and request.preemptions == 0
            add_chunk(state, i, s.given, s.computed, whole)


@jit
def decide(state: State, rank: Any, k: int, horizon: float) -> int:
    """Running first, in admission order, then waiting, in order of visibility (V1)."""
    intake(state, rank, horizon)
    rank.held_by, rank.preempted = HELD_NOT, 0
    if rank.memory:
        crowd_blocks(state, rank, k)
    capped = rank.long_prefill > 0 and seats_taken(rank) + rank.waiting + rank.handed != 1  # V10
    rank.deferring = defers_prefill(state, rank, k)
    if rank.caching and (rank.drafts > 0 or rank.offload):
        register_outputs(state, rank, k)
    rows, budget = continue_running(state, rank, k, rank.budget - rank.crowd, capped)
    if rank.preempted == 0 and rank.held_by == HELD_NOT:
        admitted, budget = admit(state, rank, k, budget, capped)
        rows += admitted
        if rank.handed > 0:
            rows += attach_all(state, rank, k, budget)
    if not rank.deferring:
        rank.wanting = rank.waiting + rank.handed > 0
    if rank.preempted > 0:
        rank.held_by = HELD_BLOCKS  # a pass that preempts admits nobody (V8)
    return rank.crowd + rows


@jit
def defers_prefill(state: State, rank: Any, k: int) -> bool:
    """Whether this pass leaves prompts alone: between the group's prefill steps, beside a decode, with nobody waiting for capacity (V15)."""
    if rank.interval == 1 or state.ranks[rank.leader].step % rank.interval == 0 or rank.wanting:
        return False
    if rank.crowd > 0:
        return True
    for j in range(rank.running):
        if not unfinished(state, state.running[k, j]):
            return True
    return False


@jit
def unfinished(state: State, i: int) -> bool:
    """Whether running sequence i is a prompt between chunks, for the first time or resumed, be only one token of it left."""
    s = state.sequences[i]
    return s.generated == 0 or s.computed <= s.reached or state.legs[i].isl + s.generated - s.computed > 1


@jit
def continue_running(state: State, rank: Any, k: int, budget: int, capped: bool) -> tuple[int, int]:
    """Give running sequences their tokens; who lacks a block preempts the newest, possibly itself (V8), unless it may not (V13)."""
    rows, at = 0, 0
    while at < rank.running and budget > 0:
        i = state.running[k, at]
        s = state.sequences[i]
        new = state.legs[i].isl + s.generated - s.computed
        at += 1
        if rank.deferring and unfinished(state, i):
            continue
        if capped:
            new = min(new, rank.long_prefill)
        new = min(new, budget)
        drafts = speculation.draft(state, rank, i, budget)
        need = blocks.missing(rank, s, s.computed + new + drafts)
        lost = False
        while need > rank.free and rank.memory and not lost:
            if newest_flies(state, rank, k):
                rank.held_by = HELD_BLOCKS
                break
            lost = preempt(state, rank, k) == i
        if lost or rank.held_by != HELD_NOT:
            break
        blocks.take(state, rank, i, need)
        s.given = new
        if rank.caching:
            blocks.register(state, rank, i, min(s.computed + new, known_tokens(state, rank, i)))
        budget -= new + drafts
        rows += 1
    return rows, budget


@jit
def admit(state: State, rank: Any, k: int, budget: int, capped: bool) -> tuple[int, int]:
    """Admit waiting sequences while seats, budget and blocks last; the head of the queue blocks it (V3, V6, V11). Returns rows and what is left."""
    rows = 0
    while rank.waiting > 0:
        if free_seats(rank) <= 0:
            rank.held_by = HELD_SEATS
            break
        if budget <= 0:
            rank.held_by = HELD_BUDGET
            break
        i = rank.waiting_head
        s, request = state.sequences[i], state.legs[i]
        length = request.isl + s.generated
        hits, idle_hits = blocks.lookup(state, rank, i, length)
        past = max(hits * rank.block_size, request.prefix if request.preemptions == 0 else 0)
        new = length - past
        if rank.deferring and new > 1:
            break
        if capped:
            new = min(new, rank.long_prefill)
        if not rank.chunked and new > budget:
            rank.held_by = HELD_BUDGET
            break
        new = min(new, budget)
        spare = rank.free - (rank.mark if seats_taken(rank) > 0 else 0)
        gate = length if rank.reserve_full else past + new
        if rank.memory and blocks.cover(gate, rank.block_size) - hits + idle_hits > spare:
            rank.held_by = HELD_BLOCKS
            break
        pop(state, rank)
        rank.resuming -= request.preemptions > 0
        seat(state, rank, i, hits, past, new)
        rank.serial += 1
        s.serial = rank.serial
        state.running[k, rank.running] = i
        rank.running += 1
        budget -= new
        rows += 1
    return rows, budget


@jit
def attach_all(state: State, rank: Any, k: int, budget: int) -> int:
    """Hand-offs take seats while seats and budget last, a row of one token each; they hold their blocks already (D10)."""
    rows = 0
    while rank.handed > 0 and budget > rows:
        if free_seats(rank) <= 0:
            rank.held_by = HELD_SEATS
            break
        i = attach(state, rank, k)
        s = state.sequences[i]
        rank.serial += 1
        s.given, s.serial = 1, rank.serial
        speculation.begin(state, rank, i)
        if rank.caching:
            blocks.register(state, rank, i, min(s.computed + 1, known_tokens(state, rank, i)))
        rows += 1
    return rows


@jit
def seat(state: State, rank: Any, i: int, hits: int, past: int, new: int) -> None:
    """Sequence i starts with `past` tokens present, of which `hits` whole blocks are shared, and gets `new` in this pass."""
    s, request = state.sequences[i], state.legs[i]
    s.computed, s.given = past, new
    if request.preemptions == 0:
        request.cached = past
    speculation.begin(state, rank, i)
    if rank.caching:
        blocks.hold(state, rank, i, hits)
    blocks.take(state, rank, i, blocks.missing(rank, s, past + new))
    if rank.caching:
        blocks.register(state, rank, i, min(past + new, known_tokens(state, rank, i)))


@jit
def finish(state: State, rank: Any, k: int, i: int, kept: int) -> int:
    """Sequence i leaves; an async plan sees its seat and blocks one pass later (V5, V12). Returns how many stay in running, of those looked at."""
    if not rank.launching:
        leave(state, rank, i)
    if rank.lookahead and state.legs[i].osl < state.legs[i].most:  # a stop: the plan at hand still sees it run
        state.running[k, kept] = i
        return kept + 1
    if rank.lookahead:
        state.late[k, rank.lates] = i
        rank.lates += 1
    else:
        if rank.caching:  # accepted drafts may have filled a block (V16)
            blocks.register(state, rank, i, state.sequences[i].computed)
        release(state, rank, i)
    return kept


@jit
def land(state: State, k: int) -> None:
    """The pass in flight on rank k ends: tokens appear, finished sequences leave in running order.

    With launch times (V14) that is told before its end, when the next pass is decided: what it emits is held back until the event after.
    """
    rank = state.ranks[k]
    if rank.launching:
        launch.depart(state, k, rank.land_ms)
        if rank.draining:
            return
    row = state.runs[rank.land_row]
    release_late(state, rank, k)
    row.gaps = rank.crowd
    i = crowd.finishers(state, rank, k)
    while i != NOBODY:
        after = state.sequences[i].after
        finish(state, rank, k, i, 0)
        i = after
    kept = 0
    for j in range(rank.running):
        i = state.running[k, j]
        s, request = state.sequences[i], state.legs[i]
        s.computed += s.given
        emits = s.given > 0 and s.computed == request.isl + s.generated
        if rank.sending and s.given > 0:
            send_chunk(state, i, 1 * s.computed)
        if rank.offload and s.given > 0:
            state.vllm_lives[i].rode = rank.number
        s.given = 0
        if emits:
            row.gaps += emit(state, rank, i, rank.number)
            if rank.drafts > 0:
                speculation.accept(state, rank, i)
            if rank.launching:
                launch.hold(state, k, i, speculation.emitted(state, rank, i))
            if s.generated == request.osl:
                kept = finish(state, rank, k, i, kept)
                continue
            if rank.crowded and s.held <= blocks.cover(s.computed, rank.block_size):  # a hand-off may hold one more
                crowd.join(state, rank, k, i)
                continue
        state.running[k, kept] = i
        kept += 1
    rank.running = kept
    if rank.ahead:
        plan_ahead(state, rank, k)


@jit
def plan_ahead(state: State, rank: Any, k: int) -> None:
    """Form the plan that was formed when the pass that lands began; what ended in the meantime is free from now on."""
    rank.planned = decide_as_then(state, rank, k, rank.start_ms)
    release_ahead(state, rank, k)


@jit
def decide_as_then(state: State, rank: Any, k: int, horizon: float) -> int:
    """Decide with memory and seats as they were when the plan was formed, whatever hand-offs took or set free since (D5, D6)."""
    rank.free += rank.shift
    rows = decide(state, rank, k, horizon)
    rank.free -= rank.shift
    rank.keeping -= rank.seats_shift
    rank.shift, rank.seats_shift = 0, 0
    return rows


@jit
def write(state: State, k: int, out: Any, n: int) -> int:
    """Write what rank k will do next as numbers, from position n on; returns the next position."""
    rank = state.ranks[k]
    out[n] = rank.lates
    n = crowd.write(state, rank, out, n + 1)
    if rank.memory:
        n = remains.write(state, rank, out, n)
    for j in range(rank.running):
        n = cycle.write_sequence(state, state.running[k, j], out, n)
    for j in range(rank.lates):
        n = cycle.write_sequence(state, state.late[k, j], out, n)
    if rank.launching:
        n = launch.write(state, rank, k, out, n)
    return speculation.write(state, rank, k, out, n) if rank.drafts > 0 or rank.offload else n
