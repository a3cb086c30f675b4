"""screen(): a table of candidates in, the same table with figures out. pandas is imported when it is asked."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from passcal.columns import COLUMNS
from passcal.errors import SpecError
from passcal.screening.candidates import candidate_rows
from passcal.screening.columns_in import Coded, Column, Columns, part_of
from passcal.screening.composed import composed_figures
from passcal.screening.kernel import figures_of
from passcal.screening.kinds import by_kind
from passcal.screening.tables import BINDINGS, FIGURES, REGIMES, columnwise
from passcal.screening.tandem import Priced, tandem_rows
from passcal.spec.workload import Workload
from passcal.stopping import require_whole

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_frame", "refuse_figures", "screen"]

CHUNK = 16384  # rows at a time: enough that calls of numpy cost little beside what they do
NAMED = (
    "combine",
    "kind",
    "first_token",
    "hold",
    "routing",
    "backend",
    "transfer",
    "transfer_start",
)  # columns of names, and what they end with
Steps = int | Literal["few"]
FEW = "few"
WINDOWS = ("closed form", "cycle")
THOROUGH, ROWS = 60_000, 10_000  # steps of each candidate, in tables of so many rows
TIERS = ("screening", "composed")


def screen(
    candidates: Any, workload: Workload | None = None, timing: Priced | None = None, *, steps: Steps | None = None
) -> pd.DataFrame:
    """What `evaluate_closed_loop` would say of every candidate from a burst: in closed form, in about a microsecond, or gone through, in some hundred.

    Args:
        candidates: a frame, a mapping of columns, or rows as mappings. Columns are `backend`, engine options in the engine's own spelling, and
            optionally `isl`, `prefix`, `osl`, `concurrency` or `rate_per_s`, `turnaround_ms` and coefficients `a0` to `a3`, `d0` to `d2`, `combine`, which
            replace those of `workload` and `timing`. No value (None, NaN) is the engine's default. Rows whose `kind` is `disaggregated` have the columns
            that `pc.sweep` reads of them; coefficients may be of one pool (`prefill.a0`).
        workload: an endless closed loop, or Poisson arrivals, of one shape.
        timing: the price of a pass; anything but a `LinearTiming` without capture sizes is asked at a few passes of each candidate, row by row. Of
            prefill and decode apart, one model for both, or a mapping `{"prefill": ..., "decode": ...}`.
        steps: how far the passes of each closed loop are gone through (those that are alike are one step) before its closed form is used; if their cycle is
            met, every figure is the evaluator's. `few`: a few dozen where the closed form is likely to err, at a microsecond a row. 60000 meet nearly all
            cycles, at some 100 us a row. None: 60000 of tables up to 10,000 rows, `few` of larger ones.

    Returns:
        The candidates' columns, then `columns.COLUMNS` (ms), then `regime`: how clients travel, `refine` where an option is outside the
        closed form, whose figures are NaN. `ttft_steady_p99_lo` and `_hi` bound the evaluator's p99; where nothing is proven they are 0 and infinite.
        `window_kind` is `cycle` where the cycle was met, else `closed form`.
        `queueing_tier` is `screening`, or `composed` where stages are composed: an estimate, whose quantiles of TTFT, TPOT and E2E are their means.

    Raises:
        SpecError: an unknown column, an option of another backend, a value out of range, or something missing.
        Unsupported: a workload outside the closed form.
    """
    import pandas as pd

    frame = as_frame(candidates)
    most = steps_of(steps, len(frame))
    refuse_figures(frame, (*COLUMNS, "regime"))
    columns = {str(name): column_of(frame[name]) for name in frame.columns}
    figures = columnwise(len(frame))
    for kind, rows, own in by_kind(columns, len(frame)):
        for start in range(0, len(rows), CHUNK):
            part = part_of(own, slice(start, start + CHUNK))
            if len(rows) == len(frame):
                figures_by_kind(kind, part, workload, timing, most, figures[start : start + CHUNK])
            else:
                figures[rows[start : start + CHUNK]] = figures_by_kind(kind, part, workload, timing, most)
    return pd.concat([frame, labelled(figures.T, frame.index)], axis=1)


def steps_of(steps: Any, count: int) -> int | None:
    """Of each of so many candidates; None: a few where they are likely to be worth it."""
    if steps is None:
        return THOROUGH if count <= ROWS else None
    if steps == FEW:
        return None
    require_whole(f"steps (or {FEW!r})", steps, 0)
    return int(steps)


def figures_by_kind(
    kind: str, columns: Columns, workload: Workload | None, timing: Priced | None, steps: int | None, out: Any = None
) -> Any:
    """`FIGURES`, a row each, in `out` if it is given."""
    if kind == "disaggregated":
        return composed_figures(*tandem_rows(columns, workload, timing), out)
    if isinstance(timing, Mapping):
        raise SpecError("timing of prefill and decode: a row of kind=aggregated has one timing model; give one")
    return figures_of(candidate_rows(columns, workload, timing), out, steps)


def as_frame(candidates: Any) -> pd.DataFrame:
    """The candidates as a frame."""
    import pandas as pd

    if isinstance(candidates, pd.DataFrame):
        return candidates
    try:
        return pd.DataFrame(candidates)
    except (TypeError, ValueError) as error:
        raise SpecError(f"candidates: {error}; give a frame, a mapping of columns, or rows as mappings"[:199]) from None


def refuse_figures(frame: pd.DataFrame, figures: Collection[str]) -> None:
    """A table that has figures already would get them twice."""
    for name in frame.columns:
        if name in figures:
            raise SpecError(f"column {name!r}: is a figure of this table; drop it, or rename it")


def column_of(series: pd.Series) -> Column:
    """A column as floats, or as codes where values are no numbers."""
    import pandas as pd

    if series.dtype.kind in "biuf":
        return series.to_numpy(float, na_value=np.nan)
    codes, values = coded(series.to_numpy()) if series.dtype == object else pd.factorize(series)
    if str(series.name).rpartition(".")[2] not in NAMED and all(
        isinstance(value, int | float | np.number | np.bool_) for value in values
    ):
        return np.append(np.asarray(values, float), np.nan)[codes]
    return Coded(codes, tuple(values))


def coded(values: Any) -> tuple[Any, Any]:
    """Codes of objects, and what they stand for. A column repeats few objects, so where they are tells them apart first, at a fifth of the cost."""
    import pandas as pd

    codes, places = pd.factorize(np.frombuffer(values.tobytes(), np.intp))
    one = np.empty(len(places), np.intp)
    one[codes] = np.arange(len(codes))
    alike, found = pd.factorize(values[one])
    return alike[codes], found


def labelled(figures: Any, index: Any) -> pd.DataFrame:
    """Figures as columns, with texts where columns have them."""
    import pandas as pd

    found = dict(zip(FIGURES, figures, strict=True))
    count = figures.shape[1]
    texts = {"fidelity": texts_of(np.zeros(count, np.int8), ("W0",)), "window_kind": texts_of(found["met"], WINDOWS)}
    texts["queueing_tier"] = texts_of(found["regime"] == REGIMES.index("composed"), TIERS)
    texts["binding"] = texts_of(found["binding"], BINDINGS)
    texts["regime"] = texts_of(found["regime"], REGIMES)
    uncounted = np.full(count, np.nan)  # the use of KV, and evictions where it binds
    unknown = np.isin(found["regime"], [REGIMES.index(name) for name in ("refine", "kv", "composed")])
    evicted = np.where(unknown, np.nan, 0.0)
    out: dict[str, Any] = {}
    for name in (*COLUMNS, "regime"):
        if name in texts:
            out[name] = texts[name]
        else:
            out[name] = found.get(name, uncounted if name == "kv_utilisation" else evicted)
    return pd.DataFrame(out, index=index, copy=False)


def texts_of(codes: Any, texts: tuple[str, ...]) -> Any:
    """Codes as a column of texts."""
    import pandas as pd

    return pd.Categorical.from_codes(codes.astype(np.int8), pd.Index(texts))
