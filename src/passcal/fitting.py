"""What an engine adds to the tables: the common form of `fitting_vllm` and its like."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from passcal.core.rank_table import RANK
from passcal.core.tables import NOBODY
from passcal.errors import SpecError

__all__ = ["Fitting", "Lengths", "clipped", "empty_rank"]


@dataclass(frozen=True)
class Lengths:
    """All lengths of a workload, one element a dealt row or request; arrays of int64.

    Attributes:
        isl, prefix, osl: tokens.
        group, shared: prefix group (-1: none) and how many leading tokens its requests share.
        pinned: the rank of its worker that it asks for (-1: any).
        most: outputs that the engine reckons with, at least osl.
        vision: of the isl tokens, how many an encoder makes.
        limit: requests sent in all.
        alive: requests that may live at a time.
    """

    isl: Any
    prefix: Any
    osl: Any
    group: Any
    shared: Any
    pinned: Any
    most: Any
    vision: Any
    limit: int
    alive: int

    @classmethod
    def of(cls, rows: Any, limit: int, alive: int) -> "Lengths":
        """From a structured array whose fields have these names."""
        names = ("isl", "prefix", "osl", "group", "shared", "pinned", "most", "vision")
        return cls(*(rows[name].astype(np.int64) for name in names), limit, alive)  # type: ignore[call-arg]


@dataclass(frozen=True)
class Fitting:
    """An engine's part of the tables.

    Attributes:
        rank: RANK[1], knobs set and state at time zero.
        seats: the most sequences that hold a seat at a time, and the most that one pass can end.
        osl: output lengths as the engine lets them happen.
        most: outputs that it reckons with.
        fixed: tables of `State` that the engine needs, by name.
        by_request: tables with a row a request, by name: their dtypes.
        width: ranks of a worker, which run in lockstep; all else is of one rank.
        room: numbers that its written state may need beyond sixteen a seat and eight a request.
    """

    rank: Any
    seats: int
    osl: Any
    most: Any
    fixed: dict[str, Any] = field(default_factory=dict)
    by_request: dict[str, Any] = field(default_factory=dict)
    room: int = 0
    width: int = 1


def empty_rank() -> Any:
    """RANK[1] with empty queues."""
    ranks = np.zeros(1, RANK)
    lists: tuple[str, ...] = (
        "arrived_head",
        "arrived_tail",
        "waiting_head",
        "waiting_tail",
        "newest",
        "remains_head",
        "remains_tail",
    )
    lists += ("asking_head", "asking_tail", "handed_head", "handed_tail")
    for name in lists:
        ranks[name] = NOBODY
    ranks["most_flying"], ranks["idle"], ranks["interval"], ranks["width"] = 1, 1, 1, 1
    return ranks


def clipped(lengths: Lengths, limit: int | None, name: str) -> Any:
    """Outputs to reckon with under a context limit: generation stops where prompt plus output reach it, a prompt at or over it is refused (E2)."""
    if limit is None:
        return lengths.most
    longest = int(lengths.isl.max())
    if longest >= limit:
        raise SpecError(
            f"isl={longest}: must be below {name}={limit}, or the engine refuses the request; raise the limit"
        )
    return np.minimum(lengths.most, limit - lengths.isl)
