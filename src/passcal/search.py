"""The largest level that holds, where levels should hold up to a point and fail beyond it, and might not."""

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Found", "between", "largest"]

Holds = Callable[[int], bool]
SCANNED = 64  # levels of a scan between two that disagree


@dataclass(frozen=True)
class Found:
    """Levels count from 1.

    Attributes:
        last: every level that was tried up to this one holds; 0: the first does not.
        again: levels beyond the first failure that hold all the same, as far as they were tried.
    """

    last: int
    again: tuple[int, ...] = ()


def between(low: int, high: int, holds: Holds) -> int:
    """Bisect: of `low`, which holds, and `high`, which does not, to the last that holds before one that does not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def largest(count: int, holds: Holds, *, climb: bool, checks: int) -> Found:
    """The largest level below the first that is found to fail.

    It bisects, then tries up to `checks` levels spread below the answer (all, if there are no more). If one of them fails, levels are not
    monotone: those between it and the last that holds below it are scanned, and the search goes on below the first failure. In the end a quarter
    as many levels just above the first failure are tried, to tell whether they hold again.

    Args:
        count: of levels.
        holds: whether a level does; asked once each.
        climb: double the level from 1 on before bisecting, since high ones are dear; and spread checks by factors, not by differences.
        checks: how many levels are tried for no other reason than to see whether they agree.
    """
    tried: dict[int, bool] = {}

    def ask(level: int) -> bool:
        if level not in tried:
            tried[level] = holds(level)
        return tried[level]

    def bracket() -> tuple[int, int]:
        high = min((level for level, held in tried.items() if not held), default=count + 1)
        return max((level for level, held in tried.items() if held and level < high), default=0), high

    step = 1
    while ask(step) and climb and step < count:
        step = min(2 * step, count)
    while True:
        low = between(*bracket(), ask)
        if all(ask(level) for level in spread(low, checks, climb)):
            break
        below, failing = bracket()
        stride = -(-(failing - below) // SCANNED)
        for level in range(below + stride, failing, stride):
            if not ask(level):
                break
    for level in range(low + 2, min(low + 1 + checks // 4, count) + 1):
        ask(level)
    return Found(low, tuple(sorted(level for level, held in tried.items() if held and level > low)))


def spread(last: int, checks: int, by_factors: bool) -> list[int]:
    """Up to so many levels below `last`; all where there are no more."""
    if last - 1 <= checks:
        return list(range(1, last))
    parts = [k / (checks + 1) for k in range(1, checks + 1)]
    return sorted({round(last**part if by_factors else last * part) for part in parts} - {0, last})
