"""The table of backends: a name, a code that the kernel dispatches on, and the engine version whose rules it follows."""

from typing import Any, NamedTuple

from passcal.calendar import vllm
from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["BACKENDS", "Backend", "land", "plan", "write_rank"]


class Backend(NamedTuple):
    """One engine: `code` is what `plan` dispatches on."""

    code: int
    version: str


BACKENDS = {"vllm": Backend(0, "vLLM 0.32.0, 0.33.0")}


@jit
def plan(state: State, k: int, now: float) -> int:
    """Form the next pass of rank k by its backend's calendar; returns how many rows it has."""
    return vllm.plan(state, k, now)


@jit
def land(state: State, k: int) -> None:
    """The oldest pass in flight on rank k ends: tokens appear, finished sequences leave."""
    vllm.land(state, k)


@jit
def write_rank(state: State, k: int, out: Any, n: int) -> int:
    """Write what rank k will do next as numbers, from position n on; returns the next position."""
    return vllm.write(state, k, out, n)
