"""Rows of a candidate table by their kind of deployment, each with the columns that it has; a value in a column of the other kind is refused."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from passcal.deployments import COLUMNS_OF
from passcal.errors import SpecError
from passcal.screening.candidates import TIMING, WORKLOAD, refuse_unknown
from passcal.screening.columns_in import Coded, Columns, given, part_of
from passcal.screening.tandem import POOLS, pool_columns

__all__ = ["by_kind"]

AGGREGATED, DISAGGREGATED = KINDS = tuple(COLUMNS_OF)
PRICES = (*TIMING, "combine")
SHARED = {*WORKLOAD, *PRICES, *(f"{pool}.{name}" for pool in POOLS for name in PRICES)}


def by_kind(columns: Columns, count: int) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """A kind, the numbers of its rows, and their columns.

    Raises:
        SpecError: an unknown kind, or a column or a value that nothing reads.
    """
    apart = are_apart(columns, count)
    rest = {name: column for name, column in columns.items() if name != "kind"}
    for kind, here in ((AGGREGATED, ~apart), (DISAGGREGATED, apart)):
        rows = np.flatnonzero(here)
        if len(rows) or (not count and kind == AGGREGATED):
            own = fitting(part_of(rest, rows) if len(rows) < count else rest, kind, rows)
            if kind == AGGREGATED:
                refuse_unknown(own, rows)
            else:
                refuse_unknown_apart(own, rows)
            yield kind, rows, own


def are_apart(columns: Columns, count: int) -> Any:
    """Which rows have prefill and decode apart."""
    kind = columns.get("kind")
    if kind is None or not given(kind).any():
        return np.zeros(count, bool)
    values = kind.values if isinstance(kind, Coded) else (float(kind[given(kind)][0]),)
    for value in values:
        if value not in (*KINDS, ""):
            raise SpecError(f"kind={value!r:.40}: must be one of {', '.join(KINDS)}, or empty; correct it")
    return np.array([*(value == DISAGGREGATED for value in values), False])[kind.codes]


def fitting(columns: Columns, kind: str, rows: Any) -> dict[str, Any]:
    """The columns without those of the other kind, which must be empty here."""
    foreign = COLUMNS_OF[DISAGGREGATED if kind == AGGREGATED else AGGREGATED] - COLUMNS_OF[kind]
    found = {}
    for name, column in columns.items():
        there = given(column) if name in foreign else np.zeros(0, bool)
        if there.any():
            raise SpecError(
                f"row {rows[np.argmax(there)]}: {name}: a row of kind={kind} has no such column; leave it empty"
            )
        if name not in foreign:
            found[name] = column
    return found


def refuse_unknown_apart(columns: Columns, rows: Any) -> None:
    """Every column is known, and an option has values only in rows whose pool has it."""
    for name in columns:
        if name not in COLUMNS_OF[DISAGGREGATED] and name not in SHARED:
            raise SpecError(
                f"column {name!r:.60} is no option of prefill and decode apart, workload or timing column; drop or rename it"
            )
    both = [columns.get(name) for name in ("backend", *(f"{pool}.backend" for pool in POOLS))]
    if all(column is not None for column in both):
        said = np.logical_and.reduce([given(column) for column in both])
        if said.any():
            raise SpecError(
                f"row {rows[np.argmax(said)]}: backend: prefill.backend and decode.backend say otherwise; leave it empty"
            )
    for pool in POOLS:
        try:
            refuse_unknown(pool_columns(columns, pool), rows)
        except SpecError as error:
            raise SpecError(f"{pool}: {error}"[:199]) from None
