"""Page ids of a trace: read beside the columns, carried in `frame.attrs["pages"]`, turned into a `prefix` column."""

from array import array
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from passcal.errors import SpecError
from passcal.sources.prefix import Pages, PrefixOracle
from passcal.sources.readers.clock import Columns, Spread, arranged
from passcal.sources.readers.rows import Floats, Rows
from passcal.sources.readers.source import shown

__all__ = ["PageIds", "framed", "with_prefix"]

UNUSED = 'prefix is 0 in every row: page ids stand in attrs["pages"], with_prefix turns them into hits'


@dataclass
class PageIds:
    """The ids of rows as they are read, flat, since a trace may have tens of millions.

    Attributes:
        ids: of all rows so far.
        ends: where each row's end.
        broken: rows whose ids are no list of whole numbers, and what they are.
    """

    ids: "array[int]" = field(default_factory=lambda: array("q"))
    ends: "array[int]" = field(default_factory=lambda: array("q"))
    broken: list[tuple[int, str]] = field(default_factory=list)

    def add(self, listed: object) -> None:
        """The ids of the next row."""
        before = len(self.ids)
        try:
            if not isinstance(listed, list) or bool in set(map(type, listed)):
                raise TypeError
            self.ids.extend(listed)
        except (TypeError, OverflowError):
            del self.ids[before:]
            rule = "must be a list of whole numbers below 2^63; mend the ids or delete the row"
            self.broken.append((len(self.ends), f"hash_ids is {shown(listed)}, {rule}"))
        self.ends.append(len(self.ids))

    def pages(self, page_size: int) -> Pages:
        """The ragged arrays of all rows."""
        return Pages(np.array(self.ids, np.int64), np.concatenate(([0], np.array(self.ends, np.int64))), page_size)

    def hold(self, rows: Rows, isl: Floats, page_size: int) -> None:
        """Ask that every row has an id for each page of its prompt, the last one full or not, or none at all."""
        rows.faults += self.broken
        counts = np.diff(np.array(self.ends, np.int64), prepend=0)
        known = np.where(np.isfinite(isl), isl, 0)  # the others are faults already
        wrong = ~fitting(counts, known, page_size)
        if wrong.any():
            row = int(np.argmax(wrong))
            rule = f"must be {known[row] // page_size:.0f} pages of {page_size} for isl {known[row]:.0f}, and one if a part is left"
            rows.faults.append((row, f"hash_ids has {counts[row]} ids, {rule}; mend the row"))


def fitting(counts: Any, isl: Any, page_size: int) -> Any:
    """Whether so many ids can be the pages of such prompts."""
    return (counts == 0) | (counts == isl // page_size) | (counts == -(-isl // page_size))


def framed(columns: Columns, pages: Pages, notes: list[str], spread: Spread) -> pd.DataFrame:
    """`clock.arranged`, with the pages of its rows in `attrs`."""
    if not len(pages.ids):
        return arranged(columns, notes, spread)
    frame = arranged({**columns, "row": np.arange(float(len(pages)))}, [UNUSED, *notes], spread)
    frame.attrs["pages"] = pages.take(frame.pop("row"))
    return frame


def with_prefix(frame: pd.DataFrame, oracle: PrefixOracle) -> pd.DataFrame:
    """The frame of a trace with page ids, its `prefix` column as an oracle says.

    Rows are taken in order of `dispatch_ms`, and within an instant in that of the trace. Some rows of a frame may be taken (`head`, a condition), as long as their index is kept: it says
    which pages are theirs.

    Args:
        frame: what `read_trace`, `read_mooncake` or `read_agent` answered, or rows of it.
        oracle: the cache.

    Returns:
        A copy; its notes say how much was hit.

    Raises:
        SpecError: a frame without page ids, or whose rows are not those that the ids belong to.
    """
    pages = frame.attrs.get("pages")
    if not isinstance(pages, Pages):
        raise SpecError("with_prefix: this frame has no page ids; read a Mooncake or agent trace, and keep frame.attrs")
    rows, isl = frame.index.to_numpy(), frame["isl"].to_numpy()
    if not len(rows):
        raise SpecError("with_prefix: the frame has no rows; give it some")
    if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(pages):
        raise SpecError(
            f"with_prefix: the index must number the trace's {len(pages)} rows; keep the index that was read"
        )
    order = np.lexsort((rows, frame["dispatch_ms"].to_numpy()))
    kept = pages.take(rows[order])
    if not (fits := fitting(kept.counts, isl[order], pages.page_size)).all():
        row = rows[order][int(np.argmin(fits))]
        raise SpecError(f"with_prefix: row {row} does not fit its page ids; keep isl and the index as they were read")
    hits = np.empty(len(rows), np.int64)
    hits[order] = oracle.hits(kept, isl[order])
    answer = frame.assign(prefix=hits)
    told = f"prefix: {hits.sum() / isl.sum():.1%} of prompt tokens hit in pages of {pages.page_size}, {oracle}"
    answer.attrs["notes"] = [note for note in frame.attrs.get("notes", []) if note != UNUSED] + [told]
    return answer
