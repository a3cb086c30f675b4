"""A timing model as coefficients: its own, or those of a tangent at the passes that a candidate runs."""

from typing import Any

from passcal.core.plan import PassShape
from passcal.timing.base import COMBINE, LINEAR, KernelTiming, TimingModel

__all__ = ["coefficients"]

NAMES = ("a0", "a1", "a2", "a3", "d0", "d1", "d2")


def coefficients(rows: Any, timing: TimingModel) -> None:
    """Fill the coefficients of `CANDIDATE` rows. A tangent proves no bound, so such rows lose `proven` and `exact`."""
    if isinstance(timing, KernelTiming):
        form = timing.kernel_form()[0][0]
        if form["kind"] == LINEAR and form["captured"] == 0:
            for name in NAMES:
                rows[name] = form[name]
            rows["overlaps"] = form["combine"] == COMBINE["max"]
            rows["saved_ms"] = min(form["a0"], form["d0"]) if form["combine"] == COMBINE["shared"] else 0.0
            return
    rows["proven"] = rows["exact"] = 0.0
    for row in rows:
        tangent(row, timing)


def tangent(row: Any, timing: TimingModel) -> None:
    """Secants between the passes of one candidate: chunks by tokens and by what precedes them, rows by count and by context."""
    chunk, past = int(min(row["new"], row["budget"])), int(row["past"])
    half = max(1, chunk // 2)
    deep = past + int(row["new"]) - chunk + half
    whole, part = chunks_ms(timing, chunk, past), chunks_ms(timing, half, past)
    slope = (whole - part) / (chunk - half) if chunk > half else 0.0
    row["a2"] = max(0.0, (chunks_ms(timing, chunk, deep) - whole) / (chunk * (deep - past))) if deep > past else 0.0
    row["a1"] = max(0.0, slope - row["a2"] * past)
    row["a0"] = max(0.0, whole - slope * chunk)
    row["a3"] = 0.0
    count, context = int(min(row["clients"], row["seats"])), int(row["isl"] + row["osl"] / 2)
    fewer = max(1, count // 2)
    many, few = rows_ms(timing, count, context), rows_ms(timing, fewer, context)
    step = (many - few) / (count - fewer) if count > fewer else 0.0
    row["d2"] = max(
        0.0, (many - rows_ms(timing, count, int(row["isl"] + 1))) / (count * max(1, context - int(row["isl"]) - 1))
    )
    row["d1"] = max(0.0, step - row["d2"] * context)
    row["d0"] = max(0.0, many - count * (row["d1"] + row["d2"] * context))
    shape = PassShape.of(((chunk, past),), fewer, fewer * context)
    row["saved_ms"] = min(max(0.0, whole + few - timing.pass_ms(shape)), whole, few)
    row["overlaps"] = 0.0


def chunks_ms(timing: TimingModel, tokens: int, past: int) -> float:
    """A pass with one chunk."""
    return float(timing.pass_ms(PassShape.of(((tokens, past),))))


def rows_ms(timing: TimingModel, count: int, context: int) -> float:
    """A pass with so many rows."""
    return float(timing.pass_ms(PassShape.of((), count, count * context)))
