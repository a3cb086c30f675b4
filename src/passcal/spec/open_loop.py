"""An open loop: requests come at a rate, whatever became of those before."""

from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from passcal.errors import SpecError
from passcal.spec.base import Count, real
from passcal.spec.lengths import Lengths
from passcal.spec.rows import Rows, shape_rows
from passcal.spec.workload import Workload

__all__ = ["OpenLoop"]

Rate = Annotated[float, BeforeValidator(real), Field(gt=0.0)]
Spread = Annotated[float, BeforeValidator(real), Field(ge=0.0, le=20.0)]


class OpenLoop(Workload):
    """Requests at a rate; see `Workload.open_loop`. `shapes` holds rows of `rows.ASKED` or a law of them."""

    shapes: Rows | Lengths
    rate_per_s: Rate
    arrivals: Literal["poisson", "constant", "gamma", "gaps"] = "poisson"
    cv: Spread | None = None
    gaps_ms: tuple[float, ...] | None = None
    horizon_requests: Count | None = None

    @field_validator("shapes", mode="before")
    @classmethod
    def _shapes(cls, shapes: Any) -> Any:
        return shapes if isinstance(shapes, Lengths) else shape_rows(shapes)

    @model_validator(mode="before")
    @classmethod
    def _arrivals(cls, values: Any) -> Any:
        kind, cv, gaps = (values.get(name) for name in ("arrivals", "cv", "gaps_ms"))
        kind = kind if kind is not None else "poisson" if gaps is None else "gaps"
        if (cv is not None) != (kind == "gamma"):
            raise SpecError(f"cv={cv}: belongs to arrivals='gamma', and to it only; give both, or none")
        if (gaps is not None) != (kind == "gaps"):
            raise SpecError(f"arrivals={kind!r:.40}: with gaps_ms, and only then, it is 'gaps'; leave one of them out")
        values = {**values, "arrivals": kind}
        if gaps is not None:
            values["gaps_ms"] = checked_gaps(gaps)
            if values.get("rate_per_s") is None:
                values["rate_per_s"] = 1000.0 / float(np.mean(values["gaps_ms"]))
        elif values.get("rate_per_s") is None:
            raise SpecError("open_loop: rate_per_s is missing; give requests a second, or gaps_ms")
        return values


def checked_gaps(gaps: Any) -> tuple[float, ...]:
    """Gaps between arrivals in ms: finite, none negative, not all zero."""
    try:
        column = np.asarray(gaps if isinstance(gaps, np.ndarray) else list(gaps), np.float64)
    except (TypeError, ValueError):
        raise SpecError("gaps_ms: must be numbers, in milliseconds; correct them") from None
    if column.ndim != 1 or not column.size:
        raise SpecError("gaps_ms: there must be at least one gap; give milliseconds between arrivals")
    broken = ~(np.isfinite(column) & (column >= 0))
    if broken.any():
        at = int(np.argmax(broken))
        raise SpecError(f"gaps_ms row {at}: {column[at]}: must be finite and not negative; correct this row")
    if not column.any():
        raise SpecError("gaps_ms: all are 0: must have a mean above 0; for a burst give a replay")
    return tuple(column.tolist())
