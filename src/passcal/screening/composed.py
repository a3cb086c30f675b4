"""Prefill, fabric and decode composed: stages that settle at one rate, with the rest of a client's turn waiting in front of the stage that binds.

A client's turn is its turnaround, its prompt's passes, its hand-off and its decode passes, and clients = rate x turn (Little). A decode pass takes longer
the more rows share it, so the rate at which the turn fits is searched; where a stage serves less than that, it serves what it can, and what is missing of
the turn is spent in front of it. An estimate: nothing here is a bound but what `bracket` says of a lone prompt.
"""

from math import ceil, floor
from typing import Any

import numpy as np

from passcal.core.compiled import entry, jit, table
from passcal.screening.bracket import at_best
from passcal.screening.price import attention_ms
from passcal.screening.tables import BINDINGS, FIGURES, REGIMES, STAGES, columnwise

__all__ = ["composed_figures"]

CLIENTS, PREFILL, DECODE, STAGING, FABRIC = (
    BINDINGS.index(name) for name in ("clients", "prefill", "decode", "staging", "fabric")
)
COMPOSED = REGIMES.index("composed")
REGIME, BINDING, MET = (FIGURES.index(name) for name in ("regime", "binding", "met"))
HOLD = FIGURES.index("hold_mean")
STEPS = 50  # bisections
LADEN, BUSY = 0.9, 0.95  # of what a stage could do: from there on it is named, as the evaluator names it
GATHERS = 0.5  # of the passes that a busy worker is in, what a prompt waits on average


def composed_figures(prefill: Any, decode: Any, hops: Any, out: Any = None) -> Any:
    """`FIGURES` of candidates, a row each, in `out` if it is given: `CANDIDATE` rows of both pools, and `HOP` rows."""
    out = columnwise(len(hops)) if out is None else out
    out[:, MET] = 0.0
    compose_rows(table(prefill), table(decode), table(hops), table(np.zeros(1, STAGES)), out)
    return out


@entry
def compose_rows(prefill: Any, decode: Any, hops: Any, stages: Any, out: Any) -> None:
    """Fill a row of `out` for each candidate; `stages` is one `STAGES` record to work in."""
    s = stages[0]
    for i in range(len(hops)):
        p, d, h = prefill[i], decode[i], hops[i]
        if p.covered and d.covered:
            lay_out(p, d, h, s)
            settle(p, d, h, s)
            wait(p, d, h, s)
            write(p, d, h, s, out[i])
        else:
            out[i, :] = np.nan
            out[i, 7], out[i, 8], out[i, REGIME], out[i, BINDING], out[i, MET] = 0.0, np.inf, 0.0, 0.0, 0.0


@jit
def lay_out(p: Any, d: Any, h: Any, s: Any) -> None:
    """What does not depend on the rate: a prompt's passes, its bytes, and how many stand where."""
    s.gaps = h.osl - 1.0
    s.passes = s.gaps + (1.0 if h.first_token == 2.0 else 0.0)
    goes = h.osl > 1.0 or h.first_token > 0.0
    seats = min(min(p.seats, h.inflight), h.held_prefill)
    s.holding = np.inf
    if goes and h.hold > 0.0:
        s.holding = seats if h.hold == 2.0 else h.held_prefill
    chunk = min(p.budget, p.new)
    count = ceil(p.new / chunk)
    s.prompt_ms = p.a1 * p.new + attention_ms(p, chunk, count)
    s.own_ms = count * p.a0 + s.prompt_ms
    shares = count if seats <= 1.0 else max(p.new / p.budget, 1.0 / seats)  # of passes, for a prompt
    s.work_ms = s.prompt_ms + p.a0 * shares
    s.seats = min(d.seats, h.held_decode)
    s.cohort = min(max(1.0, floor(min(p.budget / p.new, seats))) * h.sources, p.clients)
    if s.passes > 0.0:
        s.cohort = min(s.cohort, s.seats * h.sinks)
    s.batch = size_seen(s.cohort, h.sources)
    s.locked = stays_together(p, h, s)
    s.row_ms = d.d1 + d.d2 * (d.isl + h.osl * 0.5)
    s.unit_ms = h.bytes / h.capacity if goes else 0.0
    s.left_ms = s.unit_ms * min(1.0, p.budget / p.new) if h.transfer_start == 1.0 else s.unit_ms
    s.latency_ms = h.latency_ms if goes else 0.0
    s.ends = min(h.sources, h.sinks)


@jit
def size_seen(count: float, parts: float) -> float:
    """The size of its part that one of so many sees on average, where they are dealt to parts in turn."""
    if count <= parts:
        return 1.0
    small = floor(count / parts)
    large = count - small * parts  # parts with one more
    return (large * (small + 1.0) ** 2 + (parts - large) * small**2) / count


