"""A recorded SGLang case as passcal is asked: the recorder's short names, and its defaults where a case is silent."""

from typing import Any

import passcal as pc
from tools.conformance.recordings import Case

__all__ = ["sglang"]

NAMES = {  # the recorder's names; what is none of them stops the adapter
    "max_prefill_tokens": "max_prefill_tokens",
    "kv_tokens": "max_total_tokens",
    "page": "page_size",
    "policy": "schedule_policy",
    "conservativeness": "schedule_conservativeness",
    "prefill_decode_interval": "prefill_decode_interval",
    "ignore_eos": "ignore_eos",
    "disable_radix": "disable_radix_cache",
}
OTHERS = {"chunk", "mixed", "overlap", "max_running", "shared_prefix"}
LABELS = {"backend", "version"}


def sglang(case: Case) -> tuple[Any, Any]:
    """Workload and engine; traffic is a closed loop of C clients unless its mode is open."""
    options, traffic, requests = case["engine"], case["traffic"], case["requests"]
    foreign = options.keys() - NAMES.keys() - OTHERS - LABELS
    if foreign:
        raise pc.Unsupported(f"sglang: {min(foreign)} is not an option that the recorder is known to have; add it here")
    chunked = options["chunk"] > 0
    engine = pc.Sglang(
        **{NAMES[name]: value for name, value in options.items() if name in NAMES},
        chunked_prefill_size=options["chunk"] if chunked else -1,
        enable_mixed_chunk=chunked and options["mixed"],
        disable_overlap_schedule=not options["overlap"],
        max_running_requests=options.get("max_running") or traffic["C"],
    )
    count, columns = len(requests["isl"]), {name: requests[name] for name in ("isl", "osl")}
    if options.get("shared_prefix"):  # all prompts start with the same tokens
        columns |= {"prefix_group": [0] * count, "prefix_len": [options["shared_prefix"]] * count}
    if traffic.get("mode") == "open":
        return pc.Workload.replay({"dispatch_ms": requests["dispatch_ms"], **columns}), engine
    plane = {name: traffic.get(name, 0.0) for name in ("turnaround_ms", "stagger_ms")}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return pc.Workload.closed_loop(shapes=rows, concurrency=traffic["C"], requests=count, **plane), engine
