"""Whether a report keeps its service levels."""

import math
from collections.abc import Iterable

from passcal.report import Report
from passcal.spec.sla import Floor, Target
from passcal.targets import written

__all__ = ["excess", "figure", "keeps", "verdicts"]


def figure(report: Report, target: Target) -> float:
    """What the report says of a target's metric: milliseconds, or a second. NaN where nothing was measured, as gaps of one-token outputs."""
    if isinstance(target, Floor):
        name = "throughput_per_s" if target.metric == "throughput_rps" else target.metric
        return float(getattr(report, name))
    measured = getattr(report, f"{target.metric}_ms")
    return float(measured.mean if isinstance(target.quantile, str) else measured.quantile(target.quantile))


def keeps(value: float, target: Target) -> bool:
    """Whether a figure keeps its target, the limit itself included. A latency that nobody had is not too long."""
    return value >= target.limit if isinstance(target, Floor) else not value > target.limit_ms


def excess(value: float, target: Target) -> float:
    """How many times a figure breaks its target: above 1 if it does."""
    much, few = (target.limit, value) if isinstance(target, Floor) else (value, target.limit_ms)
    return much / few if few else math.inf


def verdicts(report: Report, targets: Iterable[Target]) -> tuple[str, ...]:
    """One line a target: the figure, and whether it keeps it."""
    told = []
    for target in targets:
        value = figure(report, target)
        told.append(f"sla {written(target)}: {value:.4g}, {'kept' if keeps(value, target) else 'violated'}")
    return tuple(told)
