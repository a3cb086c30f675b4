"""Bounds on the steady p99 of TTFT: proven regime by regime, from what a calendar can do at best and at worst.

Exact where a pass pattern repeats itself from the start: a lone client, a wave, all prompts in one pass. Narrow where a turn has known cohorts,
or an engine is always full. Elsewhere: at best a prompt alone, or Little's identity; at worst all other clients go first, with as many rows beside
them as there are seats. `docs/explanation/screening.md` has the arguments.
"""

from math import ceil, floor
from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.price import attention_ms, chunks_of, pass_ms
from passcal.screening.tables import ALTERNATING, SGLANG_MIXED, TRTLLM

__all__ = ["at_best", "bracket"]


@jit
def bracket(c: Any) -> tuple[float, float]:
    """Low and high, in ms."""
    n, more = min(c.clients, c.seats), c.osl - 1.0
    if not c.proven:
        return 0.0, np.inf
    if c.clients == 1.0:
        chunk, count = chunks_of(c, c.budget)
        alone = c.think_ms + count * c.a0 + c.a1 * c.new + attention_ms(c, chunk, count)
        return alone, alone
    low = high = -1.0
    if c.calendar == ALTERNATING:
        if more > 0.0:
            low, high = waves(c, n, more)
    elif n * c.new <= c.budget:
        low, high = in_one_pass(c, n, more)
    elif more > 0.0 and c.new > 2.0:
        low, high = known_cohorts(c, n, more)
    if high < 0.0 and c.calendar != ALTERNATING and more < c.new:
        low, high = always_full(c, n, more)
    alone = at_best(c)
    if high < 0.0:
        high = at_worst(c, n, more)
        low = by_little(c, n, more, high)
    return max(low, alone), high


@jit
def attention(c: Any, tokens: float, high: bool) -> float:
    """Attention of a stretch of a queue of prompts, wherever they are cut."""
    weight = max(c.a2 * 0.5, c.a3) if high else min(c.a2 * 0.5, c.a3)
    whole = floor(tokens / c.new + 1e-12)
    rest = max(tokens - whole * c.new, 0.0)
    return whole * c.new * (c.a2 * c.past + weight * c.new) + rest * (c.a2 * c.past + weight * rest)


@jit
def rows_in_all(c: Any, n: float, more: float) -> float:
    """All decode rows of n requests."""
    return n * more * (c.d1 + c.d2 * (c.isl + c.osl * 0.5))


@jit
def youngest(c: Any) -> float:
    """A decode row with the shortest context."""
    return c.d1 + c.d2 * (c.isl + 1.0)


@jit
def oldest(c: Any) -> float:
    """A decode row with the longest context."""
    return c.d1 + c.d2 * (c.isl + c.osl)


@jit
def at_best(c: Any) -> float:
    """A prompt alone, in the fewest passes."""
    return c.think_ms + c.a0 * ceil(c.new / c.budget) + c.a1 * c.new + attention(c, c.new, False)


@jit
def place_of_p99(c: Any, n: float) -> tuple[float, float]:
    """Of requests that are dispatched together, n at a time: turns that the p99 waits, and its place in the turn after."""
    turns = floor((c.clients - n) / n)
    later = c.clients - n - turns * n
    i = ceil(0.99 * n - 1e-9)
    if i <= n - later:
        return turns, later + i
    return turns + 1.0, i - (n - later)


@jit
def waves(c: Any, n: float, more: float) -> tuple[float, float]:
    """Everybody starts and ends together."""
    passes = ceil(n * c.new / c.budget)
    rows = more * c.d0 + rows_in_all(c, n, more)
    low = passes * c.a0 + n * c.a1 * c.new + attention(c, n * c.new, False) + rows
    high = passes * c.a0 + n * c.a1 * c.new + attention(c, n * c.new, True) + rows
    if not stays_queued(c, n, low):
        return -1.0, -1.0
    turns, place = place_of_p99(c, n)
    passes = ceil(place * c.new / c.budget - 1e-9)
    tokens = min(passes * c.budget, n * c.new)
    prompts = passes * c.a0 + c.a1 * tokens
    think = 0.0 if c.clients > n else c.think_ms
    return think + turns * low + prompts + attention(c, tokens, False), think + turns * high + prompts + attention(
        c, tokens, True
    )


@jit
def stays_queued(c: Any, n: float, turn_ms: float) -> bool:
    """Whether each turn finds all its clients: they all fit seats, think no time, or are back, and enough for a turn, before the next one."""
    return c.clients <= n or c.think_ms == 0.0 or (c.clients >= 2.0 * n and c.think_ms <= turn_ms)


@jit
def in_one_pass(c: Any, n: float, more: float) -> tuple[float, float]:
    """All prompts fit one pass."""
    prompts = c.a0 + n * (c.a1 * c.new + attention_ms(c, c.new, 1.0))
    turn = prompts + more * c.d0 + rows_in_all(c, n, more)
    if not stays_queued(c, n, turn):
        return -1.0, -1.0
    if c.clients <= n:
        return c.think_ms + prompts, c.think_ms + prompts
    turns, _ = place_of_p99(c, n)
    return turns * turn + prompts, turns * turn + prompts


