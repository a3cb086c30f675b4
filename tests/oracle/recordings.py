"""Recorded schedules of the real engine as scenarios, and the comparison of an answer with the recording."""

import gzip
import json
from functools import cache
from itertools import islice
from pathlib import Path

FOLDER = Path(__file__).parents[3] / "shared" / "conformance"
FILES = ("vllm", "vllm_random")
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


@cache
def recorded_cases(name: str, first: int | None = None) -> list[dict]:
    """The cases of a file, or the first few of them."""
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in islice(lines, first)]


def scenario_of(case: dict) -> dict:
    """The scenario that asks what was recorded."""
    return {
        "name": case["name"],
        "backend": "vllm",
        "engine": engine_of(case["engine"]),
        "workload": workload_of(case),
        "timing": {
            "kind": "linear",
            "prefill": [*case["timing"]["prefill"], 0.0],
            "decode": case["timing"]["decode"],
            "combine": "sum",
        },
    }


def engine_of(recorded: dict) -> dict:
    """The modelled options; any other must have the value that changes nothing."""
    for key in recorded.keys() - MODELLED - LABELS:
        assert recorded[key] == NEUTRAL[key], f"{key}: {recorded[key]!r}"
    return {key: recorded[key] for key in MODELLED}


def workload_of(case: dict) -> dict:
    """A closed loop keeps its rules and takes lengths request by request; open traffic becomes a replay."""
    traffic, rows = case["traffic"], lengths_of(case)
    if traffic["mode"] == "closed":
        return {
            "mode": "closed",
            "concurrency": traffic["concurrency"],
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
        for i, (ours, theirs) in enumerate(zip((r[key] for r in requests), columns[key], strict=True))
        if ours != theirs
    ]
    found += apart("first_ms", [r["token_ms"][0] - late_ms for r in requests], columns["first_ms"])
    found += apart("done_ms", [r["token_ms"][-1] - late_ms for r in requests], columns["done_ms"])
    found += apart("visible_ms", [r["visible_ms"] - late_ms for r in requests], columns["dispatch_ms"])
    found += pass_differences(case["passes"], answer["passes"], late_ms)
    return found


def pass_differences(recorded: dict, passes: list[dict], late_ms: float) -> list[str]:
    """Departures in the number, times and contents of the passes."""
    if len(passes) != len(recorded["end_ms"]):
        return [f"{len(passes)} passes, recorded {len(recorded['end_ms'])}"]
    found = apart("start_ms", [p["start_ms"] - late_ms for p in passes], recorded["start_ms"])
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
