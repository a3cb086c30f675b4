"""Lists of rows, threaded through their field `after`; whoever keeps one keeps its head and tail."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY

__all__ = ["put_last"]


@jit
def put_last(rows: Any, tail: int, i: int) -> bool:
    """Row i stands behind the tail of a list, and is its tail from now on; whether it is its head too."""
    rows[i].after = NOBODY
    if tail == NOBODY:
        return True
    rows[tail].after = i
    return False
