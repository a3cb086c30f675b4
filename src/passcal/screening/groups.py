"""Pass by pass, from the burst on, until clients stand to each other as they did before: exact, at some thirty nanoseconds a step.

All ask alike, so who is who does not matter: clients that were done in the same pass are one group, and a group is a number. Passes with rows only, and those
that one prompt fills, are one step together. Nothing moves in the queues, they only grow: what was kept is compared where it stands.
"""

from math import floor, inf
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.runs import run_chunks, run_rows
from passcal.screening.tables import ALTERNATING, SGLANG_MIXED, TRTLLM

__all__ = ["HERE", "KEPT", "is_sure", "travel"]

CLOSE = 1e-9  # of the time: as near may two instants be that rounding tells apart
SETTLES = 600  # decode passes
SURE = 50_000  # passes within which the evaluator finds the same cycle
BLANK, HERE, KEPT = 0, 1, 2  # states: of zeros, the present one, and one that is kept to be met again


@jit
def travel(c: Any, room: Any, steps: int) -> bool:
    """Go on until the state repeats, or for so many steps; whether it does."""
    s, kept = room.states[HERE], room.states[KEPT]
    waiting, rows, served, gaps = room.waiting, room.rows, room.served, room.gaps
    room.states[HERE] = room.states[BLANK]
    waiting[0].count, waiting[0].visible = c.clients, 0.0
    s.end_waiting, s.renewal = 1, 1
    while s.steps < steps:
        s.steps += 1
        before = s.served
        chunks_ms = admit(c, s, waiting, served)
        decoding = s.rows if c.calendar != ALTERNATING or s.tokens == 0.0 else 0.0
        if s.tokens == 0.0 and decoding == 0.0:
            idle(s, waiting)
            continue
        if s.tokens == 0.0:
            start = run_rows(c, s, waiting, rows, gaps)
        else:
            start = run_chunks(c, s, rows, gaps, chunks_ms, decoding)
        s.plan = start if c.ahead > 0.0 else s.now
        if decoding > 0.0:
            s.decoded = s.now
        s.fresh = end_rows(c, s, rows, served)
        begin_rows(c, s, rows, served, before)
        if s.fresh > 0.0:
            come_back(c, s, waiting)
            s.ends += 1
            if s.ends > 1 and as_before(s, kept, waiting, rows):
                return True
            if s.ends == s.renewal:  # is kept twice as long as the one before, so that a cycle of any length is met
                s.renewal *= 2
                room.states[KEPT] = room.states[HERE]
    return False


@jit
def is_sure(c: Any, s: Any) -> bool:
    """Whether the evaluator must find this cycle: the price is exact, memory never binds, and nothing hung on rounding.

    SGLang's new-token ratio is part of the state where there is a pool, and settles with its decode passes (S12).
    """
    settled = (
        c.kv == inf or (c.calendar != ALTERNATING and c.calendar != SGLANG_MIXED) or s.passes * SETTLES < SURE * s.turn
    )
    return bool(c.proven > 0.0 and s.passes < SURE and s.ties == 0.0 and settled)


@jit
def admit(c: Any, s: Any, waiting: Any, served: Any) -> float:
    """First come, first served: what the chunks of the next pass cost, without what a pass with chunks costs once."""
    room = c.budget
    if c.calendar != ALTERNATING:
        room -= s.rows
        if c.calendar == SGLANG_MIXED:  # rows that end count until they are seen
            room -= c.ahead * s.fresh
    s.free = c.seats - s.rows - c.ahead * s.fresh
    s.given = s.tokens = 0.0
    chunks_ms = 0.0
    if s.todo > 0.0:
        s.free -= 1.0
        chunks_ms = go_on(c, s, served, room)
        if s.todo > 0.0:
            return chunks_ms
        room -= s.given
    if s.free > 0.0 and room >= 1.0 and is_visible(c, s, waiting):
        chunks_ms += begin_prompts(c, s, waiting, served, room)
    return chunks_ms


@jit
def is_visible(c: Any, s: Any, waiting: Any) -> bool:
    """Whether a request may be in the next pass."""
    if s.first_waiting == s.end_waiting:
        return False
    visible = waiting[s.first_waiting].visible
    if c.think_ms > 0.0 and visible != s.woken and abs(visible - s.plan) <= CLOSE * visible:
        s.ties += 1.0
    return bool(visible <= s.plan)


