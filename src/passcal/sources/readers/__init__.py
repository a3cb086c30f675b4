"""Trace files to frames that a replay takes: what was sent, when, and how long.

Every reader answers a frame with one row a request, sorted by time: `dispatch_ms` (float, ms), `isl`, `prefix`, `osl`
(int64 tokens), and where the file has them `prefix_group` and `prefix_len`. What was noticed or changed is listed in
`frame.attrs["notes"]`, page ids stand in `frame.attrs["pages"]`; what breaks a rule is refused by line. A file goes through four hands:

    source              bytes, gzip, encoding, line ends         the file as regular text
    delimited, objects  fields, quotes, separators; JSON         raw columns
    rows, pages         the rules, by whole columns; page ids    checked numbers
    clock               order, ticks, origin                     the frame

and `azure`, `mooncake`, `table`, `agent`, `results` say what their columns are called. The last two know more of a request than a replay takes:
`read_agent` and `read_results` answer all of it, `read_trace` the part that a replay takes.
"""

import os
from collections.abc import Callable
from typing import Literal

import pandas as pd

from passcal.errors import SpecError, TraceError
from passcal.sources.readers.agent import agent_frame, read_agent
from passcal.sources.readers.azure import AZURE_COLUMNS, azure_frame, read_azure
from passcal.sources.readers.clock import Spread
from passcal.sources.readers.delimited import header
from passcal.sources.readers.mooncake import mooncake_frame, read_mooncake
from passcal.sources.readers.objects import decoded
from passcal.sources.readers.pages import with_prefix
from passcal.sources.readers.results import RESULT_KEYS, read_results, results_frame
from passcal.sources.readers.source import Source, load
from passcal.sources.readers.table import read_table, table_frame

__all__ = [
    "Format",
    "Spread",
    "read_agent",
    "read_azure",
    "read_mooncake",
    "read_results",
    "read_table",
    "read_trace",
    "with_prefix",
]

Format = Literal["auto", "azure", "mooncake", "table", "agent", "results"]
FRAMES: dict[str, Callable[[Source, Spread], pd.DataFrame]] = {
    "azure": azure_frame,
    "mooncake": mooncake_frame,
    "table": table_frame,
    "agent": agent_frame,
    "results": results_frame,
}
REPLAYED = ("dispatch_ms", "isl", "prefix", "osl", "prefix_group", "prefix_len")


def read_trace(path: str | os.PathLike[str], format: Format = "auto", *, spread: Spread = "none") -> pd.DataFrame:
    """Read a trace of any known format; `"auto"` tells which by the content, not by the name.

    Args:
        path: the file, plain or gzip.
        format: `"azure"`, `"mooncake"`, `"table"`, `"agent"`, `"results"`, or `"auto"`.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly.

    Returns:
        The frame of `read_azure`, `read_mooncake` or `read_table`; of `read_agent` and `read_results` the columns that a replay takes, with a
        note that names the others.

    Raises:
        SpecError: no such format or spread.
        TraceError: the file or a row breaks a rule; the message names the line.
        Unsupported: a Parquet file and pyarrow is not installed.
    """
    if format != "auto" and format not in FRAMES:
        raise SpecError(f"format is {format!r:.40}, must be one of auto, {', '.join(FRAMES)}")
    source = load(path)
    known = sniffed(source) if format == "auto" else format
    frame = FRAMES[known](source, spread)
    if more := [name for name in frame.columns if name not in REPLAYED]:
        frame = frame.drop(columns=more)
        frame.attrs["notes"].append(f"not replayed, but in read_{known}: {', '.join(more)}")
    return frame


def sniffed(source: Source) -> str:
    """The format by its content: what the first JSON object has, Azure's column names, or else a plain table."""
    if source.is_parquet or source.label.endswith((".parquet", ".parquet.gz")):
        return "table"
    start = source.text.lstrip()[:1]
    if start == b"{":
        return sniffed_object(source)
    if start == b"[":
        raise source.refusal("a JSON array; write one JSON object a line (JSON Lines)", 1)
    return "azure" if set(AZURE_COLUMNS) & set(header(source)[0]) else "table"


def sniffed_object(source: Source) -> str:
    """The format of JSON by the keys of its first object: the first line, or the whole file."""
    head, _, rest = source.text.decode("utf-8").partition("\n")
    for text in (head, head + "\n" + rest):
        try:
            first = decoded(source, text, 1)
        except TraceError:
            continue
        keys = set(first) if isinstance(first, dict) else set()
        if "requests" in keys and "benchmarks" not in keys:
            return "agent"
        return "results" if any(marks <= keys for marks in RESULT_KEYS) else "mooncake"
    return "mooncake"
