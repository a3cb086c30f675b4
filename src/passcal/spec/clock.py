"""The clock of a trace: which stretch of it is replayed, and how fast."""

from typing import Any

import numpy as np

from passcal.errors import SpecError
from passcal.spec.base import real

__all__ = ["on_clock"]


def on_clock(table: Any, time_scale: Any, start_ms: Any, end_ms: Any) -> tuple[Any, tuple[str, ...]]:
    """Rows dispatched from start_ms on and before end_ms, as the trace has it, then all times multiplied; and notes on what that put aside.

    Raises:
        SpecError: no scale above 0, no window, or nothing in it.
    """
    scale, start = checked("time_scale", time_scale, 1.0), checked("start_ms", start_ms, 0.0)
    if scale <= 0.0:
        raise SpecError(f"replay: time_scale={time_scale}: must be above 0; 0.5 sends twice as many a second")
    notes: tuple[str, ...] = ()
    if start_ms is not None or end_ms is not None:
        end = checked("end_ms", end_ms, np.inf)
        inside = (table["dispatch_ms"] >= start) & (table["dispatch_ms"] < end)
        kept = int(inside.sum())
        if not kept:
            raise SpecError(f"replay: no row from start_ms={start_ms} on and before end_ms={end_ms}; move the window")
        notes = (f"window of the trace: {kept} of {len(table)} requests",)
        table = table[inside]
    if scale != 1.0:
        table = table.copy()
        with np.errstate(over="ignore"):
            table["dispatch_ms"] *= scale
        if not np.isfinite(table["dispatch_ms"][-1]):
            raise SpecError(f"replay: time_scale={time_scale}: makes times infinite; lower it")
        notes = (*notes, f"times of the trace are multiplied by {scale:g}")
    table.flags.writeable = False
    return table, notes


def checked(name: str, value: Any, default: float) -> float:
    """A finite number."""
    if value is None:
        return default
    try:
        number: float = real(value)
    except ValueError as error:
        raise SpecError(f"replay: {name}={value!r}: {error}; correct this value"[:199]) from None
    return number