@jit
def known_cohorts(c: Any, n: float, more: float) -> tuple[float, float]:
    """Cohorts of whole prompts, with slack between the last and the first: nobody falls back, and the last takes the rest."""
    size, gap = floor((c.budget - n) / (c.new - 1.0)), c.ahead
    other = floor((c.budget - n) / (c.new - 2.0)) if c.ahead else size  # rows that end meanwhile leave room
    count = ceil(n / size) if size >= 1.0 else 0.0
    if (c.think_ms > 0.0 and c.clients <= n) or size != other or count < 2.0 or count > more:
        return -1.0, -1.0
    prompt_ms, last = c.a1 * c.new + attention_ms(c, c.new, 1.0), n - (count - 1.0) * size
    few, many = max(n - size * (1.0 + gap), 0.0), n - size
    low = pass_ms(c, c.a0 + size * prompt_ms, c.d0 + few * youngest(c) if few > 0.0 else 0.0)
    high = pass_ms(c, c.a0 + size * prompt_ms, c.d0 + many * oldest(c))
    last_low = pass_ms(c, c.a0 + last * prompt_ms, c.d0 + (n - last) * youngest(c))
    last_high = pass_ms(c, c.a0 + last * prompt_ms, c.d0 + (n - last) * oldest(c))
    rows_low, rows_high = c.d0 + max(n - size * gap, 1.0) * youngest(c), c.d0 + n * oldest(c)
    if c.clients > n:
        least, most = min(low, last_low), max(high, last_high)
        own_low, own_high = least + gap * min(rows_low, least), most + gap * max(rows_high, most)
        return seats_of_cohorts(c, n, size, least, most, own_low, own_high)
    if gap == 0.0:
        return low, max(high, last_high)
    if count >= 3.0:
        return 2.0 * low, max(max(2.0 * high, rows_high + high), high + last_high)
    least = rows_low + low
    if last * 100.0 > n:
        least = max(least, low + last_low)
    return least, max(max(2.0 * high, rows_high + high), high + last_high)


@jit
def seats_of_cohorts(
    c: Any, n: float, size: float, least: float, most: float, own_low: float, own_high: float
) -> tuple[float, float]:
    """Seats are given back in the order of the ring, and a request waits for `clients - n` of them."""
    more, count, gap = c.osl - 1.0, ceil(n / size), c.ahead
    bare = 1.0 if count <= gap + 1.0 else 0.0  # the first pass finds no rows
    passes = c.osl + gap
    prompts = count * c.a0 + n * (c.a1 * c.new + attention_ms(c, c.new, 1.0))
    rows = (passes - bare) * c.d0 + rows_in_all(c, n, more)
    low = high = prompts + rows - (count - bare) * c.saved_ms
    if c.overlaps > 0.0:
        only = max(passes - count - gap, 0.0) * (c.d0 + n * youngest(c))
        low, high = max(max(prompts, rows), count * least + only), prompts + rows
    if c.think_ms > 0.0 and c.clients - n < n * ceil(c.think_ms / low):
        return -1.0, -1.0
    turns = floor((c.clients - n) / n)
    later = c.clients - n - turns * n
    same_high = turns * high + ceil(later / size + 1.0) * most + own_high
    if later * 100.0 > n:  # those who pass the end of the turn
        saved = max(floor((n - later) / size) - 1.0, 0.0) * least
        next_low = (turns + 1.0) * low - min(ceil((n - later) / size) + 1.0, count) * most + own_low
        return next_low, max(same_high, (turns + 1.0) * high - saved + own_high)
    same_low = turns * low + max(floor(later / size) - 1.0, 0.0) * least + own_low
    return same_low, max(same_high, (turns + 1.0) * high + own_high) if later > 0.0 else same_high


@jit
def full_rows(c: Any, n: float, more: float, slack: float) -> tuple[float, float]:
    """Decode rows of an engine that is always full, as closely as they are held.

    Rows are the prompts completed in the last D passes, and those pass B less their own rows, so each bound gives the other; for D < L both contract.
    """
    ratio = more / c.new
    if more == 0.0:
        return 0.0, 0.0
    mean = ratio * c.budget / (1.0 + ratio)
    low = mean - ratio * slack / (1.0 - ratio * ratio) - 1.0 / (1.0 - ratio)
    high = mean + ratio * ratio * slack / (1.0 - ratio * ratio) + 1.0 / (1.0 - ratio)
    return max(low, 0.0), min(high, n - 1.0)


