"""The funnel: candidates that break a target for sure are left out, the others are evaluated from the most promising on, until the best are known.

Exact, not greedy: an objective has a value that no evaluation of a candidate can better, and the evaluator is asked in the order of these values
until the best so far betters all that are left. What has no such value comes first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.bounds import Bounds, break_together, breaks, keeps_for_sure
from passcal.errors import Unsupported
from passcal.meets import keeps
from passcal.points import Point, gpus
from passcal.refining import Objective, Record
from passcal.spec.sla import Target

__all__ = ["Found", "best_possible", "funnel"]

BATCH = 64  # evaluated at a time; the same for every executor, so that all evaluate the same candidates
Key = tuple[float, float, int]  # objective, tokens a second, and the earlier row of two alike

Ask = Callable[[Sequence[int], int], dict[int, Record]]


@dataclass(frozen=True)
class Found:
    """What came of it.

    Attributes:
        best: rows that keep every target, best first.
        records: all that were evaluated, by row.
        counts: of candidates, by what became of them.
    """

    best: list[int]
    records: dict[int, Record]
    counts: dict[str, Any]


def best_possible(objective: Objective, points: Sequence[Point | Exception], bounds: Bounds) -> tuple[Any, Any]:
    """The objective and tokens a second that no evaluation can better; arrays over candidates."""
    tokens = bounds.most_per_s * bounds.osl
    used = np.array([1.0 if isinstance(point, Exception) else float(gpus(point)) for point in points])
    with np.errstate(divide="ignore"):
        best = {
            "throughput": tokens,
            "per_gpu": tokens / used,
            "per_user": 1000.0 / bounds.mean_tpot_ms,
            "fewest_gpus": -used,
            "goodput": bounds.most_per_s,
        }
    return best[objective], tokens


def worth(objective: Objective, record: Record, row: int) -> Key:
    """The same, as evaluated."""
    columns = record.columns
    value = {
        "throughput": columns["output_tokens_per_s"],
        "per_gpu": columns["output_tokens_per_s_per_gpu"],
        "per_user": columns["output_tokens_per_s_per_user"],
        "fewest_gpus": -float(columns["gpus"]),
        "goodput": columns.get("goodput_rps", 0.0),
    }[objective]
    return (value if value == value else -np.inf, columns["output_tokens_per_s"], -row)


def funnel(
    points: Sequence[Point | Exception],
    bounds: Bounds,
    targets: Sequence[Target],
    objective: Objective,
    top: int | None,
    ask: Ask,
) -> Found:
    """The best candidates that keep all targets.

    Args:
        points: or why there is none.
        bounds: of each.
        targets: that must be kept.
        objective: what is best; of equals the one with more tokens a second, then the earlier one.
        top: how many; None: all, so that every candidate that is not left out is evaluated.
        ask: evaluates rows; it is told how many it may be asked for in all.
    """
    count = len(points)
    readable = np.array([not isinstance(point, Exception) for point in points], bool)
    rejected, kept = break_together(targets, bounds), np.ones(count, bool)
    for at in range(len(targets)):
        rejected |= breaks(targets, at, bounds)
        kept &= keeps_for_sure(targets, at, bounds)
    best, tokens = best_possible(objective, points, bounds)
    order = np.lexsort((np.arange(count), -tokens, -best))
    order = order[(readable & ~rejected)[order]]
    records: dict[int, Record] = {}
    feasible: list[Key] = []
    for start in range(0, len(order), BATCH):
        rows = [int(row) for row in order[start : start + BATCH]]
        if top is not None and len(feasible) >= top and feasible[top - 1] > (best[rows[0]], tokens[rows[0]], -rows[0]):
            break
        found = ask(rows, len(order))
        records |= found
        feasible += [worth(objective, record, row) for row, record in found.items() if feasible_one(record, targets)]
        feasible.sort(reverse=True)
    counts: dict[str, Any] = {
        "candidates": count,
        "rejected_by_bracket": int((readable & rejected).sum()),
        "kept_by_bracket": int((readable & kept & ~rejected).sum()) if targets else 0,
        "refined": len(records),
        "rejected_by_evaluator": sum(not r.refused and not feasible_one(r, targets) for r in records.values()),
        "confirmed": len(feasible),
        "cannot_better": len(order) - len(records),
        **refusals(points, records),
    }
    return Found([-row for _, _, row in feasible[:top]], records, counts)


def feasible_one(record: Record, targets: Sequence[Target]) -> bool:
    """Whether it has figures that keep every target."""
    return not record.refused and all(keeps(v, target) for v, target in zip(record.figures, targets, strict=True))


def refusals(points: Sequence[Point | Exception], records: dict[int, Record]) -> dict[str, dict[str, int]]:
    """Candidates without figures, counted by message: wishes that are not modelled, and all else."""
    told: dict[str, dict[str, int]] = {"unsupported": {}, "errors": {}}
    before = [(type(point).__name__, str(point)) for point in points if isinstance(point, Exception)]
    for name, why in [*before, *((record.refused, record.why) for record in records.values() if record.refused)]:
        kind = told["unsupported" if name == Unsupported.__name__ else "errors"]
        kind[why] = kind.get(why, 0) + 1
    return told
