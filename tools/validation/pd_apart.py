"""What the model predicts for the deployments of `pd_vs_agg` if their decode workers did not prefill; two figures of the replicas' arm set the clock."""

from pathlib import Path
from typing import Any

import pandas as pd

import passcal as pc
from tools.validation.pd_vs_agg import FIGURES, WORKERS, only, pairs, stall
from tools.validation.tables import against, markdown, number

__all__ = ["sections"]

KV_BYTES = 2 * 32 * 8 * 128 * 2  # a token of Llama 3.1 8B: keys and values, layers, KV heads, head size, bytes
LINKS = {"at once": None, "100 Gb/s": pc.Link(gb_per_s=12.5, kv_bytes_per_token=KV_BYTES)}
HEAD = (
    "pair",
    "ms",
    "replicas, measured / predicted",
    "apart, as measured",
    *(f"apart, predicted, KV {name}" for name in LINKS),
    "difference, measured",
    *(f"predicted, KV {name}" for name in LINKS),
)


def sections(data: Path) -> dict[str, str]:
    """One table."""
    return {"pd-apart": markdown(HEAD, [row for pair in pairs(data) for row in compared(*pair)])}


def compared(name: str, replicas: pd.DataFrame, apart: pd.DataFrame) -> list[list[str]]:
    """Each figure of both arms, and how the one differs from the other, measured and predicted."""
    topology = only(apart["topology"])
    prefills, told = WORKERS[topology], replicas.iloc[0]
    isl, osl = round(float(replicas["isl"].mean())), int(told["osl"])
    workers = prefills + 1
    clock = pc.LinearTiming(
        prefill=(0.0, stall(replicas) * workers / isl), decode=(float(replicas["median_itl_ms"].mean()),)
    )
    sent = pc.Workload.open_loop(
        isl,
        osl,
        rate_per_s=float(told["request_rate"]),
        arrivals="gamma",
        cv=float(told["burstiness_gamma_shape"]) ** -0.5,
        horizon_requests=int(told["num_prompts"]),
    )
    base = figures(pc.evaluate(sent, pc.Aggregated(pc.Vllm(), replicas=workers), clock))
    parted = [figures(pc.evaluate(sent, deployed(prefills, link), clock)) for link in LINKS.values()]
    rows = []
    for k, (figure, column) in enumerate(FIGURES.items()):
        a, b = replicas[column].mean(), apart[column].mean()
        predicted = [f[figure] for f in parted]
        rows.append(
            [f"{name}, {topology}" if k == 0 else "", figure, against(a, base[figure]), number(b)]
            + [number(value) for value in predicted]
            + [change(a, b), *(change(base[figure], value) for value in predicted)]
        )
    return rows


def deployed(prefills: int, link: pc.Link | None) -> pc.Disaggregated:
    """Prefill workers and one decode worker, which makes the first token again, as vLLM does behind a router."""
    return pc.Disaggregated(
        prefill=pc.Vllm(), decode=pc.Vllm(), prefill_workers=prefills, link=link, first_token="decode_pass"
    )


def figures(report: pc.Report) -> dict[str, float]:
    """As benchmark clients print them: quantiles are interpolated."""
    p99 = float(report.ttft_ms.interpolated([0.99])[0])
    itl = dict(zip(("ITL p50", "ITL p95", "ITL p99"), report.itl_ms.interpolated([0.5, 0.95, 0.99]), strict=True))
    return {"TTFT mean": report.ttft_ms.mean, "TTFT p99": p99, "TPOT mean": report.tpot_ms.mean, **itl}


def change(a: Any, b: Any) -> str:
    """Of b against a, in percent."""
    return f"{100 * (b / a - 1):+.0f}%"
