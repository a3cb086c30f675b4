"""Throughput and TTFT of the fused calendars (vLLM, SGLang mixed, TensorRT-LLM), regime by regime."""

from math import ceil, floor
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.mixture import put
from passcal.screening.price import context_sum_ms, cut_attention_ms
from passcal.screening.ring import form_ring, full_engine, price_ring

__all__ = ["CHUNKED", "COHORTS", "CROWDED", "FULL", "RETURNING", "TOGETHER", "fused"]

TOGETHER, COHORTS, CHUNKED, FULL, CROWDED, RETURNING = 1, 2, 3, 4, 5, 6


@jit
def fused(c: Any, w: Any, atoms: Any) -> None:
    """Regime, rate, and the mixture of TTFT."""
    w.more = c.osl - 1.0
    w.n = min(c.clients, c.seats)
    w.queued = c.clients > w.n
    w.row_ms = c.d1 + c.d2 * (c.isl + c.osl * 0.5)
    full_engine(c, w)
    if w.queued and c.think_ms > 0.0 and c.clients - c.think_ms * seated_rate(c, w) < w.n:
        w.queued, w.n = 0.0, c.clients  # so many think that seats stay free
    form_ring(c, w)
    if (
        w.idle and w.n > c.seats and w.more > 0.0
    ):  # those whom a burst seats together stay together, and others are away meanwhile
        w.n = c.seats
        form_ring(c, w)
    price_ring(c, w)
    several = w.count > 1.0 and not w.idle
    if (several and w.n * w.per_request > w.turn) or (c.osl == 1.0 and w.idle and w.count > 1.0):
        full(c, w, atoms)
        return
    w.rate = (w.n if w.queued else c.clients) / w.cycle_ms
    w.own_ms = w.span * ((w.count - 1.0) * w.cohort * w.cohort_ms + w.last * w.last_ms) / w.n
    if w.span > 1.0:
        w.own_ms = w.span * w.chunk_ms - (w.chunk_ms - w.rest_ms) / w.group
    if several and w.mixed > w.turn:
        crowded(c, w, atoms)
    elif w.queued and c.think_ms > 0.0 and c.clients - w.n < w.cohort:
        scattered(c, w, atoms)
    elif w.count == 1.0:
        together(c, w, atoms)
    elif w.queued:
        queue_for_seats(c, w, atoms)
    elif w.idle:
        returning(c, w, atoms)
    elif w.span > 1.0:
        chunked(c, w, atoms)
    else:
        cohorts(c, w, atoms)


@jit
def seated_rate(c: Any, w: Any) -> float:
    """The rate if all seats were always taken."""
    room = max(c.budget - w.n, 1.0)
    tokens = w.n * (c.a1 * c.new + cut_attention_ms(c, room)) + context_sum_ms(c, w.n, w.more)
    passes = (c.osl + c.ahead) * c.d0 + max(w.n * w.per_request, 1.0) * (c.a0 - c.saved_ms)
    return min(w.full_rate, w.n / (tokens + passes))


@jit
def settle_mean(w: Any, atoms: Any, count: int) -> None:
    """The mean of the mixture."""
    total, weight = 0.0, 0.0
    for a in range(count):
        total += atoms[a, 0] * (atoms[a, 1] + atoms[a, 2]) * 0.5
        weight += atoms[a, 0]
    w.mean_ms, w.atoms = total / weight, count


@jit
def by_little(c: Any, w: Any, atoms: Any, a_pass: float, long_ms: float, longs: float) -> None:
    """The mean by Little's identity, in whole passes; but for a share of requests that take longer."""
    w.mean_ms = max(c.clients / w.rate - w.span_ms, w.own_ms)
    most = max(long_ms, w.mean_ms)
    longs = min(longs, 0.5 * (w.mean_ms - w.own_ms) / (most - w.own_ms)) if most > w.own_ms else 0.0
    others = max((w.mean_ms - longs * most) / (1.0 - longs), 0.0)
    passes = floor(others / a_pass + 1e-9)
    share = min(max(others / a_pass - passes, 0.0), 1.0)
    put(atoms, 0, (1.0 - longs) * (1.0 - share), passes * a_pass, passes * a_pass)
    put(atoms, 1, (1.0 - longs) * share, (passes + 1.0) * a_pass, (passes + 1.0) * a_pass)
    put(atoms, 2, longs, most, most)
    w.atoms = 3.0


