"""What a fresh process does: `point` answers one question, `million N` replays N requests, `trace NAME N` a trace on N workers, and state their peak memory."""

import json
import resource
import sys
import time
from typing import Any

import numpy as np

import passcal as pc

__all__ = ["main"]


def point() -> dict[str, Any]:
    """One operating point."""
    loop = pc.Workload.closed_loop(isl=4096, osl=256, concurrency=32)
    return pc.evaluate_closed_loop(loop, pc.Vllm(), pc.LinearTiming()).to_columns()


def million(requests: int) -> dict[str, Any]:
    """The trace's lengths and gaps, repeated in another order until there are as many as asked for."""
    from tools.bench.measures import azure_trace

    frame = azure_trace()
    order = np.random.default_rng(0)
    picked = order.integers(len(frame), size=requests)
    gaps = np.diff(frame["dispatch_ms"].to_numpy(), prepend=0.0)[order.integers(len(frame), size=requests)]
    rows = {name: frame[name].to_numpy()[picked] for name in ("isl", "osl")}
    started = time.perf_counter()
    workload = pc.Workload.replay({"dispatch_ms": np.cumsum(gaps), **rows})
    report = pc.evaluate_replay(workload, pc.Vllm(), pc.LinearTiming())
    ran = time.perf_counter()
    report.to_columns()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return {
        "rate_per_s": 1e3 * requests / float(gaps.sum()),
        "passes": report.window.passes,
        "run_s": ran - started,
        "total_s": time.perf_counter() - started,
        "peak_gb": peak / 1e9,
    }


def main(task: str, *arguments: str) -> None:
    """Do one task and print its answer as JSON."""
    from tools.bench.traces import replayed

    tasks: dict[str, Any] = {
        "point": point,
        "million": lambda n: million(int(n)),
        "trace": lambda k, n: replayed(k, int(n)),
    }
    json.dump(tasks[task](*arguments), sys.stdout)


if __name__ == "__main__":
    main(*sys.argv[1:])
