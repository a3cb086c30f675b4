"""A replay, and what every request lived through in it, summed in the terms of a linear timing.

A linear timing prices a pass as `terms @ coefficients`, so the time between two events of a request is the sum of the terms of the passes
between them, times the coefficients. With measured times on the other side that is a row of a least-squares problem.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

import passcal as pc

__all__ = ["Calendar", "Combine", "Lives", "asked", "coefficients", "linear", "lives", "planned", "replay", "terms"]

Combine = Literal["sum", "max", "shared"]
ASKED = ("dispatch_ms", "isl", "osl", "prefix_group", "prefix_len")
PREFILL = 4  # coefficients a0 to a3 come first, then d0 to d2


@dataclass(frozen=True)
class Calendar:
    """What a replay did: a row a request, a row a pass, and the shape of every pass; whether passes were planned one ahead."""

    requests: pd.DataFrame
    passes: pd.DataFrame
    shapes: tuple[pc.PassShape, ...]
    report: pc.Report
    lookahead: bool


@dataclass(frozen=True)
class Lives:
    """Of every request: sums of terms (a row of seven) from its planning to its first token, and from there to its last."""

    to_first: np.ndarray[Any, Any]
    to_last: np.ndarray[Any, Any]


class Noted:
    """A timing model that notes the shapes that it is asked for, in the order of the passes."""

    def __init__(self, timing: pc.LinearTiming) -> None:
        self.timing = timing
        self.shapes: list[pc.PassShape] = []

    def pass_ms(self, shape: pc.PassShape) -> float:
        """As the timing model says."""
        self.shapes.append(shape)
        return self.timing.pass_ms(shape)


def linear(values: Any, combine: Combine) -> pc.LinearTiming:
    """Seven coefficients as a timing model."""
    numbers = [float(value) for value in values]
    return pc.LinearTiming(prefill=tuple(numbers[:PREFILL]), decode=tuple(numbers[PREFILL:]), combine=combine)


def coefficients(timing: pc.LinearTiming) -> np.ndarray[Any, Any]:
    """A timing model as seven coefficients."""
    return np.array([*timing.prefill, *timing.decode])


def asked(requests: pd.DataFrame) -> Any:
    """The workload of a table with `dispatch_ms`, `isl`, `osl`, and maybe `prefix_group` and `prefix_len`."""
    return pc.Workload.replay(requests[[name for name in ASKED if name in requests]])


def replay(requests: pd.DataFrame, engine: pc.Vllm, timing: pc.LinearTiming) -> Calendar:
    """Replay a table of requests. A run may have been assembled twice; its own shapes are the last ones asked for."""
    noted = Noted(timing)
    report = pc.evaluate(asked(requests), engine, noted)
    passes = report.passes()
    shapes, lookahead = tuple(noted.shapes[-len(passes) :]), engine.async_scheduling is not False
    return Calendar(report.requests(), passes, shapes, report, lookahead)


def terms(shapes: tuple[pc.PassShape, ...], timing: pc.LinearTiming) -> np.ndarray[Any, Any]:
    """What each coefficient is multiplied by in the price of each pass: (passes, 7).

    Of a pass with both parts, `max` keeps the terms of the larger and `shared` leaves out the smaller fixed part.
    """
    found = np.zeros((len(shapes), PREFILL + 3))
    for row, shape in zip(found, shapes, strict=True):
        if shape.prefill_requests:
            cross, squares = sum(new * past for new, past in shape.chunks), sum(new * new for new, _ in shape.chunks)
            row[:PREFILL] = 1, shape.prefill_tokens, cross, squares
        if shape.decode_requests:
            row[PREFILL:] = 1, shape.decode_requests, shape.decode_kv_tokens
    both = (found[:, 0] > 0) & (found[:, PREFILL] > 0)
    values = coefficients(timing)
    if timing.combine == "shared":
        found[both, 0 if values[0] <= values[PREFILL] else PREFILL] = 0
    elif timing.combine == "max":
        prefill_wins = found[:, :PREFILL] @ values[:PREFILL] >= found[:, PREFILL:] @ values[PREFILL:]
        found[both & prefill_wins, PREFILL:] = 0
        found[both & ~prefill_wins, :PREFILL] = 0
    return found


def planned(calendar: Calendar) -> np.ndarray[Any, Any]:
    """From which pass on a request waits for its first token: its own, or under lookahead the one before, at whose start it was planned, unless
    nobody else was under way (V12).
    """
    told, start = calendar.requests, calendar.passes["start_ms"].to_numpy()
    admitted, done = (told[name].to_numpy() for name in ("admitted_ms", "done_ms"))
    own = np.searchsorted(start, admitted * (1 - 1e-12))
    others = np.searchsorted(np.sort(admitted), admitted * (1 - 1e-12)) - np.searchsorted(
        np.sort(done), admitted * (1 + 1e-12)
    )
    return np.where((others > 0) & calendar.lookahead, own - 1, own)


def lives(calendar: Calendar, timing: pc.LinearTiming) -> Lives:
    """Sums of terms over what each request lived through."""
    end = calendar.passes["end_ms"].to_numpy()
    upto = np.vstack([np.zeros(PREFILL + 3), np.cumsum(terms(calendar.shapes, timing), axis=0)])
    first, last = (
        np.searchsorted(end, calendar.requests[name].to_numpy() * (1 - 1e-12)) + 1 for name in ("first_ms", "done_ms")
    )
    return Lives(upto[first] - upto[planned(calendar)], upto[last] - upto[first])
