"""From a recorded case to what passcal is asked: one small function an engine."""

from collections.abc import Callable
from typing import Any

import passcal as pc
from tools.conformance.recordings import Case
from tools.conformance.sglang import sglang
from tools.conformance.trtllm import trtllm

__all__ = ["ADAPTERS", "Asked", "asked"]

Asked = tuple[Any, Any, pc.LinearTiming]  # workload, engine, timing

LABELS = {"backend", "version", "scheduler"}
FIXED = {  # options of the recorder that no case varies, and the value at which they change nothing
    "long_prefill_token_threshold_adaptive": False,
    "policy": "fcfs",
    "max_num_active_seqs": None,
    "cpu_ms": 0.0,
}


def asked(case: Case) -> Asked:
    """Workload, engine and timing of a case.

    Raises:
        Unsupported: the engine or its traffic is not modelled.
    """
    backend = case["engine"]["backend"]
    if backend not in ADAPTERS:
        raise pc.Unsupported(f"{backend}: this engine is not modelled yet; {', '.join(ADAPTERS)} can be compared")
    timing = pc.LinearTiming(prefill=tuple(case["timing"]["prefill"]), decode=tuple(case["timing"]["decode"]))
    return *ADAPTERS[backend](case), timing


def vllm(case: Case) -> tuple[Any, Any]:
    """vLLM: the recorder uses the engine's own option names, so they pass through."""
    engine, traffic, requests = case["engine"], case["traffic"], case["requests"]
    for name, value in FIXED.items():
        if engine[name] != value:
            raise pc.Unsupported(f"vllm: {name}={engine[name]!r} is not modelled; leave it at {value!r}")
    spec = pc.Vllm(**{name: value for name, value in engine.items() if name not in LABELS | FIXED.keys()})
    shared = spec.enable_prefix_caching and ("prefix_group" in requests or "prefixes" in traffic)
    if traffic["mode"] == "open":
        columns = ["dispatch_ms", "isl", "osl", *(["prefix_group", "prefix_len"] if shared else [])]
        return pc.Workload.replay({name: requests[name] for name in columns}), spec
    if shared:
        raise pc.Unsupported("vllm: prefixes shared in a closed loop are not modelled; replay the recorded dispatches")
    plane = {name: traffic.get(name, 0.0) for name in ("turnaround_ms", "stagger_ms")}
    rows = list(zip(requests["isl"], requests["osl"], strict=True))
    return pc.Workload.closed_loop(shapes=rows, concurrency=traffic["concurrency"], requests=len(rows), **plane), spec


ADAPTERS: dict[str, Callable[[Case], tuple[Any, Any]]] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
