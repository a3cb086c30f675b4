"""Loads that a search for capacity tries: the closed form answers where its bounds decide, the evaluator everywhere else and for whatever is reported."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.bounding import Verdict, nothing_known
from passcal.meets import excess, figure, keeps
from passcal.report import Report
from passcal.spec.sla import Sla, Target

__all__ = ["EVALUATED", "SCREENED", "Misled", "Point", "Trial"]

EVALUATED, SCREENED = "quantitative", "screening"  # as the columns say it


class Misled(Exception):
    """An evaluation contradicts a bound: the search must be made again, and the trial trusts no bound from now on."""


@dataclass(frozen=True)
class Point:
    """A load that was tried.

    Attributes:
        load: clients, or requests a second.
        figures: what each target is about, in their order; NaN where the load was screened.
        violated: the targets that are not kept.
        throughput_rps: requests completed a second; NaN where the load was screened.
        half_width_ms: half of the 95% confidence interval of TTFT p99; 0 where figures are exact, NaN where the load was screened.
        kept: whether all targets are; None where only the latencies are known to be.
        queueing_tier: `quantitative`, or `screening` where bounds of the closed form decided and nothing was evaluated.
    """

    load: float
    figures: tuple[float, ...]
    violated: tuple[Target, ...]
    throughput_rps: float
    half_width_ms: float
    kept: bool | None
    queueing_tier: str = EVALUATED


class Trial:
    """Tries loads, keeps what the targets are about, and the report of the largest load that keeps them.

    Args:
        run: evaluates a load.
        loads: by level, ascending.
        sla: the targets.
        tell: called with each point as it is done.
        screened: what bounds say of a load.
    """

    def __init__(
        self,
        run: Callable[[float], Report],
        loads: Sequence[float],
        sla: tuple[Target, ...],
        tell: Callable[[Point], Any],
        screened: Callable[[float], Verdict],
    ) -> None:
        self.run, self.loads, self.sla, self.tell, self.screened = run, loads, sla, tell, screened
        self.points: dict[int, Point] = {}
        self.best: tuple[int, Report] | None = None
        self.misled: float | None = None

    def point(self, level: int) -> Point:
        """What the evaluator finds at a level, which is counted from 1.

        Raises:
            Misled: bounds say other.
        """
        if not self.evaluated(level):
            load = self.loads[level - 1]
            report = self.run(load)
            figures = tuple(figure(report, target) for target in self.sla)
            violated = tuple(t for t, value in zip(self.sla, figures, strict=True) if not keeps(value, t))
            if not violated and (self.best is None or level > self.best[0]):
                self.best = level, report
            half = report.window.p99_half_width_ms
            self.add(level, Point(load, figures, violated, report.throughput_per_s, half, not violated))
            if self.misled is None and contradicts(violated, self.screened(load)):
                self.misled = load
                raise Misled
        return self.points[level]

    def evaluated(self, level: int) -> bool:
        """Whether the evaluator was asked."""
        return level in self.points and self.points[level].queueing_tier == EVALUATED

    def add(self, level: int, point: Point) -> None:
        """Keep it, as the last one, and tell."""
        self.points.pop(level, None)
        self.points[level] = point
        self.tell(point)

    def verdict(self, level: int) -> Verdict:
        """What bounds say of a level that is not evaluated; where they decide, it is kept as screened."""
        if self.misled is not None or self.evaluated(level):
            return nothing_known(level)
        load = self.loads[level - 1]
        known = self.screened(load)
        if known.latencies is not None and level not in self.points:
            nothing = (np.nan,) * len(self.sla)
            self.add(level, Point(load, nothing, known.broken, np.nan, np.nan, known.everything, SCREENED))
        return known

    def quick(self, level: int) -> bool:
        """Whether latencies are kept."""
        known = self.verdict(level).latencies
        return not any(isinstance(target, Sla) for target in self.point(level).violated) if known is None else known

    def kept(self, level: int) -> bool:
        """Whether everything is."""
        known = self.verdict(level).everything
        return not self.point(level).violated if known is None else known

    def report(self, level: int) -> Report:
        """At a level that keeps everything."""
        self.point(level)
        return self.best[1] if self.best and self.best[0] == level else self.run(self.loads[level - 1])

    def worst(self, level: int) -> tuple[Target, float]:
        """The target that is broken by the largest factor, a latency before a floor, and its figure."""
        point = self.point(level)
        pairs = [pair for pair in zip(self.sla, point.figures, strict=True) if pair[0] in point.violated]
        return max(pairs, key=lambda pair: (isinstance(pair[0], Sla), excess(pair[1], pair[0])))


def contradicts(violated: Sequence[Target], known: Verdict) -> bool:
    """Whether the evaluator says other than the bounds."""
    quick = not any(isinstance(target, Sla) for target in violated)
    return known.latencies not in (None, quick) or known.everything not in (None, not violated)
