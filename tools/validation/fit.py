"""Coefficients of a linear timing from measured times of requests, by replaying and regressing in turn.

The log of a run says when requests were planned and when their first and last tokens came, but not what the passes carried. A replay says
what they carried, if the timing is right. So: replay, sum the terms of the passes that each request lived through, regress the measured
durations on the sums, replay with the coefficients found, and so on. The answer is the replay that errs least on the same requests.
"""

from dataclasses import dataclass
from typing import Any, get_args

import numpy as np
import pandas as pd
from scipy.optimize import nnls

import passcal as pc
from tools.validation.lives import Calendar, Combine, coefficients, linear, lives, replay

__all__ = ["Fitted", "fit", "regress", "replay_error"]

TURNS = 20
STEP = 0.5  # of the way to the new coefficients: a whole step makes calendars alternate
ROUNDS = 40
OUTLYING = 2.0  # times the median error of its kind; rows beyond count less, as Huber's do
DIGITS = 5


@dataclass(frozen=True)
class Fitted:
    """Coefficients, and the mean of |log(predicted / measured)| over TTFT and decode times of the requests fitted on."""

    timing: pc.LinearTiming
    error: float


def fit(measured: pd.DataFrame, engine: pc.Vllm, used: Any) -> Fitted:
    """The best of the three ways to combine the parts of a mixed pass.

    Args:
        measured: a row a request: `dispatch_ms`, `isl`, `osl`, `first_ms`, `last_ms`, and `scheduled_ms` where it is known; a client's file
            does not say, so there waiting counts from the dispatch.
        engine: what served them.
        used: mask of the requests whose measured times may be looked at; of the others arrivals and lengths are.
    """
    return min((alternate(measured, engine, used, way) for way in get_args(Combine)), key=lambda found: found.error)


def alternate(measured: pd.DataFrame, engine: pc.Vllm, used: Any, combine: Combine) -> Fitted:
    """Replay and regress in turn, from the product's default coefficients."""
    values = coefficients(pc.LinearTiming())
    best = Fitted(linear(values, combine), np.inf)
    times = measured[used]
    longer = (times["osl"] > 1).to_numpy()
    decode = (times["last_ms"] - times["first_ms"])[longer]
    took = np.concatenate([times["first_ms"] - times.get("scheduled_ms", times["dispatch_ms"]), decode])
    kind = np.repeat([0, 1], [len(times), len(decode)])
    for turn in range(TURNS):
        timing = linear([float(f"{value:.{DIGITS}g}") for value in values], combine)
        calendar = replay(measured, engine, timing)
        error = replay_error(measured, calendar, used)
        if error < best.error:
            best = Fitted(timing, error)
        sums = lives(calendar, timing)
        found = regress(np.vstack([sums.to_first[used], sums.to_last[used][longer]]), took, kind)
        values = found if turn == 0 else values + STEP * (found - values)
    return best


def replay_error(measured: pd.DataFrame, calendar: Calendar, used: Any) -> float:
    """Mean |log(predicted / measured)| of TTFT and of the time from first to last token, over the requests in use."""
    times = measured[used]
    told, longer = calendar.requests[used], (times["osl"] > 1).to_numpy()
    ttft = (told["first_ms"] - told["dispatch_ms"]) / (times["first_ms"] - times["dispatch_ms"])
    decode = (told["done_ms"] - told["first_ms"])[longer] / (times["last_ms"] - times["first_ms"])[longer]
    with np.errstate(divide="ignore"):  # coefficients that price a pass at nothing err infinitely
        return float(np.abs(np.log(np.concatenate([ttft, decode]))).mean())


def regress(sums: Any, took: Any, kind: Any) -> np.ndarray[Any, Any]:
    """Non-negative coefficients with `sums @ coefficients` near `took`: robust least squares of relative errors.

    Args:
        sums: (rows, 7), sums of terms.
        took: (rows,), what was measured (ms).
        kind: (rows,), 0 or 1: rows of a kind err alike, so each kind is weighed by its own median error.
    """
    weight = 1 / took
    found = np.zeros(sums.shape[1])
    for _ in range(ROUNDS):
        rows = sums * weight[:, None]
        size = np.linalg.norm(rows, axis=0)
        size[size == 0] = 1
        found = nnls(rows / size, took * weight)[0] / size
        off = np.abs(sums @ found / took - 1)
        usual = np.array([max(float(np.median(off[kind == k])), 1e-9) for k in (0, 1)])[kind]
        weight = 1 / (took * usual * np.sqrt(np.maximum(1, off / (OUTLYING * usual))))
    return found