@jit
def begin_prompts(c: Any, s: Any, waiting: Any, served: Any, room: float) -> float:
    """As many prompts as fit, one of them cut if there is room left; what they cost."""
    chunks_ms, most = 0.0, min(floor(room / c.new), s.free)
    while most > 0.0 and is_visible(c, s, waiting):
        group = waiting[s.first_waiting]
        count = min(most, group.count - s.taken)
        serve(s, served, count, group.visible, s.now)
        take(s, group, count)
        most, room, s.free = most - count, room - count * c.new, s.free - count
        s.tokens += count * c.new
        chunks_ms += count * c.new * (c.a1 + c.a2 * c.past + c.a3 * c.new)
    if room >= 1.0 and s.free > 0.0 and is_visible(c, s, waiting):
        group = waiting[s.first_waiting]
        size = cut_to(c, room)
        if size >= 1.0:
            s.todo, s.given, s.cut_visible, s.cut_begun = c.new - size, 0.0, group.visible, s.now
            take(s, group, 1.0)
            s.tokens += size
            chunks_ms += size * (c.a1 + c.a2 * c.past + c.a3 * size)
    return chunks_ms


@jit
def cut_to(c: Any, room: float) -> float:
    """Tokens of a prompt that does not fit."""
    return floor(room / c.unit) * c.unit if c.calendar == TRTLLM else room


@jit
def go_on(c: Any, s: Any, served: Any, room: float) -> float:
    """The next chunk of the prompt that was cut, and what it costs."""
    s.given = s.todo if s.todo <= room else cut_to(c, room)
    if s.given < 1.0:
        s.given = 0.0
        return 0.0
    s.tokens += s.given
    cost = s.given * (c.a1 + c.a2 * (c.past + c.new - s.todo) + c.a3 * s.given)
    s.todo -= s.given
    if s.todo == 0.0:
        serve(s, served, 1.0, s.cut_visible, s.cut_begun)
    return cost


@jit
def take(s: Any, group: Any, count: float) -> None:
    """So many of the first waiting group are no longer waiting."""
    s.taken += count
    if s.taken == group.count:
        s.taken = 0.0
        s.first_waiting += 1


@jit
def serve(s: Any, served: Any, count: float, visible: float, begun: float) -> None:
    """So many prompts are complete when this pass ends."""
    here = served[s.served]
    here.count, here.visible, here.begun = count, visible, begun
    s.served += 1


@jit
def idle(s: Any, waiting: Any) -> None:
    """Nothing to plan: what the last pass did is seen now, and if that changes nothing, the next request is awaited."""
    if s.fresh == 0.0 and s.first_waiting < s.end_waiting:
        s.woken = waiting[s.first_waiting].visible
        s.now = max(s.now, s.woken)
    s.plan, s.fresh = s.now, 0.0


@jit
def end_rows(c: Any, s: Any, rows: Any, served: Any) -> float:
    """Requests whose last token this pass made."""
    ended = 0.0
    while s.first_row < s.end_row and rows[s.first_row].end <= s.turn:
        ended += rows[s.first_row].count
        s.first_row += 1
    s.rows -= ended
    s.context -= ended * (c.isl + c.osl)
    tell(s, served, ended)
    return ended


@jit
def tell(s: Any, served: Any, count: float) -> None:
    """So many requests are done, in the order of their first tokens."""
    s.done += count
    while count > 0.0:
        served[s.told].done = s.now
        count -= served[s.told].count
        s.told += 1


@jit
def begin_rows(c: Any, s: Any, rows: Any, served: Any, before: int) -> None:
    """Whose prompt this pass completed decodes in the next ones, or is done."""
    count = 0.0
    for at in range(before, s.served):
        served[at].first = s.now
        count += served[at].count
    if count == 0.0:
        return
    if c.osl == 1.0:
        s.fresh += count
        tell(s, served, count)
        return
    group = rows[s.end_row]
    group.count, group.first, group.end = count, s.now, s.turn + c.osl - 1.0
    s.end_row += 1
    s.rows += count
    s.context += count * (c.isl + 1.0)


@jit
def come_back(c: Any, s: Any, waiting: Any) -> None:
    """Who is done asks again."""
    group = waiting[s.end_waiting]
    group.count, group.visible = s.fresh, s.now + c.think_ms
    s.end_waiting += 1


@jit
def as_before(s: Any, k: Any, waiting: Any, rows: Any) -> bool:
    """Whether the state is that which was kept, at another time."""
    seated, queued = s.end_row - s.first_row, s.end_waiting - s.first_waiting
    if s.todo != k.todo or s.taken != k.taken:
        return False
    if seated != k.end_row - k.first_row or queued != k.end_waiting - k.first_waiting:
        return False
    later, slack = s.now - k.now, 1e-9 + 1e-13 * s.now  # what rounding makes of equal times
    if abs(s.plan - k.plan - later) > slack or (s.todo > 0.0 and abs(s.cut_visible - k.cut_visible - later) > slack):
        return False
    for i in range(seated):
        here, there = rows[s.first_row + i], rows[k.first_row + i]
        if here.count != there.count or here.end - s.turn != there.end - k.turn:
            return False
    for i in range(queued):
        one, other = waiting[s.first_waiting + i], waiting[k.first_waiting + i]
        if one.count != other.count or abs(one.visible - other.visible - later) > slack:
            return False
    return True
