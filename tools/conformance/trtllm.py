"""A recorded TensorRT-LLM case as passcal is asked: the recorder's short names, and its defaults where a case is silent."""

from typing import Any

import passcal as pc
from tools.conformance.recordings import Case

__all__ = ["trtllm"]

NAMES = {  # the recorder's names; what is none of them stops the adapter
    "max_num_tokens": "max_num_tokens",
    "max_batch": "max_batch_size",
    "kv_tokens": "max_tokens_in_kv",
    "tpb": "tokens_per_block",
    "policy": "capacity_policy",
    "overlap": "overlap_scheduler",
    "wait_iters": "batch_wait_timeout_iters",
    "wait_ratio": "batch_wait_max_tokens_ratio",
}
CHUNKING = {"chunk", "unit"}
LABELS = {"backend", "version"}


def trtllm(case: Case) -> tuple[Any, Any]:
    """Workload and engine; traffic is a closed loop of C clients unless its mode is open."""
    options, traffic, requests = case["engine"], case["traffic"], case["requests"]
    foreign = options.keys() - NAMES.keys() - CHUNKING - LABELS
    if foreign:
        raise pc.Unsupported(f"trtllm: {min(foreign)} is not an option that the recorder is known to have; add it here")
    given = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    policy = options.get("chunk", "FCFS")
    chunking = (
        {"enable_chunked_prefill": False}
        if policy is None
        else {"chunk_policy": policy, "chunk_unit": options.get("unit")}
    )
    engine = pc.Trtllm(**given, **chunking)
    if traffic.get("mode") == "open":
        return pc.Workload.replay({name: requests[name] for name in ("dispatch_ms", "isl", "osl")}), engine
    plane = {name: traffic.get(name, 0.0) for name in ("turnaround_ms", "stagger_ms")}
    rows = list(zip(requests["isl"], requests["osl"], strict=True))
    return pc.Workload.closed_loop(shapes=rows, concurrency=traffic["C"], requests=len(rows), **plane), engine
