"""Azure LLM inference traces of 2023: `TIMESTAMP, ContextTokens, GeneratedTokens`."""

import os

import numpy as np
import pandas as pd

from passcal.sources.readers.clock import Spread, arranged
from passcal.sources.readers.delimited import delimited, header
from passcal.sources.readers.rows import check_columns
from passcal.sources.readers.source import Source, load

__all__ = ["AZURE_COLUMNS", "azure_frame", "read_azure"]

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
SHORTEST_STAMP = len("2023-11-16 18:17:03")


def read_azure(path: str | os.PathLike[str], *, spread: Spread = "none") -> pd.DataFrame:
    """Read an Azure LLM inference trace (CSV, also gzip).

    Timestamps are ISO 8601 with up to nine fractional digits; without an offset they are UTC. The clock is absolute, so
    the first request is put at 0 ms.

    Args:
        path: the file.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly (this trace has none).

    Returns:
        One row a request, sorted by time: `dispatch_ms` (float, ms), `isl` (ContextTokens), `prefix` (0: not in the
        file), `osl` (GeneratedTokens), tokens as int64. `frame.attrs["notes"]` lists what was noticed or changed.

    Raises:
        TraceError: the file or a row breaks a rule; the message names the line.
    """
    return azure_frame(load(path), spread)


def azure_frame(source: Source, spread: Spread) -> pd.DataFrame:
    """`read_azure` on a file that is loaded already."""
    check_columns(source, header(source)[0], AZURE_COLUMNS)
    rows = delimited(source, labels=["TIMESTAMP"])
    written = rows.frame["TIMESTAMP"]
    stamps = pd.to_datetime(written, format="ISO8601", errors="coerce", utc=True)
    # The length keeps out what pandas also takes for an instant: a bare year or date, "now", "today".
    dated = stamps.notna().to_numpy() & (written.str.len() >= SHORTEST_STAMP).to_numpy()
    rows.demand(dated, "TIMESTAMP", "must be a date with time like 2023-11-16 18:17:03.9799600; mend or delete the row")
    isl = rows.tokens("ContextTokens", "isl", least=1)
    osl = rows.tokens("GeneratedTokens", "osl", least=1)
    rows.settle()
    elapsed_ms = np.asarray((stamps - stamps.min()) / pd.Timedelta(1, "ms"), np.float64)
    return arranged({"dispatch_ms": elapsed_ms, "isl": isl, "prefix": np.zeros_like(isl), "osl": osl}, [], spread)
