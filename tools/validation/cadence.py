"""Prefill on every step or on every second one (DeepSeek-R1, eight data-parallel ranks): signs and sizes of the change."""

from pathlib import Path

import numpy as np
import pandas as pd

import passcal as pc
from tools.validation.tables import markdown

__all__ = ["sections"]

RANKS, ISL, OSL, RATE_PER_S, REQUESTS = 8, 1000, 200, 24.0, 2000
FIGURES = ("ttft_mean_ms", "ttft_p99_ms", "itl_mean_ms", "itl_p50_ms")
SHARES = (0.0, 0.5, 1.0)  # of a prefill pass of one prompt, what does not grow with its tokens


def sections(data: Path) -> dict[str, str]:
    """One table: figures with interval 2 as a share of those with interval 1."""
    every, second = (
        row for _, row in pd.read_csv(data / "measurements" / "16_vllm_dp8_prefill_cadence_dsr1_gb200.csv").iterrows()
    )
    rows = [["measured", *(f"{second[name] / every[name]:.2f}" for name in FIGURES)]]
    decode, prefill = float(second["itl_p50_ms"]), float(every["itl_p50_ms"] - second["itl_p50_ms"])
    for share in SHARES:
        timing = pc.LinearTiming(prefill=(share * prefill, (1 - share) * prefill / ISL), decode=(decode,))
        one, two = (predicted(interval, timing) for interval in (1, 2))
        rows.append(
            [
                f"predicted, {share:.0%} of a prefill pass fixed",
                *(f"{b / a:.2f}" for a, b in zip(one, two, strict=True)),
            ]
        )
    return {"cadence": markdown(("interval 2 / interval 1", "TTFT mean", "TTFT p99", "ITL mean", "ITL p50"), rows)}


def predicted(interval: int, timing: pc.LinearTiming) -> tuple[float, ...]:
    """The figures of a seeded Poisson stream."""
    gaps = np.random.default_rng(0).exponential(1e3 / RATE_PER_S, REQUESTS)
    rows = {"dispatch_ms": np.cumsum(gaps), "isl": np.full(REQUESTS, ISL), "osl": np.full(REQUESTS, OSL)}
    engine = pc.Vllm(data_parallel_size=RANKS, prefill_schedule_interval=interval)
    report = pc.evaluate_replay(pc.Workload.replay(rows), engine, timing)
    return report.ttft_ms.mean, report.ttft_ms.quantile(0.99), report.itl_ms.mean, report.itl_ms.quantile(0.5)
