"""Recorded schedules of the real engines as scenarios, and the comparison of an answer with the recording."""

import gzip
import json
from collections.abc import Iterable
from functools import cache
from itertools import islice
from pathlib import Path

from tools.oracle import simulate

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
TOLERANCE = 1e-6

MODELLED = {
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "enable_prefix_caching",
    "num_gpu_blocks",
    "block_size",
    "async_scheduling",
    "long_prefill_token_threshold",
    "scheduler_reserve_full_isl",
    "watermark",
}
NEUTRAL = {
    "backend": "vllm",
    "max_model_len": 16384,  # no recorded request comes near it
    "long_prefill_token_threshold_adaptive": False,
    "policy": "fcfs",
    "max_num_active_seqs": None,
    "prefill_schedule_interval": 1,
    "cpu_ms": 0.0,
}
LABELS = {"version", "scheduler"}
TRTLLM_NAMES = {
    "max_batch": "max_batch_size",
    "max_num_tokens": "max_num_tokens",
    "kv_tokens": "max_tokens_in_kv",
    "policy": "capacity_policy",
    "tpb": "tokens_per_block",
    "unit": "chunk_unit",
    "overlap": "overlap_scheduler",
    "wait_iters": "batch_wait_timeout_iters",
    "wait_ratio": "batch_wait_max_tokens_ratio",
}
SGLANG_NAMES = {
    "chunk": "chunked_prefill_size",
    "mixed": "enable_mixed_chunk",
    "kv_tokens": "max_total_tokens",
    "page": "page_size",
    "max_running": "max_running_requests",
    "max_prefill_tokens": "max_prefill_tokens",
    "policy": "schedule_policy",
    "conservativeness": "schedule_conservativeness",
    "prefill_decode_interval": "prefill_decode_interval",
    "ignore_eos": "ignore_eos",
    "disable_radix": "disable_radix_cache",
}


@cache
def recorded_cases(name: str, first: int | None = None) -> list[dict]:
    """The cases of a file, or the first few of them."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, first)]


def missing(names: Iterable[str]) -> bool:
    """Whether a file is not at hand."""
    return not all((FOLDER / f"{name}.jsonl.gz").exists() for name in names)


def disagreements(cases: list[dict]) -> dict[str, list[str]]:
    """What is wrong, by case."""
    found = {case["name"]: differences(case, simulate(scenario_of(case))) for case in cases}
    return {name: lines[:3] for name, lines in found.items() if lines}


def scenario_of(case: dict) -> dict:
    """The scenario that asks what was recorded."""
    backend = case["engine"]["backend"]
    return {
        "name": case["name"],
        "backend": backend,
        "engine": ENGINES[backend](case),
        "workload": workload_of(case),
        "timing": {
            "kind": "linear",
            "prefill": [*case["timing"]["prefill"], 0.0],
            "decode": case["timing"]["decode"],
            "combine": "sum",
        },
    }


def vllm_engine(case: dict) -> dict:
    """The modelled options; any other must have the value that changes nothing."""
    recorded = case["engine"]
    for key in recorded.keys() - MODELLED - LABELS:
        assert recorded[key] == NEUTRAL[key], f"{key}: {recorded[key]!r}"
    return {key: recorded[key] for key in MODELLED}


def trtllm_engine(case: dict) -> dict:
    """The short names in the engine's own; `chunk` null is chunking off."""
    recorded = {key: value for key, value in case["engine"].items() if key not in ("backend", "version")}
    policy = recorded.pop("chunk", "FCFS")
    chunking = {"enable_chunked_prefill": policy is not None, "chunk_policy": policy or "FCFS"}
    return {**{TRTLLM_NAMES[key]: value for key, value in recorded.items()}, **chunking}


def sglang_engine(case: dict) -> dict:
    """The short names in the engine's own; without a limit, as many run as there are clients."""
    recorded = {key: value for key, value in case["engine"].items() if key in SGLANG_NAMES}
    assert case["engine"].keys() - SGLANG_NAMES.keys() <= {"backend", "version", "shared_prefix", "overlap"}
    recorded.setdefault("max_running", case["traffic"]["C"])
    overlap = case["engine"]["overlap"]
    return {**{SGLANG_NAMES[key]: value for key, value in recorded.items()}, "disable_overlap_schedule": not overlap}


