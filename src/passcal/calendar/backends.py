"""The table of backends: a name, a code that the kernel dispatches on, and the engine version whose rules it follows."""

from typing import Any, NamedTuple

from passcal.calendar import sglang, trtllm, vllm
from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["BACKENDS", "Backend", "land", "plan", "write_rank"]


class Backend(NamedTuple):
    """One engine: `code` is what `plan` dispatches on."""

    code: int
    version: str


BACKENDS = {
    "vllm": Backend(0, "vLLM 0.32.0, 0.33.0"),
    "sglang": Backend(1, "SGLang 0.5.23"),
    "trtllm": Backend(2, "TensorRT-LLM, PyTorch backend, Python schedulers of mid 2026"),
}
SGLANG, TRTLLM = BACKENDS["sglang"].code, BACKENDS["trtllm"].code


@jit
def plan(state: State, k: int, now: float) -> int:
    """Form the next pass of rank k by its backend's calendar; returns how many rows it has."""
    if state.ranks[k].backend == SGLANG:
        return sglang.plan(state, k, now)
    if state.ranks[k].backend == TRTLLM:
        return trtllm.plan(state, k, now)
    return vllm.plan(state, k, now)


@jit
def land(state: State, k: int) -> None:
    """The oldest pass in flight on rank k ends: tokens appear, finished sequences leave."""
    if state.ranks[k].backend == SGLANG:
        sglang.land(state, k)
    elif state.ranks[k].backend == TRTLLM:
        trtllm.land(state, k)
    else:
        vllm.land(state, k)


@jit
def write_rank(state: State, k: int, out: Any, n: int) -> int:
    """Write what rank k will do next as numbers, from position n on; returns the next position."""
    if state.ranks[k].backend == SGLANG:
        return sglang.write(state, k, out, n)
    if state.ranks[k].backend == TRTLLM:
        return trtllm.write(state, k, out, n)
    return vllm.write(state, k, out, n)
