"""One entry: rows of candidates in, rows of figures out."""

from typing import Any

import numpy as np

from passcal.core.compiled import entry, jit, table
from passcal.screening.arrivals import OVERLOAD, arrive
from passcal.screening.bracket import at_best, bracket
from passcal.screening.few import ATOMS, FEW, few
from passcal.screening.fused import CROWDED, FULL, fused
from passcal.screening.gaps import gaps
from passcal.screening.price import level, sort_atoms
from passcal.screening.startup import startup
from passcal.screening.tables import ALTERNATING, CLIENT, FIGURES, LEVELS, WORK
from passcal.screening.wave import PROMPTS, WAVE, prompts_only, wave

__all__ = ["figures_of"]

REGIME, BINDING = 37, 38
CLIENTS, SEATS, BUDGET, KV, PREFILL, DECODE = 0, 1, 2, 3, 4, 5
IN_KV = 9  # regime


def figures_of(rows: Any) -> Any:
    """`FIGURES` of `CANDIDATE` rows: one row each, one column a figure. Changes the rows."""
    out = np.zeros((len(rows), len(FIGURES)))  # the last of them are of hand-offs
    screen_rows(table(rows), table(np.zeros(1, WORK)), np.zeros((ATOMS, 3)), table(np.zeros(FEW, CLIENT)), out)
    return out


@entry
def screen_rows(candidates: Any, work: Any, atoms: Any, clients: Any, out: Any) -> None:
    """Fill a row of `out` (`FIGURES`) for each candidate (`CANDIDATE`); `work` is one `WORK` record, `atoms` rows of three numbers, `clients` of `CLIENT`."""
    w = work[0]
    for i in range(len(candidates)):
        c, figures = candidates[i], out[i]
        if not c.covered:
            figures[:] = np.nan
            figures[7], figures[8], figures[REGIME], figures[BINDING] = 0.0, np.inf, 0.0, 0.0
            continue
        seats = c.seats
        c.seats = min(seats, c.in_kv)
        screen_one(c, w, atoms, clients, figures)
        if c.in_kv < min(seats, c.clients):
            figures[REGIME], figures[BINDING] = IN_KV, KV
        c.seats = seats


@jit
def screen_one(c: Any, w: Any, atoms: Any, clients: Any, out: Any) -> None:
    """All figures of one candidate."""
    if c.rate > 0.0:
        screen_open(c, w, atoms, out)
        return
    if c.calendar == ALTERNATING and c.osl > 1.0:
        wave(c, w, out)
    else:
        if c.calendar == ALTERNATING:
            prompts_only(c, w, atoms, out)
        else:
            fused(c, w, atoms)
            if 1.0 < w.n <= FEW and not w.queued and c.clients <= c.seats and w.n * c.new > c.budget:
                few(c, w, atoms, clients)
        latencies(c, w, atoms, out)
        if w.regime != PROMPTS:
            out[12], out[13] = gaps(c, w, atoms)
            out[9], out[10] = startup(c, w)
    low, high = bracket(c)
    out[7], out[8] = low * (1.0 - 1e-9), high * (1.0 + 1e-9)
    out[0] = w.mean_ms
    out[5] = min(max(out[5], low), high)
    out[6] = max(out[6], out[5])
    out[4], out[3], out[2], out[1] = min(out[4], out[5]), min(out[3], out[5]), min(out[2], out[5]), min(out[1], out[5])
    out[21] = c.clients / w.rate
    out[11] = out[14] = w.span_ms / w.more if w.more > 0.0 else np.nan
    out[35], out[36] = 1000.0 * w.rate, 1000.0 * w.rate * c.osl
    out[REGIME], out[BINDING] = w.regime, binding(c, w)


@jit
def screen_open(c: Any, w: Any, atoms: Any, out: Any) -> None:
    """An open loop: its engine's capacity from twice as many clients as seats, then what a request finds."""
    think, c.clients, c.think_ms = c.think_ms, 2.0 * c.seats, 0.0
    if c.calendar == ALTERNATING and c.osl > 1.0:
        wave(c, w, out)
    elif c.calendar == ALTERNATING:
        prompts_only(c, w, atoms, out)
    else:
        fused(c, w, atoms)
    c.think_ms = think
    out[12], out[13] = arrive(c, w, atoms, 1.0 * w.rate)
    latencies(c, w, atoms, out)
    out[0], out[21] = w.mean_ms, w.mean_ms + w.span_ms
    out[7], out[8] = at_best(c) * (1.0 - 1e-9), np.inf
    out[9] = out[10] = np.nan
    out[11] = out[14] = w.span_ms / w.more if w.more > 0.0 else np.nan
    out[35], out[36] = 1000.0 * w.rate, 1000.0 * w.rate * c.osl
    out[REGIME], out[BINDING] = w.regime, BUDGET if w.regime == OVERLOAD else CLIENTS


@jit
def latencies(c: Any, w: Any, atoms: Any, out: Any) -> None:
    """Quantiles of TTFT, and of what follows from it: E2E, TPOT, and the wait before a request's own passes."""
    count, e2e = int(w.atoms), c.clients / w.rate
    sort_atoms(atoms, count)
    for a in range(len(LEVELS)):
        ttft = level(atoms, count, LEVELS[a])
        out[1 + a] = ttft
        out[22 + a] = ttft + w.span_ms if w.queued else e2e  # a client's turn is always as long
        span = w.span_ms if w.queued else max(e2e - level(atoms, count, 1.0 - LEVELS[a]), 0.0)
        out[15 + a] = span / w.more if w.more > 0.0 else np.nan
        out[29 + a] = max(0.0, ttft - c.think_ms - w.own_ms)
    out[28] = max(0.0, w.mean_ms - c.think_ms - w.own_ms)


@jit
def binding(c: Any, w: Any) -> float:
    """The limit that binds, as the evaluator names it: what keeps requests waiting, else what passes spend their time on."""
    if w.regime == FULL or w.regime == CROWDED or (w.regime == PROMPTS and w.mixed > 1.0):
        return BUDGET
    if w.queued:
        return SEATS
    rows = max(1.0, w.rate * w.span_ms)
    context = c.isl + c.osl * 0.5
    many, one = c.d0 + rows * (c.d1 + c.d2 * context), c.d0 + c.d1 + c.d2 * context
    prefill = min(1.0, w.rate * (w.prompt_ms + c.a0 * w.mixed / w.n))
    fixed = (1.0 - prefill) * min(1.0, one / many) if w.more > 0.0 else 0.0
    waits = c.think_ms if w.idle or w.regime == WAVE else 0.0
    if fixed >= 0.5 or waits > 0.05 * w.cycle_ms:
        return CLIENTS
    return PREFILL if prefill >= 1.0 - prefill - fixed else DECODE
