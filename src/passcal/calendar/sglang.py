"""SGLang's calendar: a prefill pass pauses every decode, or carries them (mixed chunk); rows are retracted under pressure (S1-S17).

Lists of a rank: 0 and 1 the batches of the last pass and of the one that is planned (see `sglang_batch`), 2 and 3 ends to come (S9).
`rank.free` counts tokens, those of the prefix tree that nobody locks included. `computed` is exact when a pass is launched, `generated` are
the outputs that the scheduler has seen (S4): the kernel lands a pass just when the scheduler processes its results.
"""

from typing import Any

from passcal.calendar.packing import add_chunk, clear_shape
from passcal.calendar.sglang_admit import prefill
from passcal.calendar.sglang_batch import DECODE, EXTEND, HEADER, LISTED, NONE, UPTO, WAITING, ceil, kept_tokens
from passcal.calendar.sglang_decode import decode
from passcal.core import cycle, radix
from passcal.core.compiled import jit
from passcal.core.hand import kept_back
from passcal.core.rank import (
    HELD_NOT,
    HELD_SEATS,
    attach,
    emit,
    forget,
    free_seats,
    intake,
    leave,
    may_send,
    send_chunk,
)
from passcal.core.tables import NOBODY, State

__all__ = ["land", "let_go", "plan", "reserve", "write"]


@jit
def plan(state: State, k: int, now: float) -> int:
    """One round of the scheduler (S1); rounds that launch nothing because of the interval cost no time (S14).

    After an idle round the recorded engine's clock jumps to its next arrival, if there is one; among several workers nobody waits for it.
    """
    rank, s, world = state.ranks[k], state.sglang[k], state.world[0]
    jumps = len(state.ranks) == rank.width and (world.inbox_head != NOBODY or world.unborn > 0 or may_send(world))
    if rank.index == rank.leader:
        open_round(state, rank, s, jumps)
    if state.sglang[rank.leader].asleep:
        return 0
    if rank.idle and rank.waiting == 0 and rank.running == 0 and s.partial == NOBODY:
        s.ratio = s.first_ratio  # the last round was idle (S12)
    take_in(state, rank, s, now)
    next_round(state, rank, s, k, now)
    moved = s.deferred or (rank.preempted > 0 and rank.staging > 0)  # the last one retracted too (D10)
    rank.again = s.rows == 0 and moved and rank.flying == 0 and not jumps
    if rank.selecting:
        rank.select_ms = s.prefill_select_ms if s.kind == EXTEND else s.decode_select_ms
    return s.rows


@jit
def open_round(state: State, leader: Any, s: Any, jumps: bool) -> None:
    """What the ranks of a group do as one: sleep until an arrival, and hold their prompts after a pass with prefill on any of them (S14, S18)."""
    s.asleep = leader.idle and jumps
    for k in range(leader.index, leader.index + leader.width):
        if state.ranks[k].arrived_head != NOBODY:
            s.asleep = 0
        if s.extended:
            state.sglang[k].hold = s.interval
    s.extended = 0


@jit
def take_in(state: State, rank: Any, s: Any, now: float) -> None:
    """Requests that arrived begin their life here, with an output that fits context and pool (S17), and queue."""
    i = rank.arrived_head
    while i != NOBODY:
        request, life = state.legs[i], state.sglang_lives[i]
        room = min(s.context - request.isl - 1, rank.usable - ceil(request.isl, s.page) - s.page - 1)
        rank.serial += 1
        life.serial, life.place, life.launched = rank.serial, WAITING, NOBODY
        life.limit, life.wasted = max(0, min(request.most, room)), 0
        life.shared = min(request.shared, request.isl) if request.group >= 0 else 0
        life.trunk = life.shared // s.page * s.page
        life.root = s.first_node + (request.group + 1 if s.tree and life.shared > 0 else 0)
        life.branch, life.leaf = NOBODY, life.root
        i = state.sequences[i].after
    intake(state, rank, now)


@jit
def next_round(state: State, rank: Any, s: Any, k: int, now: float) -> None:
    """Plan: what was launched joins the running rows, then a prefill batch if it may, else a decode (S2)."""
    rank.preempted, s.rows, s.slot = 0, 0, (rank.number + 1) & 1
    clear_shape(state, 0, 0)
    if s.tree and s.unpublished and s.partial != NOBODY:
        radix.publish(state, rank, s, s.partial, state.sequences[s.partial].computed)
    s.unpublished = 0
    join(state, rank, s, k)
    s.deferred = s.hold > 0
    chosen = now + s.prefill_select_ms
    starts = max(chosen, rank.end_ms) if rank.flying else chosen
    if s.deferred:
        s.hold -= 1
    else:
        prefill(state, rank, s, k, starts)
    prompts = s.rows
    if prompts > 0:
        take_prompts(state, rank, s, k)
    else:
        take_hand_offs(state, rank, k)
    if rank.running > 0 and (prompts == 0 or s.mixed):
        decode(state, rank, s, k, starts)
    close(state, rank, s, k, prompts)


