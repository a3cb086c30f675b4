"""A 70B model on two A100: timing fitted on the slowest of four rates, TPOT and TTFT predicted at the others."""

from pathlib import Path

import numpy as np
import pandas as pd

import passcal as pc
from tools.validation.fit import fit
from tools.validation.lives import replay
from tools.validation.tables import QUANTILES, against, figures, markdown, number

__all__ = ["sections"]

RUN = "data/openshift/exp-0/vllm-70b"
HEAD = ("rate", "n", "ms", "mean", *QUANTILES)


def sections(data: Path) -> dict[str, str]:
    """One table. The file has no engine knobs: vLLM's defaults, and memory that never binds."""
    rows = pd.read_csv(data / "measurements" / "llmd_requests.csv")
    runs = {rate: requests_of(run) for rate, run in rows[rows["run_dir"] == RUN].groupby("qps_target")}
    slowest = runs[min(runs)]
    timing = fit(slowest, pc.Vllm(), np.full(len(slowest), True)).timing
    return {
        "rates": markdown(HEAD, [row for rate, run in runs.items() for row in compared(rate, run, timing)]),
        "rates-kv": markdown(KV_HEAD, [held(rate, run) for rate, run in runs.items()]),
    }


def requests_of(run: pd.DataFrame) -> pd.DataFrame:
    """Requests in order of arrival, times in ms."""
    run = run.sort_values("arrival_s", kind="stable", ignore_index=True)
    dispatch = 1e3 * run["arrival_s"]
    first = dispatch + run["ttft_ms"]
    times = {"dispatch_ms": dispatch, "first_ms": first, "last_ms": first + run["generation_time_ms"]}
    return pd.DataFrame({**times, "isl": run["prompt_tokens"], "osl": run["generation_tokens"]})


def compared(rate: float, run: pd.DataFrame, timing: pc.LinearTiming) -> list[list[str]]:
    """TPOT and TTFT of one run."""
    told = replay(run, pc.Vllm(), timing).requests
    pairs = {
        "TPOT": (tpot(run, run["last_ms"]), tpot(told, told["done_ms"])),
        "TTFT": tuple(table["first_ms"] - table["dispatch_ms"] for table in (run, told)),
    }
    rows = []
    for k, (name, (was, now)) in enumerate(pairs.items()):
        cells = [against(a, b) for a, b in zip(figures(was), figures(now), strict=True)]
        rows.append([f"{rate:g}/s" if k == 0 else "", str(len(run)) if k == 0 else "", name, *cells])
    return rows


def tpot(table: pd.DataFrame, last: pd.Series) -> pd.Series:
    """Of the requests that have one."""
    return ((last - table["first_ms"]) / (table["osl"] - 1))[table["osl"] > 1]


KV_HEAD = ("rate", "most tokens held while nobody waits", "requests that waited", "tokens held meanwhile, 5-95%")
LONG_MS, EVERY_MS = 1000.0, 100.0


def held(rate: float, run: pd.DataFrame) -> list[str]:
    """Tokens of prompts and outputs so far of the requests between first and last token, while somebody has waited for `LONG_MS` or not."""
    now = np.arange(0.0, float(run["last_ms"].max()), EVERY_MS)[:, None]
    first, last, isl, osl = (run[name].to_numpy() for name in ("first_ms", "last_ms", "isl", "osl"))
    done = np.clip((now - first) / np.maximum(last - first, 1e-9), 0, 1)
    tokens = np.where((now >= first) & (now < last), isl + osl * done, 0.0).sum(axis=1)
    waits = ((now >= run["dispatch_ms"].to_numpy() + LONG_MS) & (now < first)).any(axis=1)
    waited = int((run["first_ms"] - run["dispatch_ms"] > LONG_MS).sum())
    meanwhile = "-".join(number(value) for value in np.quantile(tokens[waits], [0.05, 0.95])) if waits.any() else ""
    return [f"{rate:g}/s", number(tokens[~waits].max()), str(waited), meanwhile]
