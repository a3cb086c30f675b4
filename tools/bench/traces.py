"""Whole traces on one, two and four workers, each in a process of its own for its peak memory."""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import passcal as pc
from passcal.sources.readers import read_trace
from tools.bench.figures import Figure

__all__ = ["replayed", "traces"]

ROOT = Path(__file__).resolve().parents[2]
FULL = ROOT.parent / "shared" / "data" / "traces"
FILES = {  # in full where they lie beside the checkout, else what is committed
    "conversation": ("azure_llm_2023_conv.csv", "examples/data/azure_conv_2000.csv"),
    "code": ("azure_llm_2023_code.csv", "tests/data/azure_code_head.csv"),
    "mooncake": ("mooncake_conversation_head.jsonl", "tests/data/mooncake_conversation_head.jsonl"),
}
REPEATS = 5


def traces() -> Iterator[Figure]:
    """Specs, run, report and columns of each; half a second is the most."""
    for name in FILES:
        for workers in (1, 2, 4):
            command = [sys.executable, "-m", "tools.bench.child", "trace", name, str(workers)]
            done = subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, check=True)
            got = json.loads(done.stdout)
            note = f"{got['requests']:,} requests, {got['passes']:,} passes, utilisation {got['utilisation']:.2f}, peak {got['peak_gb']:.2f} GB"
            yield Figure(f"{name}, {workers} workers", got["wall_s"], "s", 0.5, cpu=got["cpu_s"], note=note)


def replayed(name: str, workers: int) -> dict[str, Any]:
    """The best of a few replays of a trace, after one that loads the kernel."""
    full, committed = FILES[name]
    frame = read_trace(FULL / full if (FULL / full).exists() else ROOT / committed)
    deployed, spent = pc.Aggregated(pc.Vllm(), replicas=workers), []
    for _ in range(1 + REPEATS):
        began = time.perf_counter(), time.process_time()
        report = pc.evaluate(pc.Workload.replay(frame), deployed, pc.LinearTiming())
        report.to_columns()
        spent.append((time.perf_counter() - began[0], time.process_time() - began[1]))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "requests": len(frame),
        "passes": report.window.passes,
        "utilisation": report.utilisation,
        "wall_s": min(wall for wall, _ in spent[1:]),
        "cpu_s": min(cpu for _, cpu in spent[1:]),
        "peak_gb": peak / 1e9,
    }
