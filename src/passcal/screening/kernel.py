"""One entry: rows of candidates in, rows of figures out."""

from typing import Any, NamedTuple

import numpy as np

from passcal.core.compiled import entry, jit, table
from passcal.screening.arrivals import OVERLOAD, arrive
from passcal.screening.bracket import at_best, bracket
from passcal.screening.fused import CROWDED, FULL, fused
from passcal.screening.gaps import gaps
from passcal.screening.groups import HERE, is_sure, travel
from passcal.screening.mixture import BINS, levels, sort_atoms
from passcal.screening.startup import startup
from passcal.screening.tables import ALTERNATING, GROUP, LEVELS, SERVED, STATE, WORK, columnwise
from passcal.screening.travelled import seen_figures
from passcal.screening.wave import PROMPTS, WAVE, prompts_only, wave
from passcal.screening.worth import MOST, worth

__all__ = ["figures_of", "scratch"]

REGIME, BINDING, MET = 37, 38, 39
CLIENTS, SEATS, BUDGET, KV, PREFILL, DECODE = 0, 1, 2, 3, 4, 5
IN_KV = 9  # regime
FROM_BELOW = tuple(1.0 - share for share in reversed(LEVELS))


class Scratch(NamedTuple):
    """What a candidate is worked out in.

    Attributes:
        work: one `WORK` record.
        states: three `STATE` records, the first one zeros.
        waiting, rows: a `GROUP` a step.
        served: three `SERVED` a step.
        gaps: three rows of four numbers a step: a mixture, and the passes of each row of it.
        atoms: six rows of three numbers a step, and `BINS`.
    """

    work: Any
    states: Any
    waiting: Any
    rows: Any
    served: Any
    gaps: Any
    atoms: Any


def figures_of(rows: Any, out: Any = None, steps: int | None = None) -> Any:
    """`FIGURES` of `CANDIDATE` rows: one row each, one column a figure, in `out` if it is given. Changes the rows.

    `steps` is how far each of them is gone through; None: where it is likely to be worth it.
    """
    out = columnwise(len(rows)) if out is None else out
    out[:, MET:] = 0.0
    screen_rows(table(rows), scratch(MOST if steps is None else steps), -1 if steps is None else steps, out)
    return out


def scratch(steps: int) -> Scratch:
    """Room for so many steps."""
    each = 3 * steps + 8
    work, states = table(np.zeros(1, WORK)), table(np.zeros(3, STATE))
    waiting, rows = table(np.empty(steps + 2, GROUP)), table(np.empty(steps + 2, GROUP))
    served, gaps, atoms = table(np.empty(each, SERVED)), np.empty((each, 4)), np.empty((2 * each + BINS, 3))
    return Scratch(work, states, waiting, rows, served, gaps, atoms)


@entry
def screen_rows(candidates: Any, room: Any, steps: int, out: Any) -> None:
    """Fill a row of `out` (`FIGURES`) for each candidate (`CANDIDATE`); `room` is `Scratch`, `steps` as of `figures_of`, or -1."""
    for i in range(len(candidates)):
        c, figures = candidates[i], out[i]
        if not c.covered:
            figures[:] = np.nan
            figures[7], figures[8], figures[REGIME], figures[BINDING], figures[MET] = 0.0, np.inf, 0.0, 0.0, 0.0
            continue
        seats = c.seats
        c.seats = min(seats, c.in_kv)
        if c.rate > 0.0:
            screen_open(c, room.work[0], room.atoms, figures)
        else:
            screen_closed(c, room, steps, figures)
        if c.in_kv < min(seats, c.clients):
            figures[REGIME], figures[BINDING], figures[MET] = IN_KV, KV, 0.0
        c.seats = seats


@jit
def screen_closed(c: Any, room: Any, steps: int, out: Any) -> None:
    """A closed loop: gone through where that ends soon, else in closed form."""
    w, s = room.work[0], room.states[HERE]
    if c.calendar != ALTERNATING:
        fused(c, w, room.atoms)
    elif c.osl > 1.0:
        wave(c, w, out)
    else:
        prompts_only(c, w, room.atoms, out)
    most = worth(c, w) if steps < 0 else steps
    met = most > 0 and travel(c, room, most)
    if met:
        seen_figures(c, room, out, steps >= 0)
        w.rate, w.span_ms = out[35] / 1000.0, max(out[21] - out[0], 0.0)
    else:
        estimate(c, w, room.atoms, out)
    if met and is_sure(c, s):
        low = high = out[5]
        out[MET] = 1.0
    else:
        low, high = bracket(c)
        out[5] = min(max(out[5], low), high)
        out[6] = max(out[6], out[5])
        for a in range(4, 0, -1):
            out[a] = min(out[a], out[5])
    out[7], out[8] = low * (1.0 - 1e-9), high * (1.0 + 1e-9)
    out[REGIME], out[BINDING] = w.regime, binding(c, w)


@jit
def estimate(c: Any, w: Any, atoms: Any, out: Any) -> None:
    """What follows from a turn in closed form."""
    if w.regime != WAVE:
        latencies(c, w, atoms, out)
        if w.regime != PROMPTS:
            out[12], out[13] = gaps(c, w, atoms)
            out[9], out[10] = startup(c, w)
    out[0] = w.mean_ms
    out[21] = c.clients / w.rate
    out[11] = out[14] = w.span_ms / w.more if w.more > 0.0 else np.nan
    out[35], out[36] = 1000.0 * w.rate, 1000.0 * w.rate * c.osl


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
    levels(atoms, count, LEVELS, out, 1)
    levels(atoms, count, FROM_BELOW, out, 22)  # until E2E is written
    for a in range(len(LEVELS)):
        span = w.span_ms if w.queued else max(e2e - out[22 + len(LEVELS) - 1 - a], 0.0)
        out[15 + a] = span / w.more if w.more > 0.0 else np.nan
        out[29 + a] = max(0.0, out[1 + a] - c.think_ms - w.own_ms)
    for a in range(len(LEVELS)):
        out[22 + a] = out[1 + a] + w.span_ms if w.queued else e2e  # a client's turn is always as long
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
