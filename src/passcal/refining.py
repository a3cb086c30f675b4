"""One point evaluated: its figures as a record that crosses processes and files, or why it has none."""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from passcal.errors import Diverged, NotConverged, SpecError, Stalled, Unsupported
from passcal.evaluate import evaluate
from passcal.meets import figure
from passcal.points import Point
from passcal.progress import listening
from passcal.report import Report
from passcal.spec.sla import Sla, Target

__all__ = ["OBJECTIVES", "Objective", "Record", "Wanted", "refine"]

Objective = Literal["throughput", "per_gpu", "per_user", "fewest_gpus", "goodput"]
OBJECTIVES: tuple[Objective, ...] = ("throughput", "per_gpu", "per_user", "fewest_gpus", "goodput")
REFUSALS = (Diverged, NotConverged, SpecError, Stalled, Unsupported)


class Wanted(NamedTuple):
    """What of a report is kept beside the columns: the targets' figures, and goodput if it is asked for."""

    targets: tuple[Target, ...]
    goodput: bool


class Record(NamedTuple):
    """A point that is done.

    Attributes:
        columns: its figures by column; empty where it has none.
        figures: what each target is about.
        refused: the class of the error where it has none.
        why: its message.
    """

    columns: dict[str, Any]
    figures: list[float]
    refused: str = ""
    why: str = ""


def refine(points: Sequence[Point], wanted: Wanted) -> list[Record]:
    """Evaluate each; nobody listens to how far single evaluations are."""
    with listening(lambda done, of: None):
        return [refine_one(point, wanted) for point in points]


def refine_one(point: Point, wanted: Wanted) -> Record:
    """Evaluate one."""
    try:
        report = evaluate(point.workload, point.deployment, point.timing)
    except REFUSALS as error:
        return Record({}, [], type(error).__name__, str(error))
    tpot = report.tpot_ms.mean
    columns = report.to_columns() | {
        "gpus": report.gpus,
        "output_tokens_per_s_per_gpu": report.output_tokens_per_s_per_gpu,
        "output_tokens_per_s_per_user": 1000.0 / tpot if tpot > 0 else float("nan"),
    }
    if wanted.goodput:
        columns["goodput_rps"] = goodput(report, wanted.targets)
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in columns.items()}
    return Record(plain, [float(figure(report, target)) for target in wanted.targets])


def goodput(report: Report, targets: Sequence[Target]) -> float:
    """Requests a second that keep the limit of every latency target themselves."""
    frame = report.requests()
    first, last, more = frame["first_ms"], frame["done_ms"], frame["osl"] - 1
    latencies = {
        "ttft": first - frame["dispatch_ms"],
        "e2e": last - frame["dispatch_ms"],
        "queue": frame["admitted_ms"] - frame["visible_ms"],
        "tpot": (last - first) / more.where(more > 0),
    }
    kept = np.ones(len(frame), bool)
    for target in targets:
        if isinstance(target, Sla):
            kept &= ~(latencies[target.metric] > target.limit_ms).to_numpy()
    return report.throughput_per_s * float(kept.mean())
