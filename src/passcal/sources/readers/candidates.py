"""A table of candidates from a CSV or Parquet file."""

from importlib.util import find_spec
from pathlib import Path

import pandas as pd

from passcal.errors import SpecError

__all__ = ["read_candidates"]


def read_candidates(path: Path) -> pd.DataFrame:
    """Columns by the file's own names; an empty cell is no value.

    Raises:
        SpecError: no such file, or no table.
    """
    parquet = path.suffix.lower() in (".parquet", ".pq")
    if parquet and find_spec("pyarrow") is None:
        raise SpecError(f"{path}: Parquet needs pyarrow; install passcal[parquet], or give CSV"[:199])
    try:
        frame = pd.read_parquet(path) if parquet else pd.read_csv(path)
    except OSError as error:
        raise SpecError(f"{path}: {error.strerror or 'cannot be read'}; give a CSV or Parquet file"[:199]) from None
    except ValueError as error:
        raise SpecError(f"{path}: {str(error).splitlines()[0]}; give a table with one header line"[:199]) from None
    if frame.empty:
        raise SpecError(f"{path}: has no rows; give one candidate a line"[:199])
    return frame
