"""Sixteen prompts at once (Gemma 27B): two numbers read off one run, the other run predicted."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import passcal as pc
from tools.validation.tables import against, markdown

__all__ = ["sections"]

PROMPTS, ISL, OSL = 16, 1024, 350
FIGURES = (
    "duration_s",
    "ttft_mean_ms",
    "ttft_median_ms",
    "ttft_p99_ms",
    "tpot_mean_ms",
    "tpot_p99_ms",
    "itl_median_ms",
    "itl_p99_ms",
)
TOGETHER = pc.Vllm(max_num_batched_tokens=PROMPTS * ISL, async_scheduling=False)
ONE_BY_ONE = pc.Vllm(
    max_num_batched_tokens=ISL + PROMPTS, max_num_seqs=PROMPTS, enable_chunked_prefill=False, async_scheduling=False
)


def sections(data: Path) -> dict[str, str]:
    """One table: a token of a prompt costs what makes run A's TTFT median, a decode pass its ITL median."""
    runs = pd.read_csv(data / "measurements" / "21_vllm_gemma27b_burst16_isl1024_osl350.csv")
    together, staggered = runs.iloc[0], runs.iloc[1]
    a1 = together["ttft_median_ms"] / (PROMPTS * ISL)
    timing = pc.LinearTiming(prefill=(0.0, float(a1)), decode=(float(together["itl_median_ms"]),))
    a, b = (predicted(engine, timing) for engine in (TOGETHER, ONE_BY_ONE))
    rows = [[name, against(together[name], a[name]), against(staggered[name], b[name])] for name in FIGURES]
    return {
        "burst": markdown(
            ("figure", "A: prompts share passes (two figures fitted)", "B: one prompt a pass (predicted)"), rows
        )
    }


def predicted(engine: pc.Vllm, timing: pc.LinearTiming) -> dict[str, Any]:
    """The figures of a burst whose first request is in the engine a moment before the rest."""
    rows = {
        "dispatch_ms": np.minimum(np.arange(PROMPTS), 1),
        "isl": np.full(PROMPTS, ISL),
        "osl": np.full(PROMPTS, OSL),
    }
    report = pc.evaluate_replay(pc.Workload.replay(rows), engine, timing)
    told = report.requests()
    ttft, tpot = told["first_ms"] - told["dispatch_ms"], (told["done_ms"] - told["first_ms"]) / (told["osl"] - 1)
    values = (
        told["done_ms"].max() / 1e3,
        *(ttft.mean(), ttft.median(), ttft.quantile(0.99)),  # interpolated, as benchmark clients do
        *(tpot.mean(), tpot.quantile(0.99)),
        *(report.itl_ms.quantile(0.5), report.itl_ms.quantile(0.99)),
    )
    return dict(zip(FIGURES, values, strict=True))
