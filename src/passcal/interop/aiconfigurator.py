"""aiconfigurator's summary frames with the fifteen columns of queueing beside their own. pandas is imported when one is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, overload

import numpy as np

from passcal.errors import SpecError, Unsupported
from passcal.executors import Asked
from passcal.interop.answers import ITL, SUMMARY_COLUMNS, TTFT, Rows, answered
from passcal.interop.operating import OPTIONAL, SPLIT, Timings, aggregated, composed
from passcal.screening.screen import refuse_figures

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["SUMMARY_COLUMNS", "add_columns"]

Tier = Literal["quantitative", "screening"]
Unpriced = Literal["raise", "keep"]


class Kind(NamedTuple):
    """A summary that the package writes.

    Attributes:
        marks: columns that only this kind has.
        counts, numbers, texts: columns that are read, as whole numbers, numbers and names.
        side: what marks the columns of the pool that is priced.
    """

    marks: tuple[str, ...]
    counts: tuple[str, ...]
    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()
    side: str = ""


LENGTHS = ("isl", "osl", "prefix")
AGGREGATED = Kind(
    ("ctx_tokens",), (*LENGTHS, "bs", "ctx_tokens", "gen_tokens"), ("ttft", "tpot", "encoder_latency"), ("backend",)
)
DISAGGREGATED = Kind(
    ("(p)bs", "(d)bs"),
    (*LENGTHS, "concurrency", "(p)bs", "(p)workers", "(p)dp", "(p)pp"),
    ("tpot", "(p)seq/s/worker", "encoder_latency"),
    ("(p)backend",),
    "(p)",
)
STATIC = Kind(("context_latency", "generation_latency"), (), ("ttft", "tpot"))


@overload
def add_columns(
    summary: pd.DataFrame,
    *,
    tier: Tier = ...,
    timing: Timings = ...,
    options: Mapping[str, Any] | None = ...,
    executor: Asked = ...,
    unpriced: Unpriced = ...,
) -> pd.DataFrame: ...
@overload
def add_columns(
    summary: Mapping[str, Any],
    *,
    tier: Tier = ...,
    timing: Timings = ...,
    options: Mapping[str, Any] | None = ...,
    executor: Asked = ...,
    unpriced: Unpriced = ...,
) -> dict[str, Any]: ...
def add_columns(
    summary: pd.DataFrame | Mapping[str, Any],
    *,
    tier: Tier = "quantitative",
    timing: Timings = None,
    options: Mapping[str, Any] | None = None,
    executor: Asked = "serial",
    unpriced: Unpriced = "raise",
) -> pd.DataFrame | dict[str, Any]:
    """A copy of a summary with `SUMMARY_COLUMNS` behind its own columns; rows, their order and index stay.

    Args:
        summary: what aiconfigurator writes of aggregated, disaggregated or static serving: a frame, or one row as a mapping.
        tier: of aggregated rows: `"quantitative"` evaluates each (E2), `"screening"` takes the closed form where there is one and evaluates the others.
        timing: the price of a pass in place of the installed database: a model, or a function of a row. Static rows need none.
        options: engine options over those that a row tells.
        executor: who evaluates: `"serial"`, `"threads"`, a `concurrent.futures` executor or a Dask client.
        unpriced: what becomes of a row without an answer: `"raise"` its error, or `"keep"` it, its figures NaN, its tier None, and the reason in
            `attrs["refused"]` of the frame. A column that is missing or has no number is an error either way.

    Returns:
        The same kind of thing. All figures are in ms; `queueing_tier` says how a row's arose: `quantitative` or `screening`: `bs` clients in a closed loop on one
        rank. `composed`: a disaggregated row's prefill pool, with its clients away while they decode. `static`: the row's own figures, one batch and no queue;
        what such a row does not price (0 in it) is NaN.

    Raises:
        SpecError: not a summary, a column that is missing or has no number, an engine that the database does not have, figures that are there already.
        Unsupported: images, attention apart from experts, context parallelism; or no package installed and no timing given.
    """
    import pandas as pd

    if not isinstance(summary, pd.DataFrame):
        if not isinstance(summary, Mapping):
            raise SpecError(
                f"summary={type(summary).__name__}: must be a frame of aiconfigurator, or a row as a mapping"
            )
        frame = pd.DataFrame([dict(summary)])
        how: Any = {"tier": tier, "timing": timing, "options": options, "executor": executor, "unpriced": unpriced}
        added = add_columns(frame, **how)
        return dict(summary) | {name: added[name].tolist()[0] for name in SUMMARY_COLUMNS}
    if tier not in ("quantitative", "screening"):
        raise SpecError(f"tier={tier!r:.40}: must be 'quantitative' or 'screening'")
    if unpriced not in ("raise", "keep"):
        raise SpecError(f"unpriced={unpriced!r:.40}: must be 'raise' or 'keep'")
    refuse_figures(summary, SUMMARY_COLUMNS)
    kind = kind_of(summary)
    if kind is STATIC:
        if timing is not None or options:
            raise SpecError(
                "timing=, options=: a static summary is its own answer, with no engine to run; leave them out"
            )
        return summary.assign(**static_columns(summary))
    rows = Rows(list(summary.index), keep=unpriced == "keep")
    points = {}
    for place, row in enumerate(read_rows(summary, kind, timing is None)):
        with rows.row(place):
            points[place] = (aggregated if kind is AGGREGATED else composed)(row, timing, options or {})
    figures = answered(points, rows, kind is AGGREGATED and tier == "screening", executor)
    added = summary.assign(**{name: [row[name] for row in figures] for name in SUMMARY_COLUMNS})
    if rows.keep:
        added.attrs["refused"] = [rows.why(place) for place in sorted(rows.refused)]
    return added


def kind_of(frame: pd.DataFrame) -> Kind:
    """Which summary this is.

    Raises:
        SpecError: none of those known.
        Unsupported: attention apart from experts, or an encoder's pool.
    """
    if "(a)nodes" in frame:
        raise Unsupported("column '(a)nodes': attention and experts on different GPUs are not modelled; drop such rows")
    if "(e)workers" in frame and (frame["(e)workers"].fillna(0) != 0).any():
        raise Unsupported("column '(e)workers': a pool of encoders is not modelled; drop rows that have one")
    for kind in (DISAGGREGATED, AGGREGATED, STATIC):
        if all(name in frame for name in kind.marks):
            return kind
    raise SpecError(
        "summary: no frame of aiconfigurator; it has 'ctx_tokens' (aggregated), '(p)bs' and '(d)bs', or 'context_latency' (static)"
    )


def read_rows(frame: pd.DataFrame, kind: Kind, priced: bool) -> list[dict[str, Any]]:
    """Every row by column, with None for no value; what is needed is checked. `priced`: the database is asked, by further columns."""
    side = kind.side
    check(frame, (*kind.counts, *(side + name for name in SPLIT if priced)), "a whole number")
    check(frame, kind.numbers, "a finite number")
    check(frame, (*kind.texts, *(("model", f"{side}system", f"{side}version") if priced else ())), "a name")
    for name in OPTIONAL if priced else ():
        present(frame, side + name)
    if (frame["encoder_latency"] != 0).any():
        raise Unsupported("column 'encoder_latency': images are not modelled; drop rows whose value is not 0")
    cells = frame.astype(object).where(frame.notna(), None)
    names = [str(name) for name in frame.columns]
    return [dict(zip(names, values, strict=True)) for values in cells.itertuples(index=False, name=None)]


def check(frame: pd.DataFrame, names: Iterable[str], rule: str) -> None:
    """Refuse a column that is not there, or somewhere has a value that breaks the rule."""
    import pandas as pd

    for name in names:
        present(frame, name)
        bad = frame[name].isna()
        if rule != "a name":
            values = pd.to_numeric(frame[name], errors="coerce").to_numpy(float)
            bad = ~np.isfinite(values) | ((values != np.trunc(values)) & (rule == "a whole number"))
            bad = pd.Series(bad, index=frame.index)
        if bad.any():
            at = int(np.flatnonzero(bad)[0])
            value = frame[name].iloc[at]
            told = value.item() if isinstance(value, np.generic) else value
            with Rows(list(frame.index), keep=False).row(at):
                raise SpecError(f"column {name!r}: {told!r:.30} must be {rule}; mend or drop the row")


def present(frame: pd.DataFrame, name: str) -> None:
    """Refuse a frame without this column."""
    if name not in frame:
        raise SpecError(f"column {name!r} is missing: it is read, and aiconfigurator's summaries have it; keep it")


def static_columns(frame: pd.DataFrame) -> dict[str, Any]:
    """A static row's own figures at every quantile; NaN for a phase that it does not price."""
    check(frame, STATIC.numbers, "a finite number")
    ttft, tpot = frame["ttft"].to_numpy(float), frame["tpot"].to_numpy(float)
    ttft, tpot = np.where(ttft > 0, ttft, np.nan), np.where(tpot > 0, tpot, np.nan)
    return dict.fromkeys(TTFT, ttft) | dict.fromkeys(ITL, tpot) | {"queueing_tier": "static"}
