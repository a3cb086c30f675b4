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
    clients = traffic.get("concurrency", traffic.get("C"))
    ahead = engine.get(
        "async_scheduling", engine.get("overlap", engine["backend"] == "trtllm")
    )  # the recorder's default
    traits = {
        "async": ahead,
        "sync": ahead is False,
        "closed": clients,
        "open": not clients,
        "varied lengths": len(set(requests.get("isl", ()))) > 1,
        "preemption": any(requests.get("preemptions", ())) or traffic.get("pauses"),
        "watermark": engine.get("watermark"),
        "long prompts": engine.get("long_prefill_token_threshold"),
        "chunking off": engine.get("enable_chunked_prefill") is False or engine.get("chunk", "") is None,
        "few seats": clients and engine.get("max_num_seqs", engine.get("max_batch", clients)) < clients,
        "turnaround": traffic.get("turnaround_ms"),
        "stagger": traffic.get("stagger_ms"),
        "prefix cache": engine.get("enable_prefix_caching"),
        "maximum utilization": engine.get("policy") == "MAX_UTILIZATION",
        "static batch": engine.get("policy") == "STATIC_BATCH",
        "equal progress": engine.get("chunk") == "EQUAL_PROGRESS",
        "batch wait": engine.get("wait_iters"),
    }
    return engine["backend"], *(name for name, there in traits.items() if there)