@jit
def stays_together(p: Any, h: Any, s: Any) -> bool:
    """Whether a cohort that prefill makes together ends together: one decode worker, or all of them with equally many of it."""
    if h.sinks == 1.0:
        return True
    return s.cohort % h.sinks == 0.0 and s.cohort % h.sources == 0.0 and p.clients % s.cohort == 0.0


@jit
def batch_ms(s: Any, count: float) -> float:
    """A prefill pass with so many prompts, or all passes of one that takes several."""
    return s.own_ms + (count - 1.0) * s.prompt_ms


@jit
def rows_ms(d: Any, s: Any, rows: float) -> float:
    """A decode pass."""
    return d.d0 + max(rows, 1.0) * s.row_ms


@jit
def transfer_ms(p: Any, h: Any, s: Any, count: float) -> float:
    """A hand-off where so many prompts end together: they share egress and ingress, as far as memory lets them start."""
    into = min(min(count * h.sources / h.sinks, h.held_decode), p.clients / h.sinks)
    together = max(max(into, min(count, h.held_decode * h.sinks)), 1.0)
    turns = max(1.0, together / h.most)
    return 0.5 * (1.0 + 1.0 / turns) * (together * s.left_ms + turns * s.latency_ms)


@jit
def cohorts_ms(p: Any, d: Any, h: Any, s: Any, pass_ms: float) -> float:
    """A decode pass of one worker, where a cohort that prefill makes together stays together: the rows that it shares its passes with."""
    size, count = s.cohort, max(1.0, p.clients / s.cohort)
    life, step = max(s.passes * pass_ms, 1e-9), batch_ms(s, s.batch)
    n = floor(min(count - 1.0, life / step))
    others = n - (1.0 / count + step / life) * n * (n + 1.0) * 0.5
    others += step / (count * life) * n * (n + 1.0) * (2.0 * n + 1.0) / 6.0
    rows = min(size * (1.0 + 2.0 * others), p.clients) / h.sinks
    return rows_ms(d, s, min(rows, s.seats))


@jit
def at_rate(p: Any, d: Any, h: Any, s: Any, rate: float) -> None:
    """Passes, hand-offs and attaching at a rate (requests a ms), without what waits for a stage that binds."""
    load = rate * s.passes * s.row_ms / h.sinks
    s.pass_ms = max(d.d0 / (1.0 - load) if load < 1.0 else 1e18, rows_ms(d, s, 1.0))
    beside = min(1.0, rate * s.passes * s.pass_ms / h.sinks) * (p.clients - 1.0) / p.clients
    count = s.batch
    if s.locked > 0.0:
        s.pass_ms = max(s.pass_ms, cohorts_ms(p, d, h, s, s.pass_ms))
        s.prefill_ms = batch_ms(s, count)
        if s.cohort >= p.clients:  # all come at once
            beside = 0.0
    else:  # cohorts come apart at the workers, and gather where a pass ends or a prompt's pass runs
        each = rate / h.sources
        free = 1.0 - each * s.prompt_ms
        count = max(each * s.pass_ms / h.sinks, each * (s.own_ms - s.prompt_ms) / free if free > 0.0 else s.batch)
        count = min(max(count, 1.0), s.batch)
        s.prefill_ms = batch_ms(s, count)
        if s.batch > 1.0:
            s.prefill_ms *= 1.0 + GATHERS * min(1.0, each * s.prefill_ms / count)
    s.transfer_ms = transfer_ms(p, h, s, count)
    s.attach_ms = beside * s.pass_ms * (0.5 + d.ahead) if s.passes > 0.0 else 0.0


@jit
def turn_ms(p: Any, s: Any) -> float:
    """A client's turn, as far as nothing waits."""
    return p.think_ms + s.prefill_ms + s.transfer_ms + s.attach_ms + s.passes * s.pass_ms


@jit
def resident_ms(h: Any, s: Any) -> float:
    """How long a request has memory of the decode side."""
    early = s.prefill_ms if h.early else 0.0
    return early + s.transfer_ms + s.attach_ms + s.passes * s.pass_ms


@jit
def largest(p: Any, d: Any, h: Any, s: Any, top: float, staged: bool) -> float:
    """The largest rate up to `top` at which clients suffice, or (`staged`) memory of the decode side does."""
    low, high, rate = 0.0, top, top
    for _ in range(STEPS):
        at_rate(p, d, h, s, rate)
        needed = rate * (resident_ms(h, s) if staged else turn_ms(p, s))
        if needed > (h.sinks * h.held_decode if staged else p.clients):
            high = rate
        else:
            low = rate
        if high - low <= 1e-12 * high:
            break
        rate = 0.5 * (low + high)
    return low


