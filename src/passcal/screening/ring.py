"""The turn of a fused calendar: who travels with whom, how many passes a turn has, what they cost.

Let n clients hold seats, D = osl - 1 outputs follow the first, B be the budget and L a prompt's tokens to compute. A prompt that completes in
pass p decodes in the D passes after it and stands in the queue again `gap` passes later, so a client's turn has `D + span + gap` passes. Prompts that fit
a pass whole travel in cohorts of `size = (B - n) / (L - 1)`: a larger one is cut, and what is cut falls back to the next cohort, turn by turn, until
all but the last have that size. Longer prompts go one by one; a prompt begins in what its predecessor's last pass leaves, as long as that does not
make it take a pass more.
"""

from math import ceil, floor, sqrt
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.price import attention_ms, chunks_of, context_sum_ms, cut_attention_ms, pass_ms
from passcal.screening.tables import SGLANG_MIXED, TRTLLM

__all__ = ["form_ring", "full_engine", "price_ring"]


@jit
def full_engine(c: Any, w: Any) -> None:
    """An engine that always has prompts waiting: every pass carries its budget, so a request takes `(L + D) / B` passes."""
    budget = c.budget
    if c.calendar == TRTLLM and c.new > 1.0:
        budget -= (c.unit - 1.0) * 0.5  # what a chunk cut to whole units leaves
    w.per_request = (
        c.new + w.more + (c.ahead if c.calendar == SGLANG_MIXED else 0.0)
    ) / budget  # rows that end count until they are seen
    rows = w.more / w.per_request
    chunk = min(max(1.0, budget - rows), c.new)
    chunks_ms = c.a0 + (c.a1 * c.new + cut_attention_ms(c, chunk)) / w.per_request
    with_rows = min(1.0, rows)
    w.full_ms = chunks_ms
    if w.more > 0.0:
        rows_ms = c.d0 + w.row_ms * rows / with_rows
        w.full_ms = with_rows * pass_ms(c, chunks_ms, rows_ms) + (1.0 - with_rows) * chunks_ms
    w.full_rate = 1.0 / (w.per_request * w.full_ms)


@jit
def form_ring(c: Any, w: Any) -> None:
    """Cohorts or single prompts, and the passes with chunks that a turn has."""
    n = w.n
    room = c.budget - (n - 1.0 if w.more > 0.0 else 0.0)
    room = max(room, 1.0)
    w.chunk, w.span = chunks_of(c, room)
    w.group, w.cohort, w.count, w.last = 1.0, 1.0, n, 1.0
    if w.span == 1.0:
        most = floor((c.budget - n) / (c.new - 1.0)) if c.new > 1.0 and w.more > 0.0 else floor(c.budget / c.new)
        w.cohort = min(max(most, 1.0), n)
        w.count = ceil(n / w.cohort)
        w.last = n - (w.count - 1.0) * w.cohort
        w.mixed = w.count
    else:
        left = min(max(w.span - c.new / w.chunk, 0.0), 0.999)  # of a prompt's last pass
        w.group = min(floor(1.0 / (1.0 - left) + 1e-9), n)
        groups = floor(n / w.group)
        single = n - groups * w.group
        w.mixed = groups * (w.group * (w.span - 1.0) + 1.0)
        if single > 0.0:
            w.mixed += single * (w.span - 1.0) + 1.0
    w.prompt_ms = c.a1 * c.new + attention_ms(c, w.chunk, w.span)
    find_gap(c, w)
    if w.backlog:
        w.mixed = n * c.new / w.chunk
        if w.span == 1.0:
            w.cohort = min(max((c.budget - n) / c.new, 1.0), n)
            w.count = w.mixed = n / w.cohort
            w.last = w.cohort
    w.turn = w.more + w.span + w.gap
    w.gap_cohorts = floor(w.gap / w.span)


@jit
def find_gap(c: Any, w: Any) -> None:
    """Passes that the first cohort misses while its clients think, and one more if passes are planned ahead; or all are done before it is back."""
    w.gap, w.idle, w.backlog = 0.0, 0.0, 0.0
    if w.queued or w.count == 1.0:
        w.gap = c.ahead if w.count > 1.0 else 0.0
        w.idle = 0.0 if w.queued else 1.0
        return
    if c.think_ms == 0.0:
        w.gap = c.ahead
        return
    packed = w.mixed
    if (
        w.span == 1.0
    ):  # as in a burst, where no cut has healed: who was done first is alone in a pass, the others fill theirs
        packed = min(1.0 + ceil((w.n - w.cohort) * c.new / max(c.budget - w.n * 0.5, 1.0)), w.mixed)
    first, step = c.a0 + w.prompt_ms / w.span, 0.0  # passes behind the first cohort, with fewer and fewer rows
    if w.more > 0.0:
        left = c.d0 + max(w.n - w.cohort, 0.0) * w.row_ms
        first = pass_ms(c, c.a0 + w.cohort * w.prompt_ms / w.span, left) if packed > c.osl else left
        step = w.cohort * w.row_ms / w.span
    missed = c.think_ms / first
    if step > 1e-12:
        middle = first + step * 0.5
        inside = middle * middle - 2.0 * step * c.think_ms
        missed = (middle - sqrt(inside)) / step if inside >= 0.0 else 1e9
    missed = ceil(missed - 1e-9)
    most = packed - w.span
    w.idle = missed > most
    if w.idle and packed < w.mixed:
        w.mixed = w.count = packed
        w.cohort = w.last = w.n / packed
    w.gap = min(missed + c.ahead, most + c.ahead)
    w.backlog = not w.idle and w.gap > c.ahead + 1.0


