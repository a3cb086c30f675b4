"""The engine logs: timing fitted on the first half of a run's requests, figures of the second half predicted."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tools.validation.engine_log import EngineLog, read_log
from tools.validation.fit import Fitted, fit
from tools.validation.lives import Calendar, planned, replay
from tools.validation.tables import QUANTILES, against, figures, markdown, number

__all__ = ["BANDS", "Half", "as_predicted", "half", "halves", "sections", "utilisation"]

BANDS = {"95% and more": (0.95, np.inf), "75-95%": (0.75, 0.95), "below 75%": (0.0, 0.75)}
METRICS = {"ttft": "TTFT", "tpot": "TPOT", "queue": "queue time", "pick_up": "arrival to queued"}
QUICKEST_MS = 1.0  # of what is shorter, an error in % says nothing


@dataclass(frozen=True)
class Half:
    """A run, the timing found on its first half, and what is measured and predicted of all of its requests."""

    log: EngineLog
    fitted: Fitted
    calendar: Calendar
    measured: pd.DataFrame
    predicted: pd.DataFrame


def halves(data: Path) -> list[Half]:
    """Every log, fitted and predicted."""
    return [half(read_log(folder)) for folder in sorted((data / "measurements" / "vllm_engine_logs").iterdir())]


def sections(halves: list[Half]) -> dict[str, str]:
    """The page's tables, by name."""
    found = {"engine-log-fits": markdown(FIT_HEAD, [fit_row(one) for one in halves])}
    for one in halves:
        found[f"{one.log.gpu}-second-half"] = markdown(HEAD, compared(one))
    return found


def half(log: EngineLog) -> Half:
    """Fit and predict."""
    found = fit(log.requests, log.engine, log.fitted)
    calendar = replay(log.requests, log.engine, found.timing)
    return Half(log, found, calendar, as_measured(log.requests), as_predicted(calendar))


def as_measured(requests: pd.DataFrame) -> pd.DataFrame:
    """TTFT from arrival, TPOT, the log's own queue time, and how long until the engine picked a request up."""
    return pd.DataFrame(
        {
            "ttft": requests["first_ms"] - requests["dispatch_ms"],
            "tpot": (requests["last_ms"] - requests["first_ms"]) / (requests["osl"] - 1),
            "queue": requests["scheduled_ms"] - requests["queued_ms"],
            "pick_up": requests["queued_ms"] - requests["dispatch_ms"],
        }
    )


def as_predicted(calendar: Calendar) -> pd.DataFrame:
    """The same of a replay: a request is picked up when the next pass is planned, and leaves the queue when its own is (V12)."""
    told, start = calendar.requests, calendar.passes["start_ms"].to_numpy()
    picked = start[np.searchsorted(start, told["dispatch_ms"])]
    return pd.DataFrame(
        {
            "ttft": told["first_ms"] - told["dispatch_ms"],
            "tpot": (told["done_ms"] - told["first_ms"]) / (told["osl"] - 1),
            "queue": np.maximum(start[planned(calendar)] - picked, 0.0),
            "pick_up": picked - told["dispatch_ms"],
        }
    )


# ---- the fit

FIT_HEAD = ("run", "a0 ms", "a1 us", "a2 ns", "a3 ns", "d0 ms", "d1 us", "d2 ns", "combine", "error of the fit")


def fit_row(one: Half) -> list[str]:
    """Coefficients, small ones in smaller units."""
    units, timing = (1, 1e3, 1e6, 1e6, 1, 1e3, 1e6), one.fitted.timing
    values = [number(value * unit) for value, unit in zip((*timing.prefill, *timing.decode), units, strict=True)]
    return [one.log.name, *values, timing.combine, f"{100 * one.fitted.error:.1f}%"]


# ---- measured against predicted

HEAD = ("requests", "n", "ms", "mean", *QUANTILES)


def compared(one: Half) -> list[list[str]]:
    """The first half, which was fitted on; the second; and the second by how full the engine was."""
    second, share = ~one.log.fitted, utilisation(one.log)
    groups = {"first half (fitted on)": ~second, "second half": second}
    groups |= {f"- {name}": second & (share >= low) & (share < high) for name, (low, high) in BANDS.items()}
    rows = []
    for name, those in groups.items():
        metrics = METRICS if name == "second half" else list(METRICS)[:3]
        for k, metric in enumerate(metrics):
            told = zip(figures(one.measured[metric][those]), figures(one.predicted[metric][those]), strict=True)
            cells = [against(was, is_now, QUICKEST_MS) for was, is_now in told]
            rows.append([name if k == 0 else "", str(those.sum()) if k == 0 else "", METRICS[metric], *cells])
    return rows


def utilisation(log: EngineLog) -> np.ndarray[Any, Any]:
    """Share of what is scarce, KV where the log has its size and seats elsewhere, that was in use while a request was served."""
    load, limited = log.load, log.engine.num_gpu_blocks is not None
    used = load["kv_cache_pct"] / 100 if limited else load["running"] / log.engine.max_num_seqs
    spans = zip(log.requests["scheduled_ms"], log.requests["last_ms"], strict=True)
    return np.array([used[load["end_ms"].between(begin, end)].mean() for begin, end in spans])
