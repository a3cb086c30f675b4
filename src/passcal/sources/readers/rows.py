"""The rules that every row of a trace keeps, asked of whole columns at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from passcal.sources.readers.source import Source, shown

__all__ = ["Booleans", "Floats", "Rows", "check_columns"]

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]
MOST_TOKENS = 2**31 - 1
LATEST_MS = 1e14
"""Past any epoch in milliseconds; beyond it the unit is another one."""


@dataclass
class Rows:
    """Raw columns of a trace, and the first fault that each rule found in them.

    Faults are collected, so that the one raised is the earliest in the file whatever the order of the rules.

    Attributes:
        source: the file.
        frame: its cells as parsed, one row a request, in file order.
        first: the number that the first row has in the file.
        unit: what that number counts, `line`, `row` or `request`.
        numbers: the number of each row in the file, where they do not count up from `first`.
        within: where several rows have one number: which of these a row is.
    """

    source: Source
    frame: pd.DataFrame
    first: int
    unit: str = "line"
    numbers: Sequence[int] | None = None
    within: Sequence[int] | None = None
    faults: list[tuple[int, str]] = field(default_factory=list)

    def demand(self, held: Booleans, column: str, rule: str) -> None:
        """Ask that a rule holds in every row; `column` is the one whose value a refusal shows."""
        if not held.all():
            row = int(np.argmin(held))
            self.faults.append((row, f"{column} is {shown(self.frame[column].iat[row])}, {rule}"))

    def settle(self) -> None:
        """Raise the earliest fault as a `TraceError`, if there is one."""
        if self.faults:
            row, problem = min(self.faults, key=lambda fault: fault[0])
            if self.within is not None:
                problem = f"request {self.within[row]}: {problem}"
            number = self.first + row if self.numbers is None else self.numbers[row]
            raise self.source.refusal(problem, number, self.unit)

    def values(self, column: str) -> Floats:
        """A column as floats; a cell that is no finite number is a fault."""
        cells = self.frame[column]
        if not is_numeric_dtype(cells) or is_bool_dtype(cells):
            # By way of text, so that True, a date or None is no number either.
            cells = pd.to_numeric(cells.astype(str), errors="coerce")
        values: Floats = cells.to_numpy(np.float64, na_value=np.nan)
        self.demand(np.isfinite(values), column, "must be a finite number; mend the value or delete the row")
        return values

    def times(self, column: str, unit_ms: float = 1.0) -> Floats:
        """A column of instants at 0 or later, in milliseconds; `unit_ms` is the length of the file's unit."""
        values = self.values(column)
        self.demand(~(values < 0), column, "must be >= 0; add a constant to all times so that the first is 0")
        self.demand(~(values > LATEST_MS / unit_ms), column, f"must be <= {LATEST_MS / unit_ms:g}; check the unit")
        with np.errstate(over="ignore"):  # what overflows is a fault already
            return values * unit_ms

    def durations(self, column: str, unit_ms: float = 1.0) -> Floats:
        """A column of lengths of time, in milliseconds; NaN where the cell is JSON's null: not known."""
        unknown = (self.frame[column] == "null").to_numpy(np.bool_)
        self.frame[column] = self.frame[column].where(~unknown, 0)
        values = self.values(column)
        self.demand(~(values < 0), column, "must be >= 0; mend the value or delete the row")
        return np.where(unknown, np.nan, values * unit_ms)

    def tokens(self, column: str, meaning: str, least: int) -> Floats:
        """A column of token counts in [`least`, 2**31 - 1]; `meaning` is the package's name for it."""
        values = self.values(column)
        self.demand(values == np.floor(values), column, f"{meaning} must be an integer; count whole tokens")
        self.demand(values >= least, column, f"{meaning} must be >= {least}; mend the count or delete the row")
        self.demand(values <= MOST_TOKENS, column, f"{meaning} must be <= {MOST_TOKENS}; check the unit (tokens)")
        return values


def check_columns(source: Source, names: list[str], required: Iterable[str], optional: Iterable[str] = ()) -> None:
    """Refuse a header with unknown, repeated or missing columns.

    Raises:
        TraceError: naming line 1, the column and the columns that are known.
    """
    required = list(required)
    known = [*required, *optional]
    listed = ", ".join(known)
    for name in names:
        if name not in known:
            raise source.refusal(f"unknown column {shown(name)}; known: {listed}", 1)
        if names.count(name) > 1:
            raise source.refusal(f"column {name} appears {names.count(name)} times; keep one", 1)
    for name in required:
        if name not in names:
            raise source.refusal(f"column {name} is missing; known: {listed}", 1)
