"""Open loops: requests come at a rate, independently of each other.

How loaded an engine is follows from its rate with twice as many clients as seats. A request waits for the rest of the pass that it finds (half the
second moment of passes over their mean), for one more if passes are planned ahead, and for the prompts before it, as in a queue with one server that
takes `1 / capacity` each. Where hardly anybody comes, nobody waits, and the answer is exact.
"""

from math import exp, log
from typing import Any

import numpy as np

from passcal.core.compiled import jit
from passcal.screening.mixture import put
from passcal.screening.price import chunks_of, cut_attention_ms, pass_ms
from passcal.screening.tables import ALTERNATING

__all__ = ["OPEN", "OVERLOAD", "arrive"]

OPEN, OVERLOAD = 10, 11
TURNS = 40  # until the mean pass has settled
PIECES = 6  # of the tail of waits


@jit
def arrive(c: Any, w: Any, atoms: Any, capacity: float) -> tuple[float, float]:
    """TTFT's mixture, rates and spans; returns median and p99 of gaps. `capacity` is in requests a ms."""
    w.rate, w.more, w.queued = c.rate, c.osl - 1.0, 1.0
    w.row_ms = c.d1 + c.d2 * (c.isl + c.osl * 0.5)
    load = c.rate / capacity
    if load >= 1.0:
        w.regime, w.rate = OVERLOAD, capacity
        w.mean_ms, w.own_ms, w.span_ms = np.inf, 0.0, c.seats / capacity
        put(atoms, 0, 1.0, np.inf, np.inf)
        w.atoms = 1.0
        return np.nan, np.nan
    w.regime = OPEN
    rows, rows_ms, a_pass, chunks_ms = mean_pass(c, w)
    chunk, w.span = chunks_of(c, max(c.budget - rows, 1.0))
    alone = w.span * c.a0 + c.a1 * c.new + cut_attention_ms(c, chunk)
    beside = 0.0 if c.calendar == ALTERNATING or w.more == 0.0 else 1.0 - exp(-c.rate * w.more * a_pass)
    w.own_ms = beside * (alone + w.span * (rows_ms - c.saved_ms)) + (1.0 - beside) * alone
    if c.overlaps > 0.0:
        w.own_ms = beside * max(alone, w.span * rows_ms) + (1.0 - beside) * alone
    w.span_ms = w.more * a_pass
    ahead = (
        c.rate * alone
    )  # prompts that came while its own was computed go before its first row, and theirs bring more
    if w.more > 0.0 and ahead < 1.0:
        w.span_ms += w.own_ms * ahead / (1.0 - ahead)
    busy = 1.0 - exp(-c.rate * (w.own_ms + w.span_ms))
    second = a_pass * a_pass + min(c.rate * a_pass, 1.0) * alone * alone / w.span
    rest = second / (2.0 * a_pass) if w.more > 0.0 else 0.0
    queue = load / (2.0 * (1.0 - load)) / capacity
    waits(c, w, atoms, busy, rest + c.ahead * a_pass, queue)
    crowd = 1.0 - exp(-c.rate * a_pass)
    return (rows_ms if crowd < 0.5 else rows_ms + chunks_ms), (rows_ms + chunks_ms if crowd >= 0.01 else rows_ms)


@jit
def mean_pass(c: Any, w: Any) -> tuple[float, float, float, float]:
    """Rows of a pass that has any, their part of it, the mean pass, and the part of chunks in a pass that has any."""
    prompt_ms = c.a1 * c.new + cut_attention_ms(c, c.budget)
    a_pass, rows, rows_ms = c.d0 + w.row_ms, 1.0, 0.0
    if w.more == 0.0:
        return 0.0, 0.0, c.a0 + prompt_ms, c.a0 + prompt_ms
    chunks_ms = c.a0 + prompt_ms
    for _ in range(TURNS):
        present = c.rate * w.more * a_pass
        rows = present / (1.0 - exp(-present)) if present > 1e-9 else 1.0
        rows_ms = c.d0 + min(rows, c.seats) * w.row_ms
        share = 1.0 - exp(-c.rate * a_pass)
        chunks_ms = c.a0 + c.rate * a_pass / share * prompt_ms if share > 1e-12 else c.a0 + prompt_ms
        mixed = pass_ms(c, chunks_ms, rows_ms) if c.calendar != ALTERNATING else chunks_ms + rows_ms
        a_pass = 0.5 * (a_pass + rows_ms + share * (mixed - rows_ms))
    return min(rows, c.seats), rows_ms, a_pass, chunks_ms


@jit
def waits(c: Any, w: Any, atoms: Any, busy: float, rest: float, queue: float) -> None:
    """Nobody waits in an idle engine; else up to twice the mean rest, and behind others with an exponential tail."""
    start = c.think_ms + w.own_ms
    put(atoms, 0, 1.0 - busy, start, start)
    below, behind = 0.0, queue / busy if busy > 0.0 else 0.0
    for k in range(1, PIECES + 1):
        upto = 1.0 - 0.25**k if k < PIECES else 1.0 - 1e-4
        low, high = 2.0 * rest * below - behind * log(1.0 - below), 2.0 * rest * upto - behind * log(1.0 - upto)
        put(atoms, k, busy * (upto - below), start + low, start + high)
        below = upto
    w.atoms = PIECES + 1.0
    w.mean_ms = start + busy * rest + queue
