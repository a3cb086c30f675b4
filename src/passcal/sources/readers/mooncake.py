"""Mooncake traces: one JSON object a line with `timestamp`, `input_length`, `output_length`, `hash_ids`."""

import os

import numpy as np
import pandas as pd

from passcal.sources.readers.clock import Columns, Spread
from passcal.sources.readers.objects import cell, check_keys, objects
from passcal.sources.readers.pages import PageIds, framed
from passcal.sources.readers.rows import Rows
from passcal.sources.readers.source import Source, load

__all__ = ["mooncake_frame", "read_mooncake"]

REQUIRED = ("timestamp", "input_length", "output_length")
KNOWN = dict.fromkeys((*REQUIRED, "hash_ids"))
PAGE_SIZE = 512


def read_mooncake(path: str | os.PathLike[str], *, spread: Spread = "none") -> pd.DataFrame:
    """Read lengths, times and page ids of a Mooncake trace (JSONL, also gzip).

    The file's clock is relative (ms since the trace began) and is kept, so an excerpt starts where it was cut. These
    traces put most rows on ticks of about 3 s; that is detected and noted, because it makes bursts that no client sent.

    Args:
        path: the file.
        spread: `"uniform"` deals the rows of a tick out evenly until the next tick.

    Returns:
        One row a request, sorted by time: `dispatch_ms` (float, ms), `isl`, `prefix` (0), `osl`, tokens as int64.
        `frame.attrs["notes"]` lists what was noticed or changed; `frame.attrs["pages"]` holds the `hash_ids` (pages of
        512 tokens, the last of a prompt filled or not), by the frame's index, if the file has any: see `with_prefix`.

    Raises:
        TraceError: the file or a row breaks a rule; the message names the line. Keys beyond the four are refused: they
            mark other formats, whose unit of time or block may differ.
    """
    return mooncake_frame(load(path), spread)


def mooncake_frame(source: Source, spread: Spread) -> pd.DataFrame:
    """`read_mooncake` on a file that is loaded already."""
    cells: dict[str, list[object]] = {key: [] for key in REQUIRED}
    page_ids = PageIds()
    for line, record in objects(source):
        check_keys(source, record, REQUIRED, KNOWN, line)
        for key, column in cells.items():
            column.append(cell(record[key]))
        page_ids.add(record.get("hash_ids", []))
    rows = Rows(source, pd.DataFrame(cells), first=1)
    times_ms = rows.times("timestamp")
    isl = rows.tokens("input_length", "isl", least=1)
    osl = rows.tokens("output_length", "osl", least=1)
    page_ids.hold(rows, isl, PAGE_SIZE)
    rows.settle()
    columns: Columns = {"dispatch_ms": times_ms, "isl": isl, "prefix": np.zeros_like(isl), "osl": osl}
    return framed(columns, page_ids.pages(PAGE_SIZE), [], spread)