@jit
def full(c: Any, w: Any, atoms: Any) -> None:
    """More work than passes."""
    w.regime, w.own_ms = FULL, w.full_ms
    w.span_ms = w.more * w.full_ms
    w.rate = w.full_rate
    served = w.span_ms + w.span * w.full_ms
    if w.n > c.seats:
        w.rate = min(w.rate, c.seats / served)
    if c.think_ms > 0.0 and not w.queued:
        w.rate = min(w.full_rate, c.clients / (c.think_ms + served))
    by_little(c, w, atoms, w.full_ms, 0.0, 0.0)


@jit
def crowded(c: Any, w: Any, atoms: Any) -> None:
    """Passes suffice for the tokens, not for whole prompts: so many as are too many are cut, take a pass more, and wait behind a cut one."""
    w.regime = CROWDED
    a_pass = w.cycle_ms / w.turn
    w.span_ms = w.more * a_pass
    w.own_ms = w.span * a_pass
    by_little(c, w, atoms, a_pass, (w.gap + w.span + 2.0) * w.full_ms, min((w.mixed - w.turn) / w.n, 0.5))


@jit
def scattered(c: Any, w: Any, atoms: Any) -> None:
    """Fewer wait than a cohort has seats, and the others are not back yet: cohorts split until prompts come one by one, and passes are all alike."""
    w.regime = CROWDED
    if w.count == 1.0 and w.more > 0.0:  # no longer in one pass
        w.cycle_ms += (w.n - 1.0) * (c.a0 - c.saved_ms) + (1.0 + c.ahead) * c.d0
        w.turn = w.more + 1.0 + c.ahead
    w.rate = min(w.n / w.cycle_ms, c.clients / (w.cycle_ms + c.think_ms))
    a_pass = w.cycle_ms / w.turn
    w.span_ms = w.more * a_pass
    w.own_ms = w.span * a_pass
    by_little(c, w, atoms, a_pass, 0.0, 0.0)


@jit
def together(c: Any, w: Any, atoms: Any) -> None:
    """One cohort: its clients find the engine idle, or the seats of a whole cohort free."""
    w.regime = TOGETHER
    w.own_ms = w.span * c.a0 + w.n * w.prompt_ms
    think = 0.0 if w.queued else c.think_ms
    w.span_ms = w.cycle_ms - w.own_ms - think
    turns = floor((c.clients - w.n) / w.n) if w.queued else 0.0
    later = c.clients - w.n - turns * w.n if w.queued else 0.0
    put(atoms, 0, w.n - later, turns * w.cycle_ms + w.own_ms + think, turns * w.cycle_ms + w.own_ms + think)
    put(atoms, 1, later, atoms[0, 1] + w.cycle_ms, atoms[0, 1] + w.cycle_ms)
    settle_mean(w, atoms, 2)


@jit
def queue_for_seats(c: Any, w: Any, atoms: Any) -> None:
    """Clients outnumber seats: a request waits until `clients - n` seats have been given back, in the order of the ring.

    Whose seat comes in the same turn waits for the cohorts between; who passes the end of the turn saves the cohorts between.
    """
    w.regime = COHORTS if w.span == 1.0 else CHUNKED
    turns = floor((c.clients - w.n) / w.n)
    later = c.clients - w.n - turns * w.n
    step = w.cohort_ms if w.span == 1.0 else w.mixed * w.cohort_ms / w.n
    start = turns * w.cycle_ms + w.cohort_ms * w.span + w.gap * step
    ahead, behind = later / w.cohort, (w.n - later) / w.cohort
    up, down = floor(ahead), floor(behind)
    put(atoms, 0, (w.n - later) * (1.0 - ahead + up), start + up * step, start + up * step)
    put(atoms, 1, (w.n - later) * (ahead - up), start + (up + 1.0) * step, start + (up + 1.0) * step)
    start += w.cycle_ms
    put(atoms, 2, later * (1.0 - behind + down), start - down * step, start - down * step)
    put(atoms, 3, later * (behind - down), start - (down + 1.0) * step, start - (down + 1.0) * step)
    settle_mean(w, atoms, 4)
    waits = w.gap * (w.cohort_ms * w.span * (w.count - 1.0) + w.rows_only_ms) / w.count
    mean = (c.clients / w.n - 1.0) * w.cycle_ms + w.own_ms + waits  # by Little
    for a in range(4):
        atoms[a, 1] += mean - w.mean_ms
        atoms[a, 2] += mean - w.mean_ms
    w.mean_ms = mean
    w.span_ms = max(c.clients / w.rate - mean, 0.0)


