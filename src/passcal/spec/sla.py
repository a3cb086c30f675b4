"""Service levels: what must hold of a latency or of a throughput. `meets` says whether a report keeps them."""

from typing import Annotated, Any, Literal

from pydantic import PlainValidator

from passcal.spec.base import Duration, Spec, real

__all__ = ["Floor", "Sla", "Target"]


def level(value: Any) -> float | str:
    """A quantile level, or the mean."""
    if isinstance(value, str) and value == "mean":
        return value
    try:
        number = float(real(value))
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise ValueError("must be above 0 and at most 1, as 0.99, or 'mean'")
    return number


class Sla(Spec):
    """A latency that must not be longer than a limit: `Sla("ttft", 0.99, 500)`.

    Attributes:
        metric: of a report, in milliseconds.
        quantile: above 0 and at most 1 (the maximum), or `"mean"`.
        limit_ms: what it may reach.

    Raises:
        SpecError: a value that breaks a rule.
    """

    metric: Literal["ttft", "itl", "tpot", "e2e", "queue"]
    quantile: Annotated[float | str, PlainValidator(level)]
    limit_ms: Duration

    def __init__(self, metric: Any = None, quantile: Any = None, limit_ms: Any = None, **unknown: Any) -> None:
        super().__init__(metric=metric, quantile=quantile, limit_ms=limit_ms, **unknown)


class Floor(Spec):
    """A throughput that must not be lower than a limit: `Floor("throughput_rps", 8)`.

    Attributes:
        metric: of a report, a second.
        limit: what it must reach.

    Raises:
        SpecError: a value that breaks a rule.
    """

    metric: Literal["throughput_rps", "output_tokens_per_s", "output_tokens_per_s_per_gpu"]
    limit: Duration

    def __init__(self, metric: Any = None, limit: Any = None, **unknown: Any) -> None:
        super().__init__(metric=metric, limit=limit, **unknown)


Target = Sla | Floor
