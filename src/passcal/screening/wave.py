"""The alternating calendar: a wave of prompts in full passes, then all rows in step, until all are done at once.

Rows pause while a prompt can go on, so whoever starts together decodes together and ends together: the wave repeats itself exactly.
"""

from math import ceil, floor
from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.mixture import put
from passcal.screening.price import cut_attention_ms
from passcal.screening.tables import LEVELS

__all__ = ["PROMPTS", "WAVE", "prompts_only", "stair_ms", "wave"]

WAVE, PROMPTS = 7, 8
EXACT = 64  # passes of a wave that are gone through one by one


@jit
def stair_ms(c: Any, w: Any, i: float) -> float:
    """When the i-th prompt of a wave is completed."""
    passes = ceil(i * c.new / c.budget - 1e-9)
    return w.own_ms if passes >= w.mixed else passes * w.chunk_ms


@jit
def form_wave(c: Any, w: Any) -> float:
    """Passes, their price and the mean completion; `own_ms` is the whole wave. Returns how many prompts the last pass completes."""
    n = w.n
    w.mixed = ceil(n * c.new / c.budget)
    w.prompt_ms = c.a1 * c.new + cut_attention_ms(c, c.budget)
    w.own_ms = w.mixed * c.a0 + n * w.prompt_ms
    w.rest_ms = c.a0 + (n - (w.mixed - 1.0) * c.budget / c.new) * w.prompt_ms
    w.chunk_ms = (w.own_ms - w.rest_ms) / (w.mixed - 1.0) if w.mixed > 1.0 else w.own_ms
    last = n - floor((w.mixed - 1.0) * c.budget / c.new + 1e-12)
    w.mean_ms = mean_pass(c, w) * w.chunk_ms - last / n * (w.mixed * w.chunk_ms - w.own_ms)
    return last


@jit
def mean_pass(c: Any, w: Any) -> float:
    """The pass that completes a prompt, averaged over a wave."""
    ratio = c.new / c.budget
    if w.mixed <= EXACT:
        before, total = 0.0, 0.0
        for p in range(1, int(w.mixed) + 1):
            done = min(w.n, floor(p / ratio + 1e-9))
            total += (done - before) * p
            before = done
        return total / w.n
    if w.n <= EXACT:
        total = 0.0
        for i in range(1, int(w.n) + 1):
            total += ceil(i * ratio - 1e-9)
        return total / w.n
    return min((w.n + 1.0) * 0.5 * ratio + 0.5 - 0.5 * min(ratio, 1.0) * (ratio < 1.0), w.mixed)


@jit
def wave(c: Any, w: Any, out: Any) -> None:
    """All figures but rates, where outputs have more than one token."""
    w.regime, w.n, w.more = WAVE, min(c.clients, c.seats), c.osl - 1.0
    w.queued = c.clients > w.n
    last, think = form_wave(c, w), 0.0 if w.queued else c.think_ms
    stair = w.mean_ms
    first, step = c.d0 + w.n * (c.d1 + c.d2 * (c.isl + 1.0)), c.d2 * w.n
    rows_ms = w.more * first + step * w.more * (w.more - 1.0) * 0.5
    w.cycle_ms = w.own_ms + rows_ms
    if w.queued and c.think_ms >= (ceil(c.clients / w.n) - 1.0) * w.cycle_ms:  # waves that find their seats free
        w.queued, think = 0.0, c.think_ms
    few = c.clients - w.n  # who goes on at once, while the others are away
    apart = c.think_ms > ceil(few * c.new / c.budget) * c.a0 + few * w.prompt_ms
    if w.queued and apart and c.think_ms < w.cycle_ms and few < w.n:
        split_waves(c, w, out, rows_ms, stair)
        return
    w.cycle_ms += think
    w.rate = (w.n if w.queued else c.clients) / w.cycle_ms
    turns = floor((c.clients - w.n) / w.n) if w.queued else 0.0
    later = c.clients - w.n - turns * w.n if w.queued else 0.0
    w.mean_ms = stair + think + w.cycle_ms * (turns + later / w.n)
    w.span_ms = w.own_ms - stair + rows_ms
    for a in range(len(LEVELS)):
        i = max(1.0, ceil(LEVELS[a] * w.n - 1e-9))
        wait, place = turns * w.cycle_ms, later + i
        if i > w.n - later:
            wait, place = wait + w.cycle_ms, i - (w.n - later)
        out[1 + a] = think + wait + stair_ms(c, w, place)
        out[15 + a] = (w.own_ms - stair_ms(c, w, w.n - i + 1.0) + rows_ms) / w.more
        out[22 + a] = wait + w.cycle_ms
        starts = ceil(((place - 1.0) * c.new + 1.0) / c.budget - 1e-9) - 1.0
        out[29 + a] = max(0.0, wait + starts * w.chunk_ms)
    out[28] = max(0.0, w.mean_ms - think - ceil(c.new / c.budget) * w.chunk_ms)
    out[12], out[13] = stalls(c, w, last, first, step, 0.5), stalls(c, w, last, first, step, 0.99)
    begin_wave(c, w, out, stair)