@jit
def join(state: State, rank: Any, s: Any, k: int) -> None:
    """The requests of the last prefill become running rows, and finished ones go; who is left out reopens admission (S2, S5)."""
    before = rank.running
    if s.kind == EXTEND:
        slot, rows = rank.number & 1, 0
        count = state.lists[k, slot, 0]
        for n in range(count):
            i = state.lists[k, slot, HEADER + n]
            if state.legs[i].done_ms >= 0.0:
                s.finished -= 1
                drop(state, i)
            elif i != s.partial:
                state.running[k, before + rows] = i
                rows += 1
        rank.running += rows
        if rows < count or (before == 0 and rows > 0):
            s.full = 0
    if s.finished == 0:
        return
    kept = 0
    for n in range(rank.running):
        i = state.running[k, n]
        if state.legs[i].done_ms >= 0.0:
            drop(state, i)
            continue
        state.running[k, kept] = i
        kept += 1
    rank.running, s.finished, s.full = kept, 0, 0


@jit
def take_prompts(state: State, rank: Any, s: Any, k: int) -> None:
    """The prompts of the batch take their KV, and stand in the pass's shape (S15)."""
    if s.tree:
        tokens = s.rows * s.page if s.page > 1 else 0
        for n in range(s.rows):
            tokens += state.sequences[state.lists[k, s.slot, HEADER + n]].given
        radix.make_room(state, rank, s, tokens)
    for n in range(s.rows):
        i = state.lists[k, s.slot, HEADER + n]
        sequence, request = state.sequences[i], state.legs[i]
        past, end = sequence.computed, sequence.computed + sequence.given
        add_chunk(
            state,
            i,
            sequence.given,
            past,
            request.preemptions == 0 and sequence.given == request.isl - request.cached,
        )
        rank.free -= ceil(end, s.page) - ceil(past, s.page)
        sequence.computed = end
        if rank.sending:
            state.lists[k, UPTO + s.slot, n] = end


@jit
def take_hand_offs(state: State, rank: Any, k: int) -> None:
    """Requests that came with their KV take slots, and are running rows (D10)."""
    while rank.handed > 0:
        if free_seats(rank) <= 0:
            rank.held_by = HELD_SEATS
            return
        state.sglang_lives[attach(state, rank, k)].place = LISTED


@jit
def close(state: State, rank: Any, s: Any, k: int, prompts: int) -> None:
    """Write the batch's header, and what the next round must know of this one."""
    state.lists[k, s.slot, 0], state.lists[k, s.slot, 1] = s.rows, prompts
    state.lists[k, s.slot, 2] = s.partial if prompts > 0 else NOBODY
    s.kind = EXTEND if prompts > 0 else (DECODE if s.rows > 0 else NONE)
    if prompts > 0:
        s.unpublished, state.sglang[rank.leader].extended = 1, 1
    if rank.waiting + rank.handed == 0:
        rank.held_by = HELD_NOT


@jit
def land(state: State, k: int) -> None:
    """The results of the oldest pass in flight: tokens appear in batch order, whole prompts are published, what is done leaves (S3)."""
    rank, s = state.ranks[k], state.sglang[k]
    row = state.runs[rank.land_row]
    number = rank.number - rank.flying + 1
    slot = number & 1
    rows, prompts, partial = state.lists[k, slot, 0], state.lists[k, slot, 1], state.lists[k, slot, 2]
    row.gaps, row.late_gaps, row.late_gap_ms = 0, 0, 0.0
    for n in range(rows):
        i = state.lists[k, slot, HEADER + n]
        sequence, life = state.sequences[i], state.sglang_lives[i]
        if life.wasted:
            life.wasted = 0
            drop(state, i)
            continue
        if rank.sending and n < prompts:
            send_chunk(state, i, 1 * state.lists[k, UPTO + slot, n])
        if life.place == WAITING or i == partial:  # retracted since, or a middle chunk
            continue
        paused = sequence.generated > 0 and sequence.last_pass == s.decoded and s.decoded < number - 1
        if paused and not rank.selecting:
            row.late_gaps += 1
            row.late_gap_ms = rank.land_ms - sequence.last_ms
            sequence.generated += 1
            sequence.last_pass, sequence.last_ms = number, rank.land_ms
        else:
            row.gaps += emit(state, rank, i, number)
        if sequence.generated >= min(life.limit, state.legs[i].osl):
            life.wasted = life.launched > number
            finish(state, rank, s, i)
        elif n < prompts and s.tree:
            radix.publish(state, rank, s, i, state.legs[i].isl + sequence.generated - 1)
    if rows > prompts:
        s.decoded = number


