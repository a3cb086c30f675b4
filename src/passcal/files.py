"""Files that are written whole or not at all."""

import os
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from passcal.errors import SpecError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["check_frame_target", "check_target", "has_parquet", "write_frame", "write_whole"]


def has_parquet() -> bool:
    """Whether what writes Parquet is installed."""
    return find_spec("pyarrow") is not None


def check_target(path: Path | None, option: str) -> None:
    """Refuse, before any work is done, a file that could not be written.

    Raises:
        SpecError: its folder does not exist, or it is there and no plain file.
    """
    if path is None:
        return
    if not path.parent.is_dir():
        raise SpecError(f"{option} {path}: its folder does not exist; make it first")
    if path.exists() and not path.is_file():
        raise SpecError(f"{option} {path}: is no plain file; name another")


def check_frame_target(path: Path | None, option: str, parquet: bool) -> None:
    """The same, of a file of rows; what writes Parquet must be installed.

    Raises:
        SpecError: it is not, or as above.
    """
    check_target(path, option)
    if path is not None and parquet and not has_parquet():
        raise SpecError(f"{option} {path}: Parquet needs pyarrow; install passcal[parquet], or write CSV")


def write_frame(path: Path, option: str, frame: "pd.DataFrame", parquet: bool) -> None:
    """Write a frame's rows as CSV or Parquet."""
    if parquet:
        write_whole(path, option, lambda out: frame.to_parquet(out, index=False), binary=True)
    else:
        write_whole(path, option, lambda out: frame.to_csv(out, index=False, lineterminator="\n"))


def write_whole(path: Path, option: str, write: Callable[[IO[Any]], object], binary: bool = False) -> None:
    """Let `write` fill a file beside the target and then take its place, so that nobody sees half of it.

    Raises:
        SpecError: the file cannot be written.
    """
    check_target(path, option)
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with beside.open("xb") if binary else beside.open("x", encoding="utf-8", newline="") as file:
            write(file)
        beside.replace(path)
    except OSError as error:
        raise SpecError(f"{option} {path}: cannot be written ({error.strerror}); name another file") from None
    finally:
        beside.unlink(missing_ok=True)