@jit
def split_waves(c: Any, w: Any, out: Any, rows_ms: float, stair: float) -> None:
    """Fewer wait than there are seats, and the others are not back yet: waves split until prompts come one by one, and each pauses the rows."""
    begin_wave(c, w, out, stair)
    passes = ceil(c.new / c.budget)
    own = passes * c.a0 + w.prompt_ms
    w.cycle_ms += (w.n * passes - w.mixed) * c.a0
    w.rate = min(w.n / w.cycle_ms, c.clients / (w.cycle_ms + c.think_ms))
    w.span_ms = w.cycle_ms - own
    w.mean_ms = max(c.clients / w.rate - w.span_ms, c.think_ms + own)
    least = c.think_ms + own
    row_pass = rows_ms / w.more
    for a in range(len(LEVELS)):
        out[1 + a] = least + 2.0 * LEVELS[a] * (w.mean_ms - least)
        out[15 + a] = w.span_ms / w.more
        out[22 + a] = out[1 + a] + w.span_ms
        out[29 + a] = out[1 + a] - least
    out[28] = w.mean_ms - least
    out[12], out[13] = row_pass, row_pass + own if w.n - 1.0 > 0.01 * w.more else row_pass


@jit
def stalls(c: Any, w: Any, last: float, first: float, step: float, share: float) -> float:
    """A quantile of gaps: one of a request's is the rest of the wave and the first pass of rows, the longest of the first prompts."""
    rows = w.n * w.more
    rank = rows - ceil(share * rows - 1e-9) + 1.0  # from the longest
    longest = first + step * (w.more - 1.0)
    if rank <= w.n - last:
        return max(w.own_ms - stair_ms(c, w, rank) + first, longest)
    return first + step * max(0.0, w.more - 1.0 - floor((rank - 1.0 - (w.n - last)) / w.n))


@jit
def begin_wave(c: Any, w: Any, out: Any, stair: float) -> None:
    """The start-up: the first wave, or all waves until nobody is left."""
    waves = ceil(c.clients / w.n) - 1.0
    rest = c.clients - waves * w.n
    shorter = stair * rest / w.n
    out[9] = (
        c.think_ms
        + (waves * w.n * stair + rest * shorter + w.cycle_ms * (waves * (waves - 1.0) * 0.5 * w.n + rest * waves))
        / c.clients
    )
    out[10] = c.think_ms + waves * w.cycle_ms + w.own_ms * rest / w.n


@jit
def prompts_only(c: Any, w: Any, atoms: Any, out: Any) -> None:
    """Outputs of one token: prompts pass in order, so a request is done when as many tokens have passed as all clients ask for."""
    w.regime, w.n, w.more, w.span_ms = PROMPTS, min(c.clients, c.seats), 0.0, 0.0
    w.queued = c.clients > w.n
    form_wave(c, w)
    out[9], out[10] = w.mean_ms + c.think_ms, w.own_ms + c.think_ms
    turn = w.mixed if w.mixed == 1.0 else 1.0 + c.ahead  # passes from a prompt to the next of its seat, at least
    passes = max(turn, w.n * c.new / c.budget)
    a_pass = c.a0 + w.n * w.prompt_ms / passes
    w.mean_ms = c.clients / w.n * passes * a_pass
    if w.queued:
        out[9], out[10] = (c.clients + 1.0) * 0.5 * w.mean_ms / c.clients + c.think_ms, w.mean_ms + c.think_ms
    if c.think_ms > 0.0:
        w.mean_ms = max(w.mean_ms, c.think_ms + max(1.0, c.new / c.budget) * a_pass)
    if w.mixed == 1.0 and not w.queued:
        w.mean_ms = w.own_ms + c.think_ms
        put(atoms, 0, 1.0, w.mean_ms, w.mean_ms)
        put(atoms, 1, 0.0, w.mean_ms, w.mean_ms)
    else:
        low = floor(w.mean_ms / a_pass + 1e-9)
        put(atoms, 0, min(low + 1.0 - w.mean_ms / a_pass, 1.0), low * a_pass, low * a_pass)
        put(atoms, 1, max(w.mean_ms / a_pass - low, 0.0), (low + 1.0) * a_pass, (low + 1.0) * a_pass)
        w.own_ms = max(1.0, ceil(c.new / c.budget)) * a_pass
    w.atoms = 2.0
    w.rate = c.clients / w.mean_ms
    out[12] = out[13] = np.nan
