"""Columns of a candidate table, a workload and a timing model to rows that the closed form reads; every column is read or refused by name."""

from typing import Any

import numpy as np

from passcal.errors import SpecError, Unsupported
from passcal.screening.columns_in import Coded, Columns, given, number
from passcal.screening.linearise import coefficients
from passcal.screening.options import BUDGET, known_options
from passcal.screening.tables import CANDIDATE
from passcal.screening.worker import fill_worker
from passcal.spec.lengths import Lengths
from passcal.spec.open_loop import OpenLoop
from passcal.spec.workload import ClosedLoop, Workload
from passcal.timing.base import COMBINE, TimingModel

__all__ = ["TIMING", "WORKLOAD", "candidate_rows", "refuse_unknown", "single_shape"]

WORKLOAD = ("isl", "prefix", "osl", "concurrency", "turnaround_ms", "rate_per_s")
TIMING = ("a0", "a1", "a2", "a3", "d0", "d1", "d2")


def refuse_unknown(columns: Columns, rows: Any) -> None:
    """Every column is known, and has values only in rows of a backend that has such an option; `rows` are the rows' numbers.

    Raises:
        SpecError: a column or a value that nothing reads.
    """
    backend = columns.get("backend")
    if not isinstance(backend, Coded) or (backend.codes < 0).any():
        raise SpecError(f"backend is missing: give a column with one of {', '.join(BUDGET)} in every row")
    for name in backend.values:
        if name not in BUDGET:
            raise SpecError(f"backend={name!r:.40}: must be one of {', '.join(BUDGET)}; name one of these")
    options = known_options()
    for name, column in columns.items():
        if name in ("backend", "combine", *WORKLOAD, *TIMING):
            continue
        if name not in options:
            raise SpecError(
                f"column {name!r:.60} is no engine option, workload or timing column of a screen; drop or rename it"
            )
        foreign = np.array([value not in options[name] for value in backend.values])
        wrong = given(column) & foreign[backend.codes] if foreign.any() else foreign
        if wrong.any():
            at = int(np.argmax(wrong))
            raise SpecError(
                f"row {rows[at]}: {name} is no option of {backend.values[backend.codes[at]]}; leave it empty there"
            )


def candidate_rows(columns: Columns, workload: Workload | None, timing: TimingModel | None) -> Any:
    """`CANDIDATE[n]` of columns that `refuse_unknown` lets pass.

    Args:
        columns: by name; no value stands for the default.
        workload: lengths, clients and turnaround where no column has them.
        timing: the price where no column has coefficients.

    Raises:
        SpecError: something missing, or a value out of range.
        Unsupported: a workload other than an endless closed loop or Poisson arrivals, of one shape.
    """
    backend = columns["backend"]
    rows = np.zeros(len(backend.codes), CANDIDATE)
    fill_workload(rows, columns, workload)
    for code, name in enumerate(backend.values):
        here = np.flatnonzero(backend.codes == code)
        if len(here):
            fill_worker(rows, name, columns, here)
    check(rows)
    rows["exact"] = 1.0
    fill_timing(rows, columns, timing)
    rows["covered"] *= (rows["a0"] + rows["a1"] > 0) & (
        rows["d0"] + rows["d1"] > 0
    )  # passes that cost nothing have no rate
    return rows


def fill_workload(rows: Any, columns: Columns, workload: Workload | None) -> None:
    """Lengths, clients or a rate, and the time from a client's last token to its next request being visible."""
    fallback: dict[str, Any] = dict.fromkeys(WORKLOAD) | {"prefix": 0, "turnaround_ms": 0.0}
    ingest = 0.0
    if workload is not None:
        fallback, ingest = single_shape(workload)
    rates = number(columns, "rate_per_s", fallback["rate_per_s"])
    opened = not np.isnan(rates).all()
    if opened:
        rows["rate"] = np.where(np.isnan(rates), 0.0, rates / 1000.0)
    if not ((rows["rate"] >= 0) & (rows["rate"] < np.inf)).all() or np.any(rates == 0):
        raise SpecError("rate_per_s: must be finite and above 0; correct it, or leave it empty for a closed loop")
    for name, field in zip(WORKLOAD, ("isl", "past", "osl", "clients", "think_ms"), strict=False):
        values = number(columns, name, fallback[name])
        missing = np.isnan(values)
        if name == "concurrency" and opened:
            if (~missing & (rows["rate"] > 0)).any() and "concurrency" in columns and "rate_per_s" in columns:
                at = int(np.argmax(~missing & (rows["rate"] > 0)))
                raise SpecError(f"row {at}: concurrency and rate_per_s are both given; leave one empty")
            values, missing = np.where(rows["rate"] > 0, 1.0, values), missing & (rows["rate"] == 0)
        if missing.any():
            raise SpecError(f"{name} is missing: give it as a column, or give a workload")
        rows[field] = values
    rows["new"] = rows["isl"] - rows["past"]
    if ingest:
        rows["think_ms"] += rows["isl"] * (ingest / 1000.0)