ENGINES = {"vllm": vllm_engine, "trtllm": trtllm_engine, "sglang": sglang_engine}


def workload_of(case: dict) -> dict:
    """A closed loop keeps its rules and takes lengths request by request; open traffic becomes a replay."""
    traffic, rows = case["traffic"], lengths_of(case)
    if traffic.get("mode", "closed") == "closed":
        return {
            "mode": "closed",
            "concurrency": traffic["C"] if "C" in traffic else traffic["concurrency"],
            "requests": len(rows),
            "shapes": rows,
            "turnaround_ms": traffic.get("turnaround_ms", 0),
            "stagger_ms": traffic.get("stagger_ms", 0),
        }
    sent = case["requests"]["dispatch_ms"]
    return {"mode": "replay", "requests": [{"dispatch_ms": t, **row} for t, row in zip(sent, rows, strict=True)]}


def lengths_of(case: dict) -> list[dict]:
    """Lengths and prefix groups, one row a request."""
    traffic, columns = case["traffic"], case["requests"]
    count = len(columns["isl"])
    if "prefixes" in traffic:
        groups, shared = [i % traffic["prefixes"] for i in range(count)], [traffic["prefix_len"]] * count
    elif "shared_prefix" in case["engine"]:
        groups, shared = [0] * count, [case["engine"]["shared_prefix"]] * count
    else:
        groups, shared = columns.get("prefix_group", [None] * count), columns.get("prefix_len", [0] * count)
    keys = ("isl", "osl", "prefix_group", "prefix_len")
    return [
        dict(zip(keys, row, strict=True), prefix=0)
        for row in zip(columns["isl"], columns["osl"], groups, shared, strict=True)
    ]


def differences(case: dict, answer: dict) -> list[str]:
    """Everything in which an answer departs from the recording, in words."""
    late_ms = case["traffic"].get("turnaround_ms", 0)  # in recordings the first burst has no turnaround
    columns, requests = case["requests"], answer["requests"]
    found = [
        f"{key} of {i}: {ours!r}, recorded {theirs!r}"
        for key in ("cached", "preemptions")
        if key in columns
        for i, (ours, theirs) in enumerate(zip((r[key] for r in requests), columns[key], strict=True))
        if ours != theirs
    ]
    found += apart("first_ms", [r["token_ms"][0] - late_ms for r in requests], columns["first_ms"])
    found += apart("done_ms", [r["token_ms"][-1] - late_ms for r in requests], columns["done_ms"])
    found += apart("visible_ms", [r["visible_ms"] - late_ms for r in requests], columns["dispatch_ms"])
    found += sum_differences(case["traffic"], requests)
    found += pass_differences(case["passes"], answer["passes"], late_ms)
    return found


def sum_differences(traffic: dict, requests: list[dict]) -> list[str]:
    """Departures in how often anybody lost its memory, where only the sum was recorded."""
    ours = sum(request["preemptions"] for request in requests)
    return [
        f"{key}: {ours}, recorded {traffic[key]}"
        for key in ("pauses", "retractions")
        if key in traffic and traffic[key] != ours
    ]


def pass_differences(recorded: dict, passes: list[dict], late_ms: float) -> list[str]:
    """Departures in the number, times and contents of the passes."""
    if len(passes) != len(recorded["end_ms"]):
        return [f"{len(passes)} passes, recorded {len(recorded['end_ms'])}"]
    found = []
    if "start_ms" in recorded:
        found += apart("start_ms", [p["start_ms"] - late_ms for p in passes], recorded["start_ms"])
    found += apart("end_ms", [p["end_ms"] - late_ms for p in passes], recorded["end_ms"])
    names = {"prefill_tokens": "prefill_tokens", "prefill_requests": "prefill_chunks", "decode_requests": "decode_rows"}
    for ours, theirs in names.items():
        found += apart(theirs, [p[ours] for p in passes], recorded[theirs])
    return found


def apart(name: str, ours: list[float], theirs: list[float]) -> list[str]:
    """The entries of two columns that differ by more than the tolerance allows."""
    return [
        f"{name} of {i}: {a!r}, recorded {b!r}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True))
        if abs(a - b) > TOLERANCE * max(1.0, abs(b))
    ]
