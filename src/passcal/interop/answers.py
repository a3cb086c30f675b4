"""Operating points to the fifteen columns: the closed form or an evaluation, once for points that are alike, and what became of rows without an answer."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from passcal import errors
from passcal.columns import COLUMNS
from passcal.errors import Diverged, NotConverged, SpecError, Stalled, Unsupported
from passcal.executors import Asked, Workers
from passcal.interop.operating import Operating
from passcal.refining import Record, Wanted, refine
from passcal.screening.screen import screen

__all__ = ["ITL", "SUMMARY_COLUMNS", "TTFT", "Rows", "answered"]

SUMMARY_COLUMNS = COLUMNS[: COLUMNS.index("queueing_tier") + 1]
TTFT = tuple(name for name in SUMMARY_COLUMNS if name.startswith("ttft"))
ITL = tuple(name for name in SUMMARY_COLUMNS if name.startswith("itl"))
UNKNOWN = dict.fromkeys(SUMMARY_COLUMNS, math.nan) | {"queueing_tier": None}


class Rows:
    """Labels of the rows, and why some have no answer."""

    def __init__(self, labels: Sequence[Any], keep: bool) -> None:
        """`keep`: a row without an answer stays, rather than raising."""
        self.labels, self.keep = labels, keep
        self.refused: dict[int, str] = {}

    @contextmanager
    def row(self, place: int) -> Iterator[None]:
        """Errors in here are this row's."""
        try:
            yield
        except (SpecError, Unsupported, Diverged, Stalled, NotConverged) as error:
            self.refused[place] = str(error)
            if not self.keep:
                raise type(error)(self.why(place)) from error

    def why(self, place: int) -> str:
        """What to say of a row without an answer."""
        return f"row {self.labels[place]!r:.40}: {self.refused[place]}"[:199]


def answered(points: Mapping[int, Operating], rows: Rows, closed: bool, executor: Asked) -> list[Mapping[str, Any]]:
    """The columns of every row, by the points of those that have one. `closed`: by the closed form where there is one."""
    places: dict[Any, list[int]] = {}
    for place, point in points.items():
        places.setdefault(point.key, []).append(place)
    found: dict[Any, dict[str, Any]] = {}
    asked = {}
    for key, (first, *_) in places.items():
        with rows.row(first):
            asked[key] = points[first].point()
    if closed:
        found = screened({key: points[places[key][0]] for key in asked})
    left = [key for key in asked if key not in found]
    with Workers(executor, len(left)) as workers:
        evaluate = partial(refine, wanted=Wanted((), False))
        for shared, records in workers.map(evaluate, [asked[key] for key in left]):
            for key, record in zip([left[at] for at in shared], records, strict=True):
                with rows.row(places[key][0]):
                    found[key] = told_of(points[places[key][0]], record)
    columns: list[Mapping[str, Any]] = [UNKNOWN] * len(rows.labels)
    for key, alike in places.items():
        for place in alike:
            if key in found:
                columns[place] = found[key]
            else:
                rows.refused[place] = rows.refused[alike[0]]
    return columns


def screened(points: Mapping[Any, Operating]) -> dict[Any, dict[str, Any]]:
    """The closed form's columns of the points that have one."""
    import pandas as pd

    groups: dict[Any, list[Any]] = {}
    for key, point in points.items():
        groups.setdefault(point.priced_alike, []).append(key)
    found = {}
    for keys in groups.values():
        candidates = pd.DataFrame([points[key].candidate for key in keys])
        table = screen(candidates, None, points[keys[0]].timing)
        held = (table["regime"] != "refine").tolist()
        columns = [table[name].tolist() for name in SUMMARY_COLUMNS]
        for key, holds, values in zip(keys, held, zip(*columns, strict=True), strict=True):
            if holds:
                found[key] = dict(zip(SUMMARY_COLUMNS, values, strict=True))
    return found


def told_of(point: Operating, record: Record) -> dict[str, Any]:
    """The columns of an evaluated point; raises what its evaluation did."""
    if record.refused:
        raise getattr(errors, record.refused)(record.why)
    columns = {name: record.columns[name] for name in SUMMARY_COLUMNS}
    if point.decode_ms is None:
        return columns
    here = {name: max(0.0, columns[name] - point.away_ms) for name in TTFT}  # TTFT counts what its client was away for
    return columns | here | dict.fromkeys(ITL, point.decode_ms or math.nan) | {"queueing_tier": "composed"}
