"""Rows of a candidate table to points: a deployment, a workload and a timing model each, or why there is none."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from passcal.errors import SpecError, Unsupported
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import ENGINES, engine
from passcal.spec.lengths import Lengths
from passcal.spec.workload import Workload
from passcal.timing.base import TimingModel

__all__ = ["LENGTHS", "Point", "Points", "Timings", "Values", "gpus", "read_points"]

Values = Mapping[str, Sequence[Any]]  # columns of a table; None: no value
Timings = TimingModel | Mapping[Any, TimingModel] | Callable[[Mapping[str, Any]], TimingModel]
T = TypeVar("T")
DEPLOYMENT = ("replicas", "routing")
LENGTHS = ("isl", "osl", "prefix")
TRAFFIC = (*LENGTHS, "concurrency", "turnaround_ms", "rate_per_s")
OPTIONS = {name for model in ENGINES.values() for name in model.model_fields}
WIDTH = ("data_parallel_size", "dp_size", "attention_dp")  # ranks of a worker, by engine


class Point(NamedTuple):
    """What is evaluated for one row."""

    deployment: Aggregated
    workload: Workload
    timing: TimingModel


@dataclass(frozen=True)
class Points:
    """Of a table, in its order.

    Attributes:
        rows: a point, or why the row has none.
        timings: all that occur.
        timing_of: which of them a row has.
    """

    rows: list[Point | Exception]
    timings: list[TimingModel]
    timing_of: list[int]


def gpus(point: Point) -> int:
    """GPUs of a point (E3)."""
    width = next(getattr(point.deployment.engine, name) for name in WIDTH if hasattr(point.deployment.engine, name))
    return int(point.deployment.replicas * width * getattr(point.timing, "gpus", 1))


def read_points(columns: Values, workload: Workload | None, timing: Timings) -> Points:
    """Every row as a point; rows that break a rule stand as the error that says so.

    Args:
        columns: by name, all of one length.
        workload: who sends what, where no column says it.
        timing: a model, or models by the values of column `timing`, or a function of a row (a mapping of its columns).

    Raises:
        SpecError: a column that nothing reads, no backend, a timing that is none, or not one row that can be read.
    """
    if "backend" not in columns:
        raise SpecError(f"backend is missing: give a column with one of {', '.join(ENGINES)} in every row")
    timings, timing_of, read = read_timings(columns, timing)
    for name in columns:
        if name not in OPTIONS and name not in (*DEPLOYMENT, *TRAFFIC) and name not in read:
            raise SpecError(
                f"column {name!r:.60}: nothing reads it; drop it, or name it as the engine or workload does"
            )
    deployments = specs(columns, [name for name in columns if name in OPTIONS or name in DEPLOYMENT], deployed)
    workloads = specs(columns, [n for n in columns if n in TRAFFIC], lambda given: sent(workload, given))
    rows: list[Point | Exception] = []
    for deployment, asked, code in zip(deployments, workloads, timing_of, strict=True):
        if isinstance(deployment, Exception):
            rows.append(deployment)
        elif isinstance(asked, Exception):
            rows.append(asked)
        else:
            rows.append(Point(deployment, asked, timings[code]))
    if rows and all(isinstance(row, Exception) for row in rows):
        raise next(row for row in rows if isinstance(row, Exception))
    return Points(rows, timings, timing_of)


def specs(columns: Values, names: Sequence[str], make: Callable[[dict[str, Any]], T]) -> Iterator[T | Exception]:
    """One spec a row of what these columns say, made once where rows say the same; an error where a rule is broken."""
    kept: dict[Any, T | Exception] = {}
    count = len(columns["backend"])
    for values in zip(*(columns[name] for name in names), strict=True) if names else iter([()] * count):
        key = tuple(map(repr, values))
        if key not in kept:
            try:
                kept[key] = make({name: value for name, value in zip(names, values, strict=True) if value is not None})
            except (SpecError, Unsupported) as error:
                kept[key] = error
        yield kept[key]


def deployed(given: dict[str, Any]) -> Aggregated:
    """Workers of a row."""
    around = {name: given.pop(name) for name in DEPLOYMENT if name in given}
    return Aggregated(engine(given.pop("backend", None), **given), **around)


def sent(workload: Workload | None, given: dict[str, Any]) -> Workload:
    """The workload with what a row says of it."""
    if workload is None:
        make: Callable[..., Workload] = Workload.open_loop if "rate_per_s" in given else Workload.closed_loop
        try:
            return make(**given)
        except TypeError:
            raise SpecError(
                f"{', '.join(given)}: belong to different workloads; give concurrency or rate_per_s"
            ) from None
    if not given:
        return workload
    fields = {name: getattr(workload, name) for name in type(workload).model_fields}
    lengths = {name: given.pop(name) for name in LENGTHS if name in given}
    if lengths:
        fields["shapes"] = reshaped(fields.get("shapes"), lengths)
    return type(workload)(**{**fields, **given})


def reshaped(shapes: Any, lengths: dict[str, Any]) -> list[dict[str, Any]]:
    """One shape with other lengths."""
    if shapes is None or isinstance(shapes, Lengths) or len(set(shapes)) > 1:
        raise SpecError(f"column {next(iter(lengths))!r}: the workload has lengths of its own; drop the column")
    isl, prefix, osl = shapes[0][:3]
    return [{"isl": isl, "prefix": prefix, "osl": osl, **lengths}]


def read_timings(columns: Values, timing: Timings) -> tuple[list[TimingModel], list[int], set[str]]:
    """All models, which of them each row has, and columns that were read to tell.

    Raises:
        SpecError: no model, or none for a row.
    """
    count = len(columns["backend"])
    if isinstance(timing, TimingModel):
        return [timing], [0] * count, set()
    if isinstance(timing, Mapping):
        if "timing" not in columns:
            raise SpecError("timing: models by name need a column 'timing' with a name in every row; add it")
        for key in columns["timing"]:
            if key not in timing:
                raise SpecError(f"timing={key!r:.40}: must be one of {', '.join(map(str, timing))}; name one"[:199])
        read, found = {"timing"}, (timing[key] for key in columns["timing"])
    elif callable(timing):
        names, read = list(columns), set()
        rows = zip(*columns.values(), strict=True)
        found = (timing(Row(zip(names, row, strict=True), read)) for row in rows)
    else:
        raise SpecError(f"timing={timing!r:.60}: must be a timing model, models by name, or a function of a row")
    numbers: dict[Any, int] = {}
    models: list[TimingModel] = []
    timing_of = []
    for at, model in enumerate(found):
        if not isinstance(model, TimingModel):
            raise SpecError(f"row {at}: timing={model!r:.60}: must be a timing model; of a Roofline, call .timing()")
        key = model if isinstance(model, Hashable) else id(model)
        if key not in numbers:
            numbers[key] = len(models)
            models.append(model)
        timing_of.append(numbers[key])
    return models, timing_of, read


class Row(dict[str, Any]):
    """A row that remembers which of its columns were read."""

    def __init__(self, items: Any, read: set[str]) -> None:
        super().__init__(items)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping."""
        self.read.add(name)
        return super().get(name, default)
