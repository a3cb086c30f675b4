"""Engine options: which the closed form reads by what name, and values of the others that leave it valid."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from passcal.spec.engine import ENGINES

__all__ = ["BUDGET", "NEUTRAL", "SEATS", "default", "known_options"]

BUDGET = {"vllm": "max_num_batched_tokens", "sglang": "chunked_prefill_size", "trtllm": "max_num_tokens"}
SEATS = {"vllm": "max_num_seqs", "sglang": "max_running_requests", "trtllm": "max_batch_size"}
NEUTRAL: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "vllm": {
        "enable_chunked_prefill": (True,),
        "long_prefill_token_threshold": (0,),
        "prefill_schedule_interval": (1,),
        "data_parallel_size": (1,),
        "launch": (),
        "speculation": (),
        "host_offload": (False,),
    },
    "sglang": {
        "page_size": (1,),
        "prefill_decode_interval": (0,),
        "dp_size": (1,),
        "host_loop": (),
        "speculation": (),
    },
    "trtllm": {
        "enable_chunked_prefill": (True,),
        "chunk_policy": ("FCFS",),
        "capacity_policy": ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION"),
        "batch_wait_timeout_iters": (0,),
        "attention_dp": (1,),
        "attention_dp_balance": (False,),
        "speculation": (),
    },
}


def default(backend: str, option: str) -> Any:
    """The engine's own default; Ellipsis if it has no such option."""
    return defaults()[backend].get(option, ...)


@cache
def defaults() -> dict[str, dict[str, Any]]:
    """All of them."""
    return {
        backend: {name: field.default for name, field in model.model_fields.items() if name != "backend"}
        for backend, model in ENGINES.items()
    }


def known_options() -> dict[str, tuple[str, ...]]:
    """Backends of every engine option."""
    found: dict[str, tuple[str, ...]] = {}
    for backend, options in defaults().items():
        for option in options:
            found[option] = (*found.get(option, ()), backend)
    return found
