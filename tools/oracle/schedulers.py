"""The table of backends: a name and the scheduler class behind it."""

from tools.oracle.engine import Scheduler
from tools.oracle.errors import ScenarioError
from tools.oracle.sglang import SglangScheduler
from tools.oracle.trtllm import TrtllmScheduler
from tools.oracle.vllm import VllmScheduler

SCHEDULERS: dict[str, type[Scheduler]] = {"vllm": VllmScheduler, "sglang": SglangScheduler, "trtllm": TrtllmScheduler}


def scheduler_class(backend: object) -> type[Scheduler]:
    """The scheduler of a backend, or a refusal that names it."""
    if backend not in SCHEDULERS:
        raise ScenarioError(f"scenario: backend {backend!r} is not modelled; known: {', '.join(SCHEDULERS)}")
    return SCHEDULERS[backend]