@jit
def always_full(c: Any, n: float, more: float) -> tuple[float, float]:
    """Prompts always wait, in seats and visible: a request waits for the tokens of those before it, which pass at a known pace."""
    slack = c.unit - 1.0
    if c.calendar == SGLANG_MIXED:
        slack = ceil(c.budget / c.new) + 1.0  # rows that end count until they are seen
    few, many = full_rows(c, n, more, slack)
    fast, slow = c.budget - few, c.budget - slack - many
    done = floor(fast / c.new) + 1.0  # in a pass, at most
    most_rows = min(c.budget * (1.0 - (1.0 - 1.0 / c.new) ** more) + 1.0, n - 1.0) if more > 0.0 else 0.0
    shortest = pass_ms(c, c.a0 + c.a1 * max(slow, 1.0), c.d0 if few > 0.0 else 0.0)
    away = done * (1.0 + c.ahead + ceil(c.think_ms / shortest))
    waiting = min(c.clients - most_rows - 2.0 - away, n - most_rows - 2.0 - done * (1.0 + c.ahead))
    if slow < 1.0 or waiting * c.new < c.budget:
        return -1.0, -1.0
    least, most = max(c.clients - many - done - 1.0, 1.0) * c.new, (c.clients - few) * c.new
    if c.calendar == TRTLLM:  # a short rest may go before a cut prompt
        least, most = max(least - c.new, c.new), most + c.new
    return least_time(c, least, fast, few), most_time(
        c, min(most + c.budget, ceil(most / slow + 1e-9) * c.budget), ceil(most / slow + 1e-9), few, many
    )


@jit
def least_time(c: Any, tokens: float, pace: float, rows: float) -> float:
    """Passes of an engine that is full, with so many rows at least."""
    passes = ceil(tokens / pace - 1e-9)
    chunks_ms = passes * c.a0 + c.a1 * tokens + attention(c, max(tokens - c.new, 0.0), False)
    rows_ms = passes * ((c.d0 if rows >= 1.0 else 0.0) + rows * youngest(c))
    return (
        max(max(chunks_ms, rows_ms), chunks_ms + rows_ms - passes * c.saved_ms)
        if not c.overlaps
        else max(chunks_ms, rows_ms)
    )


@jit
def most_time(c: Any, tokens: float, passes: float, few: float, many: float) -> float:
    """The same with so many at most."""
    chunks_ms = passes * c.a0 + c.a1 * tokens + attention(c, tokens + c.new, True)
    rows_ms = passes * (c.d0 + many * oldest(c)) if c.osl > 1.0 else 0.0
    if few >= 1.0:
        chunks_ms -= passes * c.saved_ms
    if c.overlaps > 0.0:
        pace = c.budget - few
        a_pass = max(c.a0 + (c.a1 + c.a2 * (c.past + c.new) + c.a3 * min(c.new, pace)) * pace, c.d0 + many * oldest(c))
        return min(chunks_ms + rows_ms, passes * a_pass)
    return chunks_ms + rows_ms


@jit
def at_worst(c: Any, n: float, more: float) -> float:
    """All other clients go first; where they outnumber seats, as many turns as it takes, in each of which every seat's prompt passes thrice."""
    slack = c.unit - 1.0
    if c.calendar == SGLANG_MIXED:
        slack = ceil(c.budget / c.new) + 1.0
    room = c.budget - slack - (n - 1.0 if more > 0.0 else 0.0)
    if c.calendar == ALTERNATING:
        room = c.budget
    if room < 1.0:
        return np.inf
    pass_rows = c.d0 + n * oldest(c) if more > 0.0 else 0.0
    top = c.a0 + c.budget * (c.a1 + c.a2 * (c.past + c.new) + c.a3 * min(c.new, c.budget)) + pass_rows
    wait = c.think_ms + (2.0 + c.ahead) * top
    if c.clients <= n:
        passes = ceil(n * c.new / room)
        tokens = min(n * c.new + c.budget, passes * c.budget)
        beside = 0.0 if c.calendar == ALTERNATING else passes * pass_rows
        return wait + passes * c.a0 + c.a1 * tokens + attention(c, tokens + c.new, True) + beside
    prompt_ms = c.a1 * c.new + attention(c, c.new, True)
    passes = ceil(n * c.new / room)
    if c.calendar == ALTERNATING:
        turn = (2.0 * passes + 2.0) * c.a0 + 2.0 * n * prompt_ms + more * pass_rows
    else:
        turn = (passes + more + 2.0) * (c.a0 + pass_rows) + 3.0 * n * prompt_ms
    return wait + (floor((c.clients - 1.0) / n) + 1.0) * (turn + (2.0 + c.ahead) * top)


@jit
def by_little(c: Any, n: float, more: float, high: float) -> float:
    """At most one in a hundred is above the p99, and none above the high bound; the mean is what clients without a seat wait."""
    alone = at_best(c) - c.think_ms
    chunks_ms, rows_ms = c.a1 * c.new + attention(c, c.new, False), more * youngest(c)
    work = max(chunks_ms, rows_ms) if c.overlaps > 0.0 else chunks_ms + rows_ms
    rate = n / (alone + more * (c.d0 + youngest(c)))
    if work > 0.0:
        rate = min(rate, 1.0 / work)
    mean = (c.clients - n) / rate + alone
    return (mean - 0.01 * high) / 0.99 if high < np.inf else 0.0
