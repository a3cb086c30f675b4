"""Columns of a candidate table as numbers or as codes of texts."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from passcal.errors import SpecError

__all__ = ["Coded", "Column", "Columns", "given", "number", "part_of"]


class Coded(NamedTuple):
    """Values of a column that are not all numbers: `values[codes]`, code -1 where there is none."""

    codes: Any
    values: tuple[Any, ...]


Column = Any  # an array of floats, or Coded
Columns = Mapping[str, Column]


def given(column: Column) -> Any:
    """Where a column has a value."""
    return column.codes >= 0 if isinstance(column, Coded) else ~np.isnan(column)


def part_of(columns: Columns, rows: Any) -> dict[str, Column]:
    """These rows, a slice or their numbers, of all columns."""
    return {
        name: Coded(column.codes[rows], column.values) if isinstance(column, Coded) else column[rows]
        for name, column in columns.items()
    }


def number(columns: Columns, name: str, fallback: Any) -> Any:
    """A column's numbers, the fallback where it has none; the fallback alone without such a column. NaN stands for None."""
    missing = np.nan if fallback is None else float(fallback)
    if name not in columns:
        return missing
    column = columns[name]
    if isinstance(column, Coded):
        raise SpecError(f"column {name!r}: {column.values[0]!r:.40} is no number; correct its values")
    return column if np.isnan(missing) else np.where(np.isnan(column), missing, column)
