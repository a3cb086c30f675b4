"""Comma, tab or semicolon separated text to raw columns, every row held to the header's number of fields."""

import io
from collections.abc import Collection

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from passcal.sources.readers.rows import Booleans, Rows
from passcal.sources.readers.source import Source, shown

__all__ = ["delimited", "header"]

SEPARATORS = ",\t;"
NEWLINE, QUOTE = ord("\n"), ord('"')


def header(source: Source) -> tuple[list[str], str]:
    """The column names of the first line, stripped, and the separator: the one that it has most of."""
    line = source.text.split(b"\n", 1)[0].decode("utf-8")
    separator = max(SEPARATORS, key=line.count)
    return [name.strip().strip('"') for name in line.split(separator)], separator


def delimited(source: Source, labels: Collection[str] = ()) -> Rows:
    """Parse all rows under a header that was checked; `labels` are the columns that stay text.

    Raises:
        TraceError: no rows, a row with another number of fields than the header, or misplaced quotes.
    """
    names, separator = header(source)
    body = source.text.split(b"\n", 1)[1]
    if not body:
        raise source.refusal("a header and no rows; a trace needs at least one request", 1)
    check_fields(source, body, separator, len(names))
    # Without a NaN filter an empty cell stays text, and a refusal can show it as it was written.
    frame = pd.read_csv(
        io.BytesIO(body),
        sep=separator,
        header=None,
        dtype={at: str for at, name in enumerate(names) if name in labels},
        na_filter=False,
        skip_blank_lines=False,
        skipinitialspace=True,
        low_memory=False,
        encoding="utf-8",
    )
    frame.columns = pd.Index(names)
    return Rows(source, frame, first=2)


def check_fields(source: Source, body: bytes, separator: str, expected: int) -> None:
    """Refuse the first row whose fields are not `expected` in number, by counting bytes.

    The parser would pad a short row and misread a long first one, so neither must reach it.
    """
    cells = np.frombuffer(body, np.uint8)
    ends = np.flatnonzero(cells == NEWLINE)
    starts = np.concatenate(([0], ends[:-1] + 1))
    marks: Booleans = cells == ord(separator)
    if b'"' in body:
        quoted = np.logical_xor.accumulate(cells == QUOTE)
        check_quotes(source, body, separator, quoted, ends)
        marks &= ~quoted
    fields = np.add.reduceat(marks, starts, dtype=np.int64) + 1
    if (wrong := fields != expected).any():
        row = int(np.argmax(wrong))
        text = body[starts[row] : ends[row]].decode("utf-8")
        count = f"{fields[row]} field" + "s" * bool(fields[row] > 1)
        raise source.refusal(f"{shown(text)} has {count}, the header has {expected}; mend or delete the row", row + 2)


def check_quotes(source: Source, body: bytes, separator: str, quoted: Booleans, ends: NDArray[np.intp]) -> None:
    """Refuse a quoted field that is open at a line's end, and a quote that opens within a field.

    What is left reads the same to every CSV parser, and line numbers are row numbers.
    """
    cells = np.frombuffer(body, np.uint8)
    opening = np.flatnonzero((cells == QUOTE) & quoted)
    allowed = np.frombuffer(f'{separator}\n"'.encode(), np.uint8)
    inside = opening[(opening > 0) & ~np.isin(cells[opening - 1], allowed)]
    faults = [
        (np.flatnonzero(quoted[ends]), "a quoted field does not end on its line; close the quote"),
        (np.searchsorted(ends, inside), "a quote within a field; quote whole fields or none"),
    ]
    found = [(int(rows[0]), problem) for rows, problem in faults if rows.size]
    if found:
        row, problem = min(found)
        raise source.refusal(problem, row + 2)