def single_shape(workload: Workload) -> tuple[dict[str, Any], float]:
    """Its values, and what each prompt token adds to the turnaround, in us."""
    shapes: Any = getattr(workload, "shapes", ())
    endless = isinstance(workload, ClosedLoop) and not workload.requests and not workload.stagger_ms
    poisson = isinstance(workload, OpenLoop) and workload.arrivals == "poisson" and workload.horizon_requests is None
    if not (endless or poisson) or isinstance(shapes, Lengths) or len(set(shapes)) > 1:
        raise Unsupported(
            "screen: the workload must be an endless closed loop without stagger, or Poisson arrivals, of one shape; use pc.evaluate for others"
        )
    isl, prefix, osl, group, _, pinned, most, vision = shapes[0]
    if group >= 0 or pinned >= 0 or most != osl or vision:
        raise Unsupported(
            "screen: prefix groups, pinned ranks, vision tokens and max_tokens other than osl are not in the closed form; use pc.evaluate"
        )
    clients, rate = getattr(workload, "concurrency", None), getattr(workload, "rate_per_s", None)
    values = (isl, prefix, osl, clients, workload.turnaround_ms, rate)
    return dict(zip(WORKLOAD, values, strict=True)), workload.ingest_us_per_token


def fill_timing(rows: Any, columns: Columns, timing: TimingModel | None) -> None:
    """Coefficients: of the columns, else of the model's formula, else of its tangent at the candidate's own passes."""
    named = [name for name in (*TIMING, "combine") if name in columns]
    if not named or not {"a0", "d0"} <= set(named):
        if named or timing is None:
            raise SpecError("timing is missing: give a timing model, or columns a0, a1, a2, a3, d0, d1, d2 and combine")
        coefficients(rows, timing)
        return
    for name in TIMING:
        values = number(columns, name, 0.0)
        if not (np.min(values, initial=0.0) >= 0 and np.max(values, initial=0.0) < np.inf):
            raise SpecError(f"{name}={np.min(values)}: coefficients must be finite and not negative; correct it")
        rows[name] = values
    combine = columns.get("combine", Coded(np.full(len(rows), -1), ()))
    kinds = combine.values if isinstance(combine, Coded) else ("a number",)
    for kind in kinds:
        if kind not in COMBINE:
            raise SpecError(f"combine={kind!r:.40}: must be one of {', '.join(COMBINE)}; correct it")
    for field, wanted in (("overlaps", "max"), ("saved_ms", "shared")):
        rows[field] = np.array([*(kind == wanted for kind in kinds), False], float)[combine.codes]
    rows["saved_ms"] *= np.minimum(rows["a0"], rows["d0"])


def check(rows: Any) -> None:
    """Ranges of what every row has."""
    for name, field, least in (
        ("isl", "isl", 1),
        ("osl", "osl", 1),
        ("concurrency", "clients", 1),
        ("prefix", "past", 0),
        ("the token budget", "budget", 1),
        ("seats", "seats", 1),
    ):
        values = np.ascontiguousarray(rows[field])
        whole = (values >= least) & (values < 2**31) & (values == np.floor(values))
        if not whole.all():
            at = int(np.argmin(whole))
            raise SpecError(f"row {at}: {name}={values[at]:g}: must be a whole number from {least}; correct this row")
    for broken, text in (
        (rows["new"] < 1, "prefix must be below isl: at least one prompt token is computed"),
        (~((rows["think_ms"] >= 0) & (rows["think_ms"] < np.inf)), "turnaround_ms must be finite and not negative"),
    ):
        if broken.any():
            raise SpecError(f"row {int(np.argmax(broken))}: {text}; correct this row")