@jit
def cohort_pass(c: Any, w: Any, j: float) -> tuple[float, float]:
    """The pass that carries cohort j, and its decode rows: cohorts before it are young, those behind it old, and the next ones wait."""
    rows, context = w.cohort * j, w.cohort * (j * c.isl + w.span * j * (j + 1.0) * 0.5)
    first = j + 1.0 + w.gap_cohorts
    if first <= w.count - 1.0:
        whole = max(w.count - 1.0 - first, 0.0)
        behind = (first + w.count - 2.0 - 2.0 * j) * 0.5 * whole
        rows += w.cohort * whole + w.last
        context += w.cohort * (whole * (c.isl + w.turn) - w.span * behind)
        context += w.last * (c.isl + w.turn - w.span * (w.count - 1.0 - j))
    prompts = w.cohort if j < w.count - 1.0 else w.last
    rows_ms = c.d0 + c.d1 * rows + c.d2 * context if rows > 0.0 else 0.0
    return pass_ms(c, c.a0 + prompts * w.prompt_ms / w.span, rows_ms), rows


@jit
def price_ring(c: Any, w: Any) -> None:
    """The passes of a turn."""
    w.first_ms, w.first_rows = cohort_pass(c, w, 0.0)
    w.last_ms, w.last_rows = cohort_pass(c, w, w.count - 1.0)
    w.before_last_ms, w.before_last_rows = w.last_ms, w.last_rows
    if w.count > 1.0:
        w.before_last_ms, w.before_last_rows = cohort_pass(c, w, max(w.count - 2.0, 0.0))
    w.middle_ms, w.middle_rows, w.cohort_ms = w.first_ms, w.first_rows, w.first_ms
    if w.count > 2.0:
        w.middle_ms, w.middle_rows = cohort_pass(c, w, floor((w.count - 1.0) * 0.5))
        w.cohort_ms = (w.first_ms + 4.0 * w.middle_ms + w.before_last_ms) / 6.0
    w.rows_only_ms = (
        max(c.d0 + w.n * w.row_ms - w.gap * 0.5 * w.cohort * w.row_ms / w.span, 0.0) if w.more > 0.0 else 0.0
    )
    if w.span > 1.0:
        rows = max(w.n - 1.0 - w.gap_cohorts, 0.0)
        rows_ms = c.d0 + rows * w.row_ms if w.more > 0.0 and rows > 0.0 else 0.0
        rest = max(w.group * c.new / w.chunk - w.group * (w.span - 1.0), 0.0)
        token_ms = w.prompt_ms / c.new * w.chunk
        w.chunk_ms = pass_ms(c, c.a0 + token_ms, rows_ms)
        w.rest_ms = pass_ms(c, c.a0 + rest * token_ms, rows_ms)
    price_turn(c, w)


@jit
def price_turn(c: Any, w: Any) -> None:
    """A turn, from the first cohort's pass to its next one."""
    n, mixed = w.n, min(w.mixed, w.turn)
    behind = w.mixed - w.span  # the first prompt
    with_rows, both = w.turn, mixed
    if w.count == 1.0 or w.more == 0.0:
        with_rows, both = w.more, 0.0
    elif w.idle:
        with_rows, both = w.more + behind, mixed - (w.span == 1.0)
    elif w.count <= w.gap_cohorts + 1.0 and w.span == 1.0:  # the first cohort finds no rows
        with_rows, both = w.turn - 1.0, mixed - 1.0
    rows_ms = context_sum_ms(c, n, w.more)
    both = max(0.0, min(both, with_rows))
    w.cycle_ms = mixed * c.a0 + n * w.prompt_ms + with_rows * c.d0 + rows_ms - both * c.saved_ms
    if c.overlaps > 0.0:
        alone = max(0.0, with_rows - both)
        w.cycle_ms = ((w.count - 1.0) * w.cohort_ms + w.last_ms) * w.span + alone * (
            c.d0 + rows_ms / max(with_rows, 1.0)
        )
    w.drain_ms = 0.0
    if w.idle:
        if w.count > 1.0 and w.more > 0.0:
            w.drain_ms = behind * c.d0 + w.row_ms * behind * (w.cohort * w.count * 0.5 - (w.cohort - w.last))
            w.drain_ms = max(w.drain_ms, 0.0)
        w.cycle_ms += c.think_ms - w.drain_ms