@jit
def returning(c: Any, w: Any, atoms: Any) -> None:
    """All are done before the first cohort is back: it starts at once, the others queue behind it, as they were done behind it."""
    w.regime = RETURNING
    others = w.count - 1.0
    tail = w.drain_ms / others
    low = c.think_ms + w.first_ms * w.span
    if w.span == 1.0:
        high = c.think_ms + others * w.cohort_ms
        end = high + w.last_ms
    else:
        high = low + (others - 1.0) * each_behind(c, w)
        end = low + others * each_behind(c, w)
    put(atoms, 0, w.cohort * others, low, high - (others - 1.0) * tail)
    put(atoms, 1, w.last, end - others * tail, end - others * tail)
    settle_mean(w, atoms, 2)
    w.span_ms = max(c.clients / w.rate - w.mean_ms, 0.0)


@jit
def each_behind(c: Any, w: Any) -> float:
    """From the end of one prompt to that of the next, where it begins in what the one before leaves."""
    passes = (w.mixed - w.span) / (w.count - 1.0)
    if c.overlaps > 0.0:
        return max(passes * w.cohort_ms, passes * c.a0 + w.prompt_ms)
    return passes * (w.cohort_ms - w.prompt_ms / w.span) + w.prompt_ms


@jit
def chunked(c: Any, w: Any, atoms: Any) -> None:
    """One prompt after another: the first ones wait for passes of rows only, the others for chunks of the prompts before them."""
    w.regime = CHUNKED
    early = min(ceil(w.gap / w.span), w.n)
    own = w.span * w.chunk_ms if w.backlog else w.own_ms
    low = w.gap * w.rows_only_ms + own
    grown = (w.chunk_ms - w.rows_only_ms) * min(w.gap, max(early - 1.0, 0.0) * w.span)
    put(atoms, 0, early, low, low + grown)
    late, wait = w.n - early, w.gap * w.chunk_ms
    inner, outer = wait + w.span * w.chunk_ms, wait + (w.span - 1.0) * w.chunk_ms + w.rest_ms
    if w.backlog or w.group == 1.0:
        inner = outer = wait + own
    put(atoms, 1, late * (1.0 - 1.0 / w.group), inner, inner)
    put(atoms, 2, late / w.group, outer, outer)
    settle_mean(w, atoms, 3)
    w.span_ms = max(c.clients / w.rate - w.mean_ms, 0.0)


@jit
def cohorts(c: Any, w: Any, atoms: Any) -> None:
    """Cohort j waits for `gap` passes, the last j of them with chunks, and then for its own."""
    w.regime = COHORTS
    gap, rows_only = w.gap, w.rows_only_ms
    early = min(gap, w.count - 1.0)
    low = gap * rows_only + w.first_ms
    grown = max(w.cohort_ms - rows_only, 0.0) * max(early - 1.0, 0.0)
    put(atoms, 0, w.cohort * early, low, low + grown)
    wait = early * w.cohort_ms + (gap - early) * rows_only
    put(atoms, 1, w.cohort * (w.count - 1.0 - early), wait + w.first_ms, wait + w.before_last_ms)
    put(atoms, 2, w.last, wait + w.last_ms, wait + w.last_ms)
    settle_mean(w, atoms, 3)
    w.span_ms = max(c.clients / w.rate - w.mean_ms, 0.0)
