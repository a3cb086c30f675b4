"""Plain tables, CSV or Parquet, in the package's own column names."""

import io
import os

import numpy as np
import pandas as pd

from passcal.errors import Unsupported
from passcal.sources.readers.clock import Spread, arranged
from passcal.sources.readers.delimited import delimited, header
from passcal.sources.readers.rows import Floats, Rows, check_columns
from passcal.sources.readers.source import Source, load, shown

__all__ = ["read_table", "table_frame"]

CLOCKS_MS = {"dispatch_ms": 1.0, "arrival_ms": 1.0, "arrival_s": 1000.0}
"""The columns that can tell the time, and the milliseconds of their unit."""
REQUIRED = ("isl", "osl")
OPTIONAL = ("prefix", "prefix_group", "prefix_len")


def read_table(path: str | os.PathLike[str], *, spread: Spread = "none") -> pd.DataFrame:
    """Read a plain table of requests: CSV (comma, tab or semicolon) or Parquet, also gzip.

    Columns: exactly one of `dispatch_ms`, `arrival_ms`, `arrival_s`; `isl` and `osl` in tokens, at least 1; optional
    `prefix` (cached tokens, 0 <= prefix < isl); optional, together, `prefix_group` (a label; requests of one group
    share their first tokens; blank for none) and `prefix_len` (how many, 0 where the group is blank). Any other
    column is refused.

    The file's clock is kept, unless it counts from an epoch: then the first request is put at 0 and a note says so.

    Args:
        path: the file; Parquet by its suffix or its first bytes.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly.

    Returns:
        One row a request, sorted by time: `dispatch_ms` (float, ms), `isl`, `prefix`, `osl` as int64, and where the
        file has them `prefix_group` (text, missing for none) and `prefix_len` (int64). `frame.attrs["notes"]` lists
        what was noticed or changed.

    Raises:
        TraceError: the file or a row breaks a rule; the message names the line (the row, in Parquet).
        Unsupported: a Parquet file and pyarrow is not installed.
    """
    return table_frame(load(path), spread)


def table_frame(source: Source, spread: Spread) -> pd.DataFrame:
    """`read_table` on a file that is loaded already."""
    if source.is_parquet or source.label.endswith((".parquet", ".parquet.gz")):
        rows = parquet(source)
        clock = clock_of(source, list(rows.frame.columns))
    else:
        clock = clock_of(source, header(source)[0])
        rows = delimited(source, labels=["prefix_group"])
    times_ms = rows.times(clock, CLOCKS_MS[clock])
    isl = rows.tokens("isl", "isl", least=1)
    osl = rows.tokens("osl", "osl", least=1)
    prefix = np.zeros_like(isl)
    if "prefix" in rows.frame:
        prefix = rows.tokens("prefix", "prefix", least=0)
        rows.demand(~(prefix >= isl), "prefix", "prefix must be < isl; the last prompt token is never cached")
    columns = {"dispatch_ms": times_ms, "isl": isl, "prefix": prefix, "osl": osl, **shared(rows)}
    rows.settle()
    return arranged(columns, [], spread)


def clock_of(source: Source, names: list[str]) -> str:
    """The one column that tells the time, once all columns are known to be in order."""
    check_columns(source, names, REQUIRED, (*CLOCKS_MS, *OPTIONAL))
    clocks = [name for name in CLOCKS_MS if name in names]
    if len(clocks) != 1:
        found = " and ".join(clocks) or "no time column"
        raise source.refusal(f"{found} found; keep exactly one of {', '.join(CLOCKS_MS)}", 1)
    if ("prefix_group" in names) != ("prefix_len" in names):
        raise source.refusal("prefix_group and prefix_len mean something only together; add the other or drop it", 1)
    return clocks[0]


def shared(rows: Rows) -> dict[str, Floats | pd.Series]:
    """The columns that say which requests share a prefix, where the file has them."""
    if "prefix_group" not in rows.frame:
        return {}
    length = rows.tokens("prefix_len", "prefix_len", least=0)
    group = rows.frame["prefix_group"].astype("string").str.strip().fillna("")
    blank = (group == "").to_numpy(np.bool_)
    rows.demand(~(blank & (length > 0)), "prefix_len", "must be 0 where prefix_group is blank; name the group")
    return {"prefix_group": group.mask(blank), "prefix_len": length}


def parquet(source: Source) -> Rows:
    """The columns of a Parquet file; integers with nulls stay integers, so that a null can be named."""
    try:
        import pyarrow
    except ImportError:
        raise Unsupported(f"{source.label}: Parquet needs pyarrow; pip install 'passcal[parquet]'") from None
    try:
        frame = pd.read_parquet(io.BytesIO(source.data), engine="pyarrow", dtype_backend="numpy_nullable")
        # A named index is a column that must be known; one without a name only numbers the rows.
        frame = frame.reset_index(drop=list(frame.index.names) == [None])
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        raise source.refusal(f"not a sound Parquet file ({shown(error)}); write it again") from None
    if frame.empty:
        raise source.refusal("no rows; a trace needs at least one request")
    return Rows(source, frame, first=1, unit="row")
