"""Recorded cases: where they are, how they are read, and what kinds there are."""

import gzip
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["GOLDEN", "RECORDED", "Case", "default_files", "kinds", "read", "write"]

Case = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden"
RECORDED = ROOT.parent / "shared" / "conformance"


def default_files() -> list[Path]:
    """The full set if it lies beside the checkout, else the committed subset."""
    return sorted((RECORDED if RECORDED.is_dir() else GOLDEN).glob("*.jsonl.gz"))


def read(file: Path) -> Iterator[Case]:
    """The cases of a file, one JSON line each."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def write(file: Path, cases: Iterable[Case]) -> None:
    """Write cases as `read` takes them; equal cases give equal bytes."""
    text = "".join(json.dumps(case, separators=(",", ":")) + "\n" for case in cases)
    file.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def kinds(case: Case) -> tuple[str, ...]:
    """What a case exercises, read from its content: the engine first, then one word a trait."""
    engine, traffic, requests = case["engine"], case["traffic"], case["requests"]
    clients = None if traffic.get("mode") == "open" else traffic.get("concurrency", traffic.get("C"))
    ahead = engine.get(
        "async_scheduling", engine.get("overlap", engine["backend"] == "trtllm")
    )  # the recorder's default
    traits = {
        "async": ahead,
        "sync": ahead is False,
        "closed": clients,
        "open": not clients,
        "varied lengths": len(set(requests.get("isl", ()))) > 1,
        "preemption": any(requests.get("preemptions", ())) or traffic.get("pauses", traffic.get("retractions")),
        "watermark": engine.get("watermark"),
        "long prompts": engine.get("long_prefill_token_threshold"),
        "chunking off": engine.get("enable_chunked_prefill") is False or engine.get("chunk", "") in (None, -1),
        "few seats": clients and seats(engine, clients) < clients,
        "turnaround": traffic.get("turnaround_ms"),
        "stagger": traffic.get("stagger_ms"),
        "prefix cache": engine.get("enable_prefix_caching"),
        "maximum utilization": engine.get("policy") == "MAX_UTILIZATION",
        "static batch": engine.get("policy") == "STATIC_BATCH",
        "equal progress": engine.get("chunk") == "EQUAL_PROGRESS",
        "batch wait": engine.get("wait_iters"),
        "mixed chunk": engine.get("mixed"),
        "pages": engine.get("page", 1) > 1,
        "radix off": engine.get("disable_radix"),
        "stops possible": engine.get("ignore_eos") is False,
        "longest prefix first": engine.get("policy") == "lpm",
        "shared prefix": engine.get("shared_prefix"),
        "interval": engine.get("prefill_decode_interval"),
    }
    return engine["backend"], *(name for name, there in traits.items() if there)


def seats(engine: dict[str, Any], clients: int) -> int:
    """Sequences that may run at a time, by the engine's own name for them."""
    given = (engine.get(name) for name in ("max_num_seqs", "max_batch", "max_running"))
    return next((number for number in given if number), clients)
