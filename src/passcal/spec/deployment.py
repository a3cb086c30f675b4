"""How engines are deployed."""

from typing import Any, Literal

from pydantic import Field

from passcal.spec.base import Count, Spec
from passcal.spec.engine import EngineSpec

__all__ = ["Aggregated"]


class Aggregated(Spec):
    """Workers that each do prefill and decode.

    Attributes:
        engine: the spec of a worker.
        replicas: workers behind one router.
        routing: which worker (and rank of it) a request goes to when it becomes visible: `round_robin` over workers and then over their
            ranks, `least_loaded` by requests not done, or `prefix_affinity`, where a prefix group stays together (E4).
    """

    engine: EngineSpec = Field(discriminator="backend")
    replicas: Count = 1
    routing: Literal["round_robin", "least_loaded", "prefix_affinity"] = "round_robin"

    def __init__(self, engine: Any = None, **values: Any) -> None:
        super().__init__(engine=engine, **values)
