"""Passes that are alike as one step: rows only until something else can happen, or what one cut prompt fills; and the gaps that rows see."""

from math import ceil, inf, sqrt
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.mixture import put
from passcal.screening.price import pass_ms

__all__ = ["run_chunks", "run_rows"]

PASSES = 16  # with chunks, priced one by one, that take as long as a step


@jit
def run_rows(c: Any, s: Any, waiting: Any, rows: Any, gaps: Any) -> float:
    """Passes with rows only, until something else can happen; when the last one starts."""
    first, step = c.d0 + c.d1 * s.rows + c.d2 * s.context, c.d2 * s.rows
    passes = rows[s.first_row].end - s.turn
    if c.ahead * s.fresh > 0.0:
        passes = 1.0
    elif s.free > 0.0 and s.first_waiting < s.end_waiting and waiting[s.first_waiting].visible > s.plan:
        passes = min(passes, passes_until(first, step, waiting[s.first_waiting].visible - s.now))
    before = passes - 1.0
    start = s.now + before * (first + step * (before - 1.0) * 0.5)
    last = first + step * before
    if s.decoded == s.now:
        run_of_gaps(s, gaps, s.rows, first, last, passes)
    else:
        first_after_prompts(s, rows, gaps, first)
        if before > 0.0:
            run_of_gaps(s, gaps, s.rows, first + step, last, before)
    s.now = start + last
    s.turn += passes
    s.passes += passes
    s.context += s.rows * passes
    return start


@jit
def run_of_gaps(s: Any, gaps: Any, rows: float, first: float, last: float, passes: float) -> None:
    """So many rows had a gap in each of these passes, each as much longer than the one before."""
    put(gaps, s.gaps, rows * passes, first, last)
    gaps[s.gaps, 3] = passes
    s.gaps += 1


@jit
def first_after_prompts(s: Any, rows: Any, gaps: Any, length: float) -> None:
    """Gaps of rows that paused for prompts: since the last pass with rows, or since their prompts."""
    end, older, at = s.now + length, s.rows, s.end_row - 1
    while at >= s.first_row and rows[at].first > s.decoded:
        run_of_gaps(s, gaps, rows[at].count, end - rows[at].first, end - rows[at].first, 1.0)
        older -= rows[at].count
        at -= 1
    if older > 0.0:
        run_of_gaps(s, gaps, older, end - s.decoded, end - s.decoded, 1.0)


@jit
def run_chunks(c: Any, s: Any, rows: Any, gaps: Any, chunks_ms: float, decoding: float) -> float:
    """A pass with chunks, and those behind it that the cut prompt fills alike; when the last one starts."""
    passes = 1.0
    if s.given > 0.0 and s.todo > 0.0 and c.ahead * s.fresh == 0.0:
        passes += max(ceil((s.todo - c.budget + decoding) / s.given), 0.0)
        if decoding > 0.0:
            passes = min(passes, rows[s.first_row].end - s.turn)
        s.steps += int(passes) // PASSES  # they take their time, too
    rows_ms = c.d0 + c.d1 * decoding + c.d2 * s.context if decoding > 0.0 else 0.0
    step, more = c.d2 * decoding, s.given * c.a2 * s.given
    chunks_ms += c.a0
    first = length = pass_ms(c, chunks_ms, rows_ms)
    start, s.now, alike = s.now, s.now + length, 1.0
    for _ in range(int(passes) - 1):
        longer = chunks_ms > rows_ms
        rows_ms, chunks_ms, s.todo = rows_ms + step, chunks_ms + more, s.todo - s.given
        other = longer != (chunks_ms > rows_ms)  # from here on the other part counts
        if other and c.overlaps > 0.0 and decoding > 0.0:
            run_of_gaps(s, gaps, decoding, first, length, alike)
            first, alike = pass_ms(c, chunks_ms, rows_ms), 0.0
        length = pass_ms(c, chunks_ms, rows_ms)
        start, s.now, alike = s.now, s.now + length, alike + 1.0
    s.passes += passes
    if decoding > 0.0:
        run_of_gaps(s, gaps, decoding, first, length, alike)
        s.turn += passes
        s.context += decoding * passes
    return start


@jit
def passes_until(first: float, step: float, wait_ms: float) -> float:
    """Passes with rows only, each longer by a step, until one starts that late."""
    if wait_ms <= first or wait_ms == inf:
        return 1.0 if wait_ms <= first else inf
    if step * wait_ms < 1e-9 * first * first:
        return ceil(wait_ms / first - 1e-9)
    middle = first - step * 0.5
    return max(ceil((sqrt(middle * middle + 2.0 * step * wait_ms) - middle) / step - 1e-9), 1.0)
