"""Rows of a candidate table to points: a deployment, a workload and a timing model each, or why there is none."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard, TypeVar

from passcal.deployments import COLUMNS_OF, POOLS, deployed
from passcal.errors import SpecError, Unsupported
from passcal.spec.deployment import Aggregated, Deployment
from passcal.spec.engine import ENGINES, EngineSpec
from passcal.spec.lengths import Lengths
from passcal.spec.workload import Workload
from passcal.timing.base import TimingModel

__all__ = ["LENGTHS", "Point", "Points", "Priced", "Timings", "Values", "gpus", "is_pair", "read_points"]

Values = Mapping[str, Sequence[Any]]  # columns of a table; None: no value
Priced = TimingModel | Mapping[str, TimingModel]  # of a row: one model, or one for `prefill` and one for `decode`
Timings = Priced | Mapping[Any, Priced] | Callable[[Mapping[str, Any]], Priced]
T = TypeVar("T")
LENGTHS = ("isl", "osl", "prefix")
TRAFFIC = (*LENGTHS, "concurrency", "turnaround_ms", "rate_per_s")
DEPLOYMENT = frozenset().union(*COLUMNS_OF.values())
WIDTH = ("data_parallel_size", "dp_size", "attention_dp")  # ranks of a worker, by engine


class Point(NamedTuple):
    """What is evaluated for one row."""

    deployment: Deployment
    workload: Workload
    timing: Priced


@dataclass(frozen=True)
class Points:
    """Of a table, in its order.

    Attributes:
        rows: a point, or why the row has none.
        timings: all that occur.
        timing_of: which of them a row has.
    """

    rows: list[Point | Exception]
    timings: list[Priced]
    timing_of: list[int]


def gpus(point: Point) -> int:
    """GPUs of a point, of both pools where there are two (E3)."""
    deployment, timing = point.deployment, point.timing
    if isinstance(deployment, Aggregated):
        return deployment.replicas * rank_gpus(deployment.engine, timing)
    prefill, decode = (timing[pool] if isinstance(timing, Mapping) else timing for pool in POOLS)
    return deployment.prefill_workers * rank_gpus(deployment.prefill, prefill) + deployment.decode_workers * rank_gpus(
        deployment.decode, decode
    )


def rank_gpus(worker: EngineSpec, timing: Priced) -> int:
    """GPUs of a worker: its ranks, times those that a rank's pass runs on."""
    width = next(getattr(worker, name) for name in WIDTH if hasattr(worker, name))
    return int(width * getattr(timing, "gpus", 1))


def read_points(columns: Values, workload: Workload | None, timing: Timings) -> Points:
    """Every row as a point; rows that break a rule stand as the error that says so.

    Args:
        columns: by name, all of one length.
        workload: who sends what, where no column says it.
        timing: what a row's passes cost: a model, or a mapping of `prefill` and `decode` to one each. Or these by the values of a column `timing`, or
            a function of a row (a mapping of its columns) that answers with one of them.

    Raises:
        SpecError: a column that nothing reads, no backend, a timing that is none, or not one row that can be read.
    """
    if not any(name in columns for name in ("backend", *(f"{pool}.backend" for pool in POOLS))):
        raise SpecError(f"backend is missing: give a column with one of {', '.join(ENGINES)} in every row")
    timings, timing_of, read = read_timings(columns, timing)
    for name in columns:
        if name not in DEPLOYMENT and name not in TRAFFIC and name not in read:
            raise SpecError(
                f"column {name!r:.60}: nothing reads it; drop it, or name it as the engine or workload does"
            )
    deployments = specs(columns, [name for name in columns if name in DEPLOYMENT], deployed)
    workloads = specs(columns, [n for n in columns if n in TRAFFIC], lambda given: sent(workload, given))
    rows: list[Point | Exception] = []
    for deployment, asked, code in zip(deployments, workloads, timing_of, strict=True):
        if isinstance(deployment, Exception):
            rows.append(deployment)
        elif isinstance(asked, Exception):
            rows.append(asked)
        elif isinstance(deployment, Aggregated) and isinstance(timings[code], Mapping):
            rows.append(
                SpecError("timing of prefill and decode: a row of kind=aggregated has one timing model; give one")
            )
        else:
            rows.append(Point(deployment, asked, timings[code]))
    if rows and all(isinstance(row, Exception) for row in rows):
        raise next(row for row in rows if isinstance(row, Exception))
    return Points(rows, timings, timing_of)


def specs(columns: Values, names: Sequence[str], make: Callable[[dict[str, Any]], T]) -> Iterator[T | Exception]:
    """One spec a row of what these columns say, made once where rows say the same; an error where a rule is broken."""
    kept: dict[Any, T | Exception] = {}
    count = height(columns)
    for values in zip(*(columns[name] for name in names), strict=True) if names else iter([()] * count):
        key = tuple(map(repr, values))
        if key not in kept:
            try:
                kept[key] = make({name: value for name, value in zip(names, values, strict=True) if value is not None})
            except (SpecError, Unsupported) as error:
                kept[key] = error
        yield kept[key]


def height(columns: Values) -> int:
    """How many rows a table has."""
    return len(next(iter(columns.values())))


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


def read_timings(columns: Values, timing: Timings) -> tuple[list[Priced], list[int], set[str]]:
    """All timings, which of them each row has, and columns that were read to tell.

    Raises:
        SpecError: no model, or none for a row.
    """
    if isinstance(timing, TimingModel) or ("timing" not in columns and is_pair(timing)):
        return [priced(timing, 0)], [0] * height(columns), set()
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
    models: list[Priced] = []
    timing_of = []
    for at, model in enumerate(found):
        row = priced(model, at)
        key = tuple(map(identity, row.values())) if isinstance(row, Mapping) else identity(row)
        if key not in numbers:
            numbers[key] = len(models)
            models.append(row)
        timing_of.append(numbers[key])
    return models, timing_of, read


def is_pair(timing: Any) -> TypeGuard[Mapping[str, Any]]:
    """Whether it has a model for prefill and one for decode, and nothing else."""
    return isinstance(timing, Mapping) and set(timing) == set(POOLS)


def priced(timing: Any, at: int) -> Priced:
    """The timing of a row, in one form.

    Raises:
        SpecError: no model.
    """
    models = [timing[pool] for pool in POOLS] if is_pair(timing) else [timing]
    for model in models:
        if not isinstance(model, TimingModel):
            raise SpecError(f"row {at}: timing={model!r:.60}: must be a timing model; of a Roofline, call .timing()")
    return dict(zip(POOLS, models, strict=True)) if len(models) > 1 else models[0]


def identity(model: TimingModel) -> Any:
    """What tells models apart."""
    return model if isinstance(model, Hashable) else id(model)


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
