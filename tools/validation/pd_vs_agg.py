"""Disaggregated deployments against as many replicas: what the measurements themselves say. Nothing is predicted here."""

from pathlib import Path
from typing import Any

import pandas as pd

from tools.validation.tables import markdown, number

__all__ = ["FIGURES", "WORKERS", "only", "pairs", "sections", "stall"]

FIGURES = {
    "TTFT mean": "mean_ttft_ms",
    "TTFT p99": "p99_ttft_ms",
    "TPOT mean": "mean_tpot_ms",
    "ITL p50": "median_itl_ms",
    "ITL p95": "p95_itl_ms",
    "ITL p99": "p99_itl_ms",
}
WORKERS = {"disagg 1P1D": 1, "disagg 2P1D": 2}  # prefill workers


def sections(data: Path) -> dict[str, str]:
    """Signs and order, and who prefills."""
    found = pairs(data)
    return {
        "pd-order": markdown(ORDER_HEAD, [row for pair in found for row in order(*pair)]),
        "pd-stalls": markdown(STALL_HEAD, [row for pair in found for row in stalls(*pair)]),
    }


def pairs(data: Path) -> list[tuple[str, pd.DataFrame, pd.DataFrame]]:
    """Name, runs with replicas and runs with prefill and decode apart."""
    runs = pd.read_csv(data / "measurements" / "05_llmd_exp7_pd_vs_agg.csv")
    runs["prompt"] = runs["isl"].round(-3)
    return [
        (
            f"{gpu} {prompt}/{osl}",
            group[group["topology"].str.startswith("agg")],
            group[~group["topology"].str.startswith("agg")],
        )
        for (gpu, prompt, osl), group in runs.groupby(["gpu", "prompt", "osl"])
    ]


ORDER_HEAD = ("pair", "ms", "replicas", "disaggregated", "difference", "repeats apart")


def order(name: str, replicas: pd.DataFrame, apart: pd.DataFrame) -> list[list[str]]:
    """Each figure in both arms: mean of the repeats and their range, and whether the ranges overlap."""
    rows = []
    for k, (figure, column) in enumerate(FIGURES.items()):
        a, b = replicas[column], apart[column]
        clear = "yes" if a.max() < b.min() or b.max() < a.min() else "no"
        clear = clear if min(len(a), len(b)) > 1 else "one repeat"
        title = f"{name}, {only(replicas['topology'])} / {only(apart['topology'])}" if k == 0 else ""
        rows.append([title, figure, spread(a), spread(b), f"{100 * (b.mean() / a.mean() - 1):+.1f}%", clear])
    return rows


STALL_HEAD = (
    "pair",
    "arm",
    "workers",
    "gap beyond its median, mean, ms",
    "stall an arriving prompt causes, ms",
    "times workers, ms",
    "TTFT p50, ms",
    "load of the prefill workers alone",
)


def stalls(name: str, replicas: pd.DataFrame, apart: pd.DataFrame) -> list[list[str]]:
    """What an arriving prompt costs a running request, and what follows from it."""
    rows = []
    for k, arm in enumerate((replicas, apart)):
        topology = only(arm["topology"])
        prefills = WORKERS.get(topology, 0)
        workers = prefills + 1 if prefills else int(topology.split()[1][0])
        beyond, held_up = (arm["mean_itl_ms"] - arm["median_itl_ms"]).mean(), stall(arm)
        load = f"{arm['req_tput'].mean() / 1e3 * held_up * workers / prefills:.2f}" if prefills else ""
        numbers = [number(value) for value in (beyond, held_up, held_up * workers, arm["median_ttft_ms"].mean())]
        rows.append([name if k == 0 else "", topology, str(workers), *numbers, load])
    return rows


def stall(arm: pd.DataFrame) -> float:
    """How long an arriving prompt holds up a running request, on average (ms).

    A request decodes for `(osl - 1) * itl` and is held up for `(osl - 1) * (itl - median)`; meanwhile `rate * (osl - 1) * itl` prompts
    arrive. So each of them holds it up for `(itl - median) / (rate * itl)` on average: a prompt's prefill over the number of workers where
    every worker prefills, nothing where its own does not.
    """
    beyond, rate = (arm["mean_itl_ms"] - arm["median_itl_ms"]).mean(), arm["req_tput"].mean() / 1e3
    return float(beyond / (rate * arm["mean_itl_ms"].mean()))


def only(column: Any) -> str:
    """The one value of a column."""
    (value,) = set(column)
    return str(value)


def spread(values: Any) -> str:
    """Mean, least and most."""
    return f"{number(values.mean())} ({number(values.min())}-{number(values.max())})"
