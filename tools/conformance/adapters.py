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
    columns = {name: requests[name] for name in ("isl", "osl")} | (prefixes(case) if spec.enable_prefix_caching else {})
    if traffic["mode"] == "open":
        return pc.Workload.replay({"dispatch_ms": requests["dispatch_ms"], **columns}), spec
    plane = {name: traffic.get(name, 0.0) for name in ("turnaround_ms", "stagger_ms")}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return pc.Workload.closed_loop(shapes=rows, concurrency=traffic["concurrency"], requests=len(rows), **plane), spec


def prefixes(case: Case) -> dict[str, Any]:
    """Columns of the prefix groups: as recorded, or dealt in turn."""
    traffic, requests = case["traffic"], case["requests"]
    if "prefixes" in traffic:
        count = len(requests["isl"])
        return {
            "prefix_group": [k % traffic["prefixes"] for k in range(count)],
            "prefix_len": [traffic["prefix_len"]] * count,
        }
    return {name: requests[name] for name in ("prefix_group", "prefix_len") if name in requests}


ADAPTERS: dict[str, Callable[[Case], tuple[Any, Any]]] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