@jit
def finish(state: State, rank: Any, s: Any, i: int) -> None:
    """Request i is done: its KV is free but for what stays in the tree; while a list holds it, its row is kept (S15)."""
    life = state.sglang_lives[i]
    leave(state, rank, i)
    if s.tree:
        radix.publish(state, rank, s, i, 1 * state.sequences[i].computed)
    if not kept_back(state, rank, i):
        free_kv(state, rank, s, i)
    if life.place == LISTED:
        s.finished += 1
    else:
        drop(state, i)


@jit
def let_go(state: State, k: int, i: int) -> None:
    """Request i, which is done here, has arrived elsewhere: its KV is free, and the queue is looked at again (S5)."""
    free_kv(state, state.ranks[k], state.sglang[k], i)
    state.sglang[k].full = 0


@jit
def free_kv(state: State, rank: Any, s: Any, i: int) -> None:
    """Request i needs its KV no more: what the tree does not hold is free (S15)."""
    life = state.sglang_lives[i]
    if s.tree:
        radix.grab(state, rank, s, life.leaf, -1)
    rank.free += kept_tokens(state, s, i) - state.nodes[life.leaf].end
    rank.freed, state.sequences[i].held = 1, 0
    if s.tree and not rank.memory:
        radix.drop_chain(state, s, i)


@jit
def reserve(state: State, k: int, i: int) -> bool:
    """Give hand-off i the tokens of its prompt and those that its link reserves, if they are free or can be evicted (D6)."""
    rank, s, stages = state.ranks[k], state.sglang[k], state.world[0].stages
    need = ceil(state.legs[i].isl + state.hops[i % stages - 1].reserve, s.page)
    if need > rank.free or rank.resuming > 0 or s.partial != NOBODY:
        return False
    if s.tree:
        radix.make_room(state, rank, s, need)
    rank.free -= need
    state.sequences[i].held = need
    life = state.sglang_lives[i]
    life.leaf, life.branch = s.first_node, NOBODY  # it is in no tree yet
    return True


@jit
def drop(state: State, i: int) -> None:
    """A list lets go of request i, which is done; its row is free if it was the last one."""
    if not state.sglang_lives[i].wasted:
        forget(state, i)


@jit
def write(state: State, k: int, out: Any, n: int) -> int:
    """Write what rank k will do next as numbers, from position n on; returns the next position."""
    rank, s = state.ranks[k], state.sglang[k]
    hold = s.interval if state.sglang[rank.leader].extended else s.hold
    # where nothing is promised the new-token ratio changes nothing, and it takes 600 decode passes to settle
    promises = rank.memory and not s.ignore_eos
    out[n], out[n + 1], out[n + 2] = s.ratio if promises else 0.0, s.full, hold
    out[n + 3], out[n + 4], out[n + 5] = s.partial != NOBODY, s.kind, rank.running
    out[n + 6] = rank.land_ms - state.world[0].now if rank.flying else 0.0
    out[n + 7] = rank.number if s.tree else 0  # a tree is not compared: no two states are the same
    out[n + 8] = max(0.0, rank.ready_ms - state.world[0].now)
    n += 9
    if s.partial != NOBODY:
        n = write_row(state, rank, s.partial, out, n)
    for j in range(rank.running):
        n = write_row(state, rank, state.running[k, j], out, n)
    if s.kind == NONE or (s.kind == DECODE and rank.flying == 0):
        return n
    slot = rank.number & 1
    out[n], out[n + 1] = state.lists[k, slot, 0], state.lists[k, slot, 1]
    n += 2
    for j in range(state.lists[k, slot, 0]):
        i = state.lists[k, slot, HEADER + j]
        out[n] = i == state.lists[k, slot, 2]
        n = write_row(state, rank, i, out, n + 1)
    return n


@jit
def write_row(state: State, rank: Any, i: int, out: Any, n: int) -> int:
    """A request of a list."""
    life = state.sglang_lives[i]
    out[n], out[n + 1], out[n + 2] = life.place, life.launched == rank.number, state.legs[i].done_ms >= 0.0
    return cycle.write_sequence(state, i, out, n + 3)
