"""sweep(): a table of candidates in, the best that keep service levels out, each of them evaluated. pandas is imported when it is asked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from passcal.bounding import bounds_of
from passcal.checkpoint import Checkpoint
from passcal.columns import COLUMNS
from passcal.digests import inputs_of
from passcal.errors import SpecError
from passcal.executors import Asked, Workers
from passcal.files import has_parquet, write_frame
from passcal.funnel import Found, funnel
from passcal.points import Points, Timings, read_points
from passcal.progress import tell
from passcal.refining import OBJECTIVES, Objective, Record, Wanted, refine
from passcal.screening.screen import as_frame, refuse_figures
from passcal.spec.sla import Sla, Target
from passcal.spec.workload import Workload
from passcal.stopping import require_whole
from passcal.targets import targets_of, written

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["pareto_front", "sweep"]

PER_GPU, PER_USER = "output_tokens_per_s_per_gpu", "output_tokens_per_s_per_user"
ADDED = ("gpus", PER_GPU, PER_USER)


def sweep(
    candidates: Any,
    workload: Workload | None = None,
    timing: Timings | None = None,
    *,
    sla: Iterable[Target] | Target = (),
    objective: Objective = "throughput",
    top: int | None = 10,
    executor: Asked = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> pd.DataFrame:
    """The best candidates that keep all targets: what evaluating every one of them would choose, at a fraction of the time.

    The closed form, and cycles that are gone through where it leaves a target open, leave out candidates that break one for sure; the evaluator is asked about
    the others, the most promising first, until none that is left can better the best. Where nothing is known for sure (other workloads than a closed loop of
    one shape, several ranks, timing that is no formula) every candidate is evaluated.

    Args:
        candidates: a frame, a mapping of columns, or rows as mappings. Columns are `backend`, engine options, `replicas`, `routing`, the workload's
            `isl`, `osl`, `prefix`, `concurrency`, `turnaround_ms`, `rate_per_s`, and what `timing` reads. No value (None, NaN) is the default. Rows whose
            `kind` is `disaggregated` have instead of engine options, `replicas` and `routing`: the options of `pc.Disaggregated` (`prefill_workers`,
            `hold`, ...), of its engines (`prefill.max_num_seqs`, `decode.backend`, ...) and its link (`link.gb_per_s`, ...).
        workload: who sends what, where no column says it.
        timing: a model; models by the values of a column `timing`; or a function of a row (a mapping of its columns) that answers with a model. Of
            prefill and decode apart, a mapping `{"prefill": ..., "decode": ...}` may stand for a model.
        sla: latencies that may not be longer (`pc.Sla`), throughputs that may not be lower (`pc.Floor`).
        objective: what is best: `throughput` (output tokens a second), `per_gpu` (the same for each GPU), `per_user` (1000 / mean TPOT),
            `fewest_gpus`, or `goodput` (requests a second that keep the limit of every latency themselves). Of equals the one with more output tokens
            a second is better, then the earlier one.
        top: how many are wanted; None: all that keep the targets.
        executor: where evaluations run: `serial`, `threads` (by default, of more than a few), a `concurrent.futures` executor or a Dask client. The result
            is the same on all.
        checkpoint: a folder that keeps evaluations as they are done; a sweep that is asked again goes on from there.

    Returns:
        The best candidates' columns, best first and with the candidates' index, then `columns.COLUMNS`, `gpus`, `output_tokens_per_s_per_gpu`,
        `output_tokens_per_s_per_user`, with that objective `goodput_rps`, and `pareto` (see `pareto_front`). `frame.attrs["counts"]` says what became of
        all candidates, `attrs["notes"]` what a reader should know.

    Raises:
        SpecError: a column that nothing reads, a value out of range in every row, or a checkpoint of other inputs.
        TimingError: a timing model raised or answered with no duration.
    """
    targets = () if not isinstance(sla, Target) and not (sla := tuple(sla)) else targets_of(sla)
    require(objective, top, targets)
    if timing is None:
        raise SpecError("timing is missing: give a timing model, models by name, or a function of a row")
    frame = as_frame(candidates)
    refuse_figures(frame, (*COLUMNS, *ADDED, "regime", "goodput_rps", "pareto"))
    columns = {str(name): valued(frame[name]) for name in frame.columns}
    points = read_points(columns, workload, timing)
    bounds = bounds_of(frame, points, workload, targets)
    wanted = Wanted(targets, objective == "goodput")
    saved = None
    if checkpoint is not None:
        kept = f"{list(map(written, targets))} {wanted.goodput}"
        saved = Checkpoint(checkpoint, inputs_of(frame.to_csv(index=False), points, workload, kept))
    try:
        with Workers(executor, len(frame)) as workers:
            ask = Asking(points, wanted, workers, saved)
            found = funnel(points.rows, bounds, targets, objective, top, ask)
    finally:
        if saved is not None:
            saved.close()
            write_table(saved)
    return reported(frame, found, workers.notes, wanted)


def require(objective: Any, top: Any, targets: Sequence[Target]) -> None:
    """Refuse wishes that make no sense."""
    if objective not in OBJECTIVES:
        raise SpecError(f"objective={objective!r:.40}: must be one of {', '.join(OBJECTIVES)}; name one")
    if top is not None:
        require_whole("top", top, 1)
    latencies = {target.metric for target in targets if isinstance(target, Sla)}
    if objective == "goodput" and not latencies:
        raise SpecError("objective='goodput': counts requests that keep latencies; give sla=[pc.Sla(...)]")
    if objective == "goodput" and "itl" in latencies:
        raise SpecError("objective='goodput': itl is of gaps, not of requests; give tpot instead")


def valued(series: pd.Series) -> list[Any]:
    """A column as Python values, None where there is none."""
    return [None if missing else value for value, missing in zip(series.tolist(), series.isna(), strict=True)]


class Asking:
    """Evaluates rows of points, takes those that are done from a checkpoint, and tells how far it is."""

    def __init__(self, points: Points, wanted: Wanted, workers: Workers, saved: Checkpoint | None) -> None:
        self.points, self.wanted, self.workers, self.saved = points.rows, wanted, workers, saved
        self.done = 0

    def __call__(self, rows: Sequence[int], of: int) -> dict[int, Record]:
        """Records by row; `of` is how many rows may be asked for in all."""
        kept = {} if self.saved is None else self.saved.done
        records = {row: kept[row] for row in rows if row in kept}
        left = [row for row in rows if row not in records]
        self.done += len(records)
        points: list[Any] = [self.points[row] for row in left]
        for places, found in self.workers.map(partial(refine, wanted=self.wanted), points):
            part = {left[place]: record for place, record in zip(places, found, strict=True)}
            if self.saved is not None:
                self.saved.add(part)
            records |= part
            self.done += len(part)
            tell(self.done, of)
        return {row: records[row] for row in rows}


def write_table(saved: Checkpoint) -> None:
    """The points of a checkpoint as Parquet beside them, whole, where that can be written: their row among the candidates, why they were refused, their figures."""
    import pandas as pd

    if saved.done and has_parquet():
        rows = sorted(saved.done)
        told = [{"row": row, "refused": saved.done[row].refused, "why": saved.done[row].why} for row in rows]
        figures = pd.DataFrame([saved.done[row].columns for row in rows])
        write_frame(
            saved.points.with_suffix(".parquet"), "checkpoint", pd.concat([pd.DataFrame(told), figures], axis=1), True
        )


def reported(frame: pd.DataFrame, found: Found, notes: Sequence[str], wanted: Wanted) -> pd.DataFrame:
    """The best rows with their figures."""
    import pandas as pd

    rows = frame.iloc[found.best]
    names = [*COLUMNS, *ADDED, *(("goodput_rps",) if wanted.goodput else ())]
    figures = pd.DataFrame([found.records[row].columns for row in found.best], index=rows.index, columns=names)
    best = pd.concat([rows, figures], axis=1)
    best["pareto"] = pareto_front(best)
    best.attrs = {"counts": found.counts, "notes": list(notes)}
    return best


def pareto_front(frame: pd.DataFrame) -> pd.Series[Any]:
    """Which rows of a sweep no other row betters in tokens a second for each GPU without being worse for each user, or the other way round."""
    import pandas as pd

    gpu, user = (frame[name].to_numpy(float) for name in (PER_GPU, PER_USER))
    front = np.zeros(len(frame), bool)
    ahead = (np.inf, -np.inf)  # the last row found on the front
    for row in np.lexsort((-user, -gpu)):
        if user[row] > ahead[1] or (gpu[row], user[row]) == ahead:
            front[row], ahead = True, (gpu[row], user[row])
    return pd.Series(front, frame.index, name="pareto")
