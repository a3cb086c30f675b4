"""Trace files to frames that a replay takes: what was sent, when, and how long.

Every reader answers a frame with one row a request, sorted by time: `dispatch_ms` (float, ms), `isl`, `prefix`, `osl`
(int64 tokens), and where the file has them `prefix_group` and `prefix_len`. What was noticed or changed is listed in
`frame.attrs["notes"]`; what breaks a rule is refused by line. A file goes through four hands:

    source     bytes, gzip, encoding, line ends      the file as regular text
    delimited  fields, quotes, separators            raw columns
    rows       the rules, by whole columns           checked numbers
    clock      order, ticks, origin                  the frame

and `azure`, `mooncake`, `table` say what their columns are called.
"""

import os
from collections.abc import Callable
from typing import Literal

import pandas as pd

from passcal.errors import SpecError
from passcal.sources.readers.azure import AZURE_COLUMNS, azure_frame, read_azure
from passcal.sources.readers.clock import Spread
from passcal.sources.readers.delimited import header
from passcal.sources.readers.mooncake import mooncake_frame, read_mooncake
from passcal.sources.readers.source import Source, load
from passcal.sources.readers.table import read_table, table_frame

__all__ = ["Format", "Spread", "read_azure", "read_mooncake", "read_table", "read_trace"]

Format = Literal["auto", "azure", "mooncake", "table"]
FRAMES: dict[str, Callable[[Source, Spread], pd.DataFrame]] = {
    "azure": azure_frame,
    "mooncake": mooncake_frame,
    "table": table_frame,
}


def read_trace(path: str | os.PathLike[str], format: Format = "auto", *, spread: Spread = "none") -> pd.DataFrame:
    """Read a trace of any known format; `"auto"` tells which by the content, not by the name.

    Args:
        path: the file, plain or gzip.
        format: `"azure"`, `"mooncake"`, `"table"`, or `"auto"`.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly.

    Returns:
        The frame of `read_azure`, `read_mooncake` or `read_table`.

    Raises:
        SpecError: no such format or spread.
        TraceError: the file or a row breaks a rule; the message names the line.
        Unsupported: a Parquet file and pyarrow is not installed.
    """
    if format != "auto" and format not in FRAMES:
        raise SpecError(f"format is {format!r:.40}, must be one of auto, {', '.join(FRAMES)}")
    source = load(path)
    return FRAMES[sniffed(source) if format == "auto" else format](source, spread)


def sniffed(source: Source) -> str:
    """The format by its content: a JSON object, Azure's column names, or else a plain table."""
    if source.is_parquet or source.label.endswith((".parquet", ".parquet.gz")):
        return "table"
    start = source.text.lstrip()[:1]
    if start == b"{":
        return "mooncake"
    if start == b"[":
        raise source.refusal("a JSON array; write one JSON object a line (JSON Lines)", 1)
    return "azure" if set(AZURE_COLUMNS) & set(header(source)[0]) else "table"
