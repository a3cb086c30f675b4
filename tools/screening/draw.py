"""Random candidates of the screener, and what the evaluator says of them."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import passcal as pc

__all__ = ["EXTRA", "draw", "specs", "truth"]

ENGINE = {  # option names of the three calendars: budget, seats
    "vllm": ("max_num_batched_tokens", "max_num_seqs"),
    "sglang": ("chunked_prefill_size", "max_running_requests"),
    "trtllm": ("max_num_tokens", "max_batch_size"),
}
OPTIONS = ("async_scheduling", "enable_mixed_chunk", "disable_overlap_schedule", "overlap_scheduler")
WORKLOAD = ("isl", "prefix", "osl", "concurrency", "turnaround_ms")
EXTRA = ("family", "workload", "calendar")  # columns that are no candidates'
TIMING = ("a0", "a1", "a2", "a3", "d0", "d1", "d2", "combine")
CARDS = (("llama-3.1-8b", "h100", 1), ("llama-3.1-70b", "h100", 4), ("llama-3.1-8b", "a100", 2))


def draw(count: int, seed: int, *, per_workload: int = 1) -> pd.DataFrame:
    """So many candidates; `per_workload` engines share a workload and a timing, whose number is the column `workload`."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(-(-count // per_workload)):
        workload = {**a_workload(rng), **a_timing(rng), "workload": number}
        rows += [{**workload, **an_engine(rng)} for _ in range(per_workload)]
    frame = pd.DataFrame(rows[:count])
    frame.loc[frame["backend"] == "trtllm", "prefix"] = 0  # it has none
    return frame


def log_int(rng: Any, low: int, high: int) -> int:
    """A whole number, its logarithm uniform."""
    return int(np.clip(round(log_real(rng, low, high)), low, high))


def log_real(rng: Any, low: float, high: float) -> float:
    """A number, its logarithm uniform."""
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def a_workload(rng: Any) -> dict[str, Any]:
    """Lengths, clients and their turnaround, half of the time none."""
    isl = log_int(rng, 64, 16384)
    return {
        "isl": isl,
        "osl": log_int(rng, 1, 1024),
        "concurrency": log_int(rng, 1, 1024),
        "prefix": int(isl * rng.choice([0.0, rng.uniform(0.0, 0.9)])),
        "turnaround_ms": float(rng.choice([0.0, log_real(rng, 0.1, 1000.0)])),
    }


def a_timing(rng: Any) -> dict[str, Any]:
    """Coefficients: of any kind, of a roofline, or phase-like: a pass with both costs the sum, and cuts of a prompt change what it costs."""
    family = str(rng.choice(["linear", "roofline", "phase"]))
    if family == "roofline":
        model, gpu, split = CARDS[rng.integers(len(CARDS))]
        timing = pc.Roofline(model, gpu, tensor_parallel=split).timing()
        return {
            "family": family,
            **dict(zip(TIMING, (*timing.prefill, *timing.decode, timing.combine), strict=True)),
        }
    a2 = float(rng.choice([0.0, log_real(rng, 1e-8, 1e-6)]))
    return {
        "family": family,
        "a0": log_real(rng, 0.5, 20.0),
        "a1": log_real(rng, 0.005, 0.1),
        "a2": a2,
        "a3": a2 * (0.5 if family == "linear" else float(rng.uniform(0.0, 2.0))),
        "d0": log_real(rng, 1.0, 20.0),
        "d1": log_real(rng, 0.002, 0.2),
        "d2": log_real(rng, 1e-7, 1e-5),
        "combine": "sum" if family == "phase" else str(rng.choice(["sum", "max", "shared"])),
    }


def an_engine(rng: Any) -> dict[str, Any]:
    """A calendar with a budget and seats, and passes planned ahead or not."""
    kind = str(rng.choice(["vllm", "sglang", "sglang mixed", "trtllm"]))
    backend, ahead = kind.split()[0], bool(rng.integers(2))
    budget, seats = log_int(rng, 512, 16384), log_int(rng, 8, 1024)
    if backend == "vllm":
        seats = min(seats, budget)
    options: dict[str, Any] = dict(zip(ENGINE[backend], (budget, seats), strict=True))
    if backend == "vllm":
        options["async_scheduling"] = ahead
    elif backend == "trtllm":
        options["overlap_scheduler"] = ahead
    else:
        options |= {"enable_mixed_chunk": kind.endswith("mixed"), "disable_overlap_schedule": not ahead}
    return {
        "backend": backend,
        "calendar": kind.replace("sglang", "alternating") if kind == "sglang" else kind,
        **options,
    }


def specs(frame: pd.DataFrame) -> Iterator[tuple[Any, Any, Any]]:
    """Workload, engine and timing of every row."""
    for row in frame.to_dict("records"):
        names = (*ENGINE[row["backend"]], *OPTIONS)
        options = {
            name: row[name] for name in names if name in row and row[name] == row[name] and row[name] is not None
        }
        workload = pc.Workload.closed_loop(**{name: row[name] for name in WORKLOAD})
        yield workload, pc.engine(row["backend"], **options), a_model(row)


def a_model(row: dict[str, Any]) -> Any:
    """The timing model of a row."""
    a0, a1, a2, a3, d0, d1, d2 = (row[name] for name in TIMING[:-1])
    return pc.LinearTiming(prefill=(a0, a1, a2, a3), decode=(d0, d1, d2), combine=row["combine"])


def truth(frame: pd.DataFrame) -> pd.DataFrame:
    """The evaluator's columns of every row, in a frame of the same index."""
    rows = []
    for workload, engine, timing in specs(frame):
        report = pc.evaluate_closed_loop(workload, engine, timing, stop=pc.LimitCycle())
        rows.append(report.to_columns() | {"passes": report.window.passes})
    return pd.DataFrame(rows, index=frame.index)
