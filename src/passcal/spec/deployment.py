"""How engines are deployed."""

from typing import Any

from pydantic import Field

from passcal.spec.base import Count, Spec
from passcal.spec.engine import EngineSpec

__all__ = ["Aggregated"]


class Aggregated(Spec):
    """Workers that each do prefill and decode.

    Attributes:
        engine: the spec of a worker.
        replicas: workers behind one router.
    """

    engine: EngineSpec = Field(discriminator="backend")
    replicas: Count = 1

    def __init__(self, engine: Any = None, **values: Any) -> None:
        super().__init__(engine=engine, **values)