@jit
def settle(p: Any, d: Any, h: Any, s: Any) -> None:
    """The rate, and which limit it is: of the clients, or of the stage that serves least."""
    prefill = h.sources / s.work_ms
    if s.holding < np.inf:
        size = max(1.0, floor(min(s.holding, p.budget / p.new)))
        prefill = min(prefill, h.sources * s.holding / (batch_ms(s, size) + transfer_ms(p, h, s, size)))
    decode = fabric = staging = np.inf
    if s.passes > 0.0:
        last = rows_ms(d, s, s.seats * s.passes / (s.passes + d.ahead))
        decode = h.sinks * s.seats / ((s.passes + d.ahead) * last)
    if s.unit_ms + s.latency_ms / h.most > 0.0:
        fabric = s.ends / (s.unit_ms + s.latency_ms / h.most)
    least = min(min(prefill, decode), fabric)
    if h.held_decode < np.inf:
        staging = largest(p, d, h, s, least, True)
    alone = p.think_ms + s.own_ms + s.latency_ms + s.passes * d.d0
    s.rate = largest(p, d, h, s, min(least, p.clients / alone), False)
    s.binding = CLIENTS
    least = min(least, staging)
    if least <= s.rate * (1.0 + 1e-9):
        s.rate = least
        s.binding = PREFILL if least == prefill else DECODE if least == decode else FABRIC
        if least == staging and least < min(min(prefill, decode), fabric):
            s.binding = STAGING
    elif fabric < np.inf and s.rate > LADEN * fabric:
        s.binding = FABRIC
    elif s.rate * s.work_ms > BUSY * h.sources:
        s.binding = PREFILL
    at_rate(p, d, h, s, s.rate)
    if s.binding == DECODE:
        s.pass_ms = last


@jit
def wait(p: Any, d: Any, h: Any, s: Any) -> None:
    """Spend what is left of a turn in front of the stage that binds, and what has no place there in front of the stage before it."""
    left = max(0.0, p.clients / s.rate - turn_ms(p, s))
    s.queue_ms = left if s.binding == PREFILL else 0.0
    s.hold_ms = left if s.binding == STAGING else 0.0
    s.transfer_ms += left if s.binding == FABRIC else 0.0
    s.attach_ms += left if s.binding == DECODE else 0.0
    if s.binding == FABRIC or s.binding == DECODE:
        over = max(0.0, resident_ms(h, s) - h.sinks * h.held_decode / s.rate)  # no memory for them
        if over > 0.0:
            if s.binding == FABRIC:
                over = min(over, s.transfer_ms)
                s.transfer_ms -= over
            else:
                over = min(over, s.attach_ms)
                s.attach_ms -= over
            s.hold_ms, s.binding = over, STAGING
    if h.early:
        s.queue_ms, s.hold_ms = s.queue_ms + s.hold_ms, 0.0
    if s.holding < np.inf and s.binding != PREFILL:
        over = max(0.0, s.hold_ms + s.transfer_ms + s.prefill_ms - h.sources * s.holding / s.rate)
        held = min(over, s.hold_ms)
        sent = min(over - held, s.transfer_ms) if s.binding == FABRIC else 0.0
        s.hold_ms, s.transfer_ms, s.queue_ms = s.hold_ms - held, s.transfer_ms - sent, s.queue_ms + held + sent


@jit
def write(p: Any, d: Any, h: Any, s: Any, out: Any) -> None:
    """Figures; every quantile of TTFT, TPOT, E2E and queue is the mean."""
    alone = at_best(p)
    if h.first_token > 0.0:
        alone += s.latency_ms + (s.unit_ms if h.transfer_start == 0.0 else 0.0)
    over = s.hold_ms + s.transfer_ms + s.attach_ms
    first = p.think_ms + s.queue_ms + s.prefill_ms
    e2e = p.clients / s.rate
    if h.first_token > 0.0:
        first += over + (s.pass_ms if h.first_token == 2.0 else 0.0)
    first = min(max(first, alone), max(e2e, alone))
    gap = (e2e - first) / s.gaps if s.gaps > 0.0 else np.nan
    exact = p.exact > 0.0 and d.exact > 0.0
    out[0:7], out[7], out[8] = first, alone * (1.0 - 1e-9) if exact else 0.0, np.inf
    out[9], out[10] = np.nan, np.nan
    out[11], out[14:21] = gap, gap
    out[12] = out[13] = gap if s.gaps <= 1.0 else s.pass_ms
    if 1.0 < s.gaps < 100.0 and h.first_token == 0.0:
        out[13] = over + s.pass_ms  # the first gap of each request
    out[21:28], out[28:35] = e2e, s.queue_ms
    out[35], out[36] = 1000.0 * s.rate, 1000.0 * s.rate * h.osl
    out[REGIME], out[BINDING] = COMPOSED, s.binding
    out[HOLD], out[HOLD + 1], out[HOLD + 2] = s.hold_ms, s.transfer_ms, s.attach_ms
