"""Candidates whose cycle is met: what the evaluator says of them, but for rounding, at the cost of a few of its passes."""

from typing import Any

import numpy as np

from passcal.core.compiled import entry, jit, table
from passcal.screening.groups import HERE, KEPT, is_sure, travel
from passcal.screening.kernel import scratch
from passcal.screening.mixture import level, run_level, sort_atoms
from passcal.screening.travelled import TPOT, collect, ends_of, rate_per_s

__all__ = ["MEAN", "METRICS", "cycles_of"]

STEPS = 20_000
# latencies of a request first, numbered as `travelled` does; the last is what is not in the rows
METRICS = ("ttft", "e2e", "tpot", "queue", "itl", "throughput_rps", "output_tokens_per_s", "")
ITL, RATE, TOKENS, OTHER = range(4, len(METRICS))
MEAN = -1.0


def cycles_of(rows: Any, asked: Any) -> Any:
    """Requests a second, mean TPOT, then what is asked for: a row a candidate (`CANDIDATE`), NaN where no cycle is met, or memory may bind.

    `asked` has a row each: the number of a metric among `METRICS`, and a quantile level, or `MEAN`.
    """
    out = np.full((len(rows), 2 + len(asked)), np.nan)
    cycle_rows(table(rows), scratch(STEPS), asked, out)
    return out


@entry
def cycle_rows(candidates: Any, room: Any, asked: Any, out: Any) -> None:
    """Fill a row of `out` for each candidate whose cycle is met; `room` is `Scratch`, `asked` a figure and a quantile a row."""
    s = room.states[HERE]
    for i in range(len(candidates)):
        c = candidates[i]
        if not c.covered or not c.proven or c.rate > 0.0:
            continue
        if travel(c, room, STEPS) and is_sure(c, s):
            ends_of(c, s, room.states[KEPT], room.served)
            out[i, 0] = figure(c, room, RATE, MEAN)
            out[i, 1] = figure(c, room, TPOT, MEAN)
            for j in range(len(asked)):
                out[i, 2 + j] = figure(c, room, asked[j, 0], asked[j, 1])


@jit
def figure(c: Any, room: Any, number: float, share: float) -> float:
    """One figure of the cycle."""
    s, k = room.states[HERE], room.states[KEPT]
    if number == OTHER:
        return np.nan
    if number >= RATE:
        return rate_per_s(s, k) * (1.0 if number == RATE else c.osl)
    if c.osl == 1.0 and number in (TPOT, ITL):
        return np.nan
    if number == ITL and share != MEAN:
        return run_level(room.gaps[k.gaps : s.gaps], share)
    count, mean = collect(c, room, TPOT if number == ITL else number)
    if share == MEAN:
        return mean
    sort_atoms(room.atoms, count)
    return level(room.atoms, count, share)
