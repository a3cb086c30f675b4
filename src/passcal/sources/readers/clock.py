"""From checked columns to the frame that a replay takes: one clock, in order, with notes on what was done."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from passcal.errors import SpecError
from passcal.sources.readers.rows import Floats

__all__ = ["Columns", "Spread", "arranged"]

Columns = Mapping[str, Floats | pd.Series]
"""Columns by name, on their way to a frame."""
Spread = Literal["none", "uniform"]
ABSOLUTE_MS = 1e11
"""A relative clock does not start three years in: such a first time counts from an epoch."""
CROWDED_SHARE = 0.5
"""Coarse timestamps are reported from this share of rows that do not have their instant to themselves."""
FEWEST_GAPS, TICK_TOLERANCE, REGULAR_SHARE = 3, 0.01, 0.5
"""A tick is the median of at least 3 gaps of which at least half agree with it to 1%."""


@dataclass(frozen=True)
class Crowds:
    """Instants that several rows share.

    Attributes:
        instants_ms: all distinct instants.
        counts: rows at each of them.
        tick_ms: the regular distance between crowded instants, or 0.0 where there is none.
    """

    instants_ms: Floats
    counts: NDArray[np.int64]
    tick_ms: float

    @property
    def share(self) -> float:
        """The share of rows that have company at their instant."""
        return float(self.counts[self.counts > 1].sum() / self.counts.sum())


def arranged(columns: Columns, notes: list[str], spread: Spread) -> pd.DataFrame:
    """Sort by `dispatch_ms` (stable), report and on request spread ticks, and settle the clock's origin.

    Args:
        columns: `dispatch_ms` in milliseconds, then token counts (whole numbers, cast to int64) and labels (Series).
        notes: one-line remarks of the reader; more are added, and all end up in `frame.attrs["notes"]`.
        spread: `"uniform"` deals the rows of a tick out evenly until the next one.

    Raises:
        SpecError: `spread` is neither `"none"` nor `"uniform"`.
    """
    if spread not in get_args(Spread):
        raise SpecError(f"spread is {spread!r:.40}, must be one of {', '.join(get_args(Spread))}")
    whole = {name: column.astype(np.int64) for name, column in columns.items() if isinstance(column, np.ndarray)}
    frame = pd.DataFrame({**columns, **whole, "dispatch_ms": columns["dispatch_ms"]})
    times = frame["dispatch_ms"].to_numpy()
    late = int((times < np.maximum.accumulate(times)).sum())
    if late:
        notes.append(f"{late} of {len(times)} rows were earlier than a row before them: sorted by time")
    frame = in_order(frame)
    times = frame["dispatch_ms"].to_numpy()
    crowds = crowds_of(times)
    notes += tick_notes(crowds, spread)
    if spread == "uniform" and crowds.tick_ms:
        frame["dispatch_ms"] = spread_out(times, crowds)
        frame = in_order(frame)
    start = float(frame["dispatch_ms"].iloc[0])
    if start > ABSOLUTE_MS:
        frame["dispatch_ms"] -= start
        notes.append(f"times count from an epoch: {start:.3f} ms taken off, so that the first request is at 0")
    elif start > 0:
        notes.append(f"the first request is at {start:.10g} ms: the file's own clock is kept")
    frame.attrs["notes"] = notes
    return frame


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows by time; rows of one instant keep their order."""
    return frame.iloc[np.argsort(frame["dispatch_ms"].to_numpy(), kind="stable")].reset_index(drop=True)


def crowds_of(times_ms: Floats) -> Crowds:
    """Count rows by instant and look for a tick.

    Only crowded instants vote: a file may put most rows on ticks and the rest anywhere between them.
    """
    instants, counts = np.unique(times_ms, return_counts=True)
    crowds = Crowds(instants, counts.astype(np.int64), 0.0)
    gaps = np.diff(instants[counts > 1])
    if crowds.share < CROWDED_SHARE or gaps.size < FEWEST_GAPS:
        return crowds
    tick = float(np.median(gaps))
    regular = np.mean(np.abs(gaps - tick) <= TICK_TOLERANCE * tick) >= REGULAR_SHARE
    return Crowds(instants, crowds.counts, tick if regular else 0.0)


def tick_notes(crowds: Crowds, spread: Spread) -> list[str]:
    """What there is to say about coarse timestamps, and what was done to them."""
    notes = []
    if crowds.share >= CROWDED_SHARE:
        total, distinct = crowds.counts.sum(), crowds.counts.size
        apart = f", {crowds.tick_ms:g} ms apart (median)" if crowds.tick_ms else ""
        notes.append(f"{crowds.share:.1%} of {total} rows share their instant: {distinct} distinct instants{apart}")
    if spread == "uniform":
        dealt = f"rows of a tick dealt out evenly over {crowds.tick_ms:g} ms"
        notes.append(f'spread="uniform": {dealt if crowds.tick_ms else "no tick found, no time changed"}')
    return notes


def spread_out(times_ms: Floats, crowds: Crowds) -> Floats:
    """Deal the k rows of a crowded instant out evenly from it to the next one, a tick at most; the first row stays.

    `times_ms` is sorted; the answer need not be, where rows off the ticks lie between.
    """
    crowded = crowds.counts > 1
    starts_ms = crowds.instants_ms[crowded]
    width_ms = np.zeros_like(crowds.instants_ms)
    width_ms[crowded] = np.minimum(crowds.tick_ms, np.diff(starts_ms, append=np.inf))
    first_row = np.cumsum(crowds.counts) - crowds.counts
    rank = np.arange(times_ms.size) - np.repeat(first_row, crowds.counts)
    return times_ms + rank * np.repeat(width_ms / crowds.counts, crowds.counts)
