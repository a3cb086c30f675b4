"""The table of backends, the one place that lists them: a row is a code, five kernel functions and the engine version they follow.

What the kernel calls is a chain of ifs over the codes. It is built from the table, link by link; the compiler flattens it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from passcal.calendar import sglang, trtllm, vllm, vllm_memory
from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["BACKENDS", "Backend", "land", "let_go", "plan", "reserve", "write_rank"]


class Backend(NamedTuple):
    """One engine: the `code` of its ranks, its calendar, and whose rules that follows.

    Attributes:
        plan: form the next pass of rank k at this instant; returns how many rows it has.
        land: the oldest pass in flight on rank k ends: tokens appear, finished sequences leave.
        write: write what rank k will do next as numbers, from position n on; returns the next position.
        reserve: give hand-off i the memory that it takes on rank k, if there is enough (D6); whether there was.
        let_go: sequence i, done on rank k, has arrived elsewhere: its memory is free.
        version: whose rules they are.
        remedy: what ends thrash, in the engine's own option names.
    """

    code: int
    plan: Callable[[State, int, float], int]
    land: Callable[[State, int], None]
    write: Callable[[State, int, Any, int], int]
    reserve: Callable[[State, int, int], bool]
    let_go: Callable[[State, int, int], None]
    version: str
    remedy: str = "give more KV, or fewer seats"


BACKENDS = {
    "vllm": Backend(
        0,
        vllm.plan,
        vllm.land,
        vllm.write,
        vllm_memory.reserve,
        vllm_memory.let_go,
        "vLLM 0.32.0, 0.33.0",
        "raise num_gpu_blocks, or lower max_num_seqs",
    ),
    "sglang": Backend(
        1,
        sglang.plan,
        sglang.land,
        sglang.write,
        sglang.reserve,
        sglang.let_go,
        "SGLang 0.5.23",
        "raise max_total_tokens or schedule_conservativeness, or lower max_running_requests",
    ),
    "trtllm": Backend(
        2,
        trtllm.plan,
        trtllm.land,
        trtllm.write,
        trtllm.reserve,
        trtllm.let_go,
        "TensorRT-LLM, PyTorch backend, Python schedulers of mid 2026",
        "raise max_tokens_in_kv, lower max_batch_size, or set capacity_policy=GUARANTEED_NO_EVICT",
    ),
}


def by_backend(name: str) -> Any:
    """A kernel function that does this by the calendar of the rank's backend."""
    first, *others = BACKENDS.values()
    chain = getattr(first, name)
    for backend in others:
        chain = link(backend.code, getattr(backend, name), chain)
    return chain


def link(code: int, own: Any, others: Any) -> Any:
    """A kernel function that calls `own` on ranks of this code, `others` on all the rest."""

    @jit
    def call(state: State, k: int, *rest: Any) -> Any:
        if state.ranks[k].backend == code:
            return own(state, k, *rest)
        return others(state, k, *rest)

    return call


plan: Callable[[State, int, float], int] = by_backend("plan")
land: Callable[[State, int], None] = by_backend("land")
reserve: Callable[[State, int, int], bool] = by_backend("reserve")
let_go: Callable[[State, int, int], None] = by_backend("let_go")
write_rank: Callable[[State, int, Any, int], int] = by_backend("write")
