"""A log of one run of a vLLM engine: what was asked, when it was served, and how full the engine was."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import passcal as pc

__all__ = ["EngineLog", "read_log"]

TIMES = {
    "queued_ts": "queued_ms",
    "scheduled_ts": "scheduled_ms",
    "first_token_ts": "first_ms",
    "last_token_ts": "last_ms",
}


@dataclass(frozen=True)
class EngineLog:
    """One run.

    Attributes:
        name: its folder's.
        engine: the engine as its `meta.json` says.
        requests: a row a request in order of arrival, on one clock that starts with the first arrival: `dispatch_ms`, `isl`, `osl`,
            `queued_ms`, `scheduled_ms`, `first_ms`, `last_ms`.
        load: a row a second on the same clock: `end_ms`, `running`, `waiting`, `kv_cache_pct`.
    """

    name: str
    engine: pc.Vllm
    requests: pd.DataFrame
    load: pd.DataFrame

    @property
    def gpu(self) -> str:
        """The first part of the name."""
        return self.name.split("_")[0]

    @property
    def fitted(self) -> np.ndarray[Any, Any]:
        """Mask of the first half of the requests."""
        return np.arange(len(self.requests)) < len(self.requests) // 2


def read_log(folder: Path) -> EngineLog:
    """Read a run's three files."""
    meta = json.loads((folder / "meta.json").read_text())
    rows = pd.DataFrame([json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()])
    return EngineLog(folder.name, engine_of(meta), on_one_clock(rows), load_of(folder, meta, rows))


def engine_of(meta: dict[str, Any]) -> pc.Vllm:
    """Every option of the product that the file states; what it leaves out keeps vLLM's default."""
    stated: dict[str, Any] = dict(meta["engine_kwargs"])
    for part in ("scheduler_config", "cache_config"):
        stated |= meta.get("resolved_config", {}).get(part, {})
    return pc.Vllm(**{name: stated[name] for name in pc.Vllm.model_fields if stated.get(name) is not None})


def on_one_clock(rows: pd.DataFrame) -> pd.DataFrame:
    """Arrivals are on the client's clock and the rest on the engine's: the two are joined where a request of the first half was queued soonest
    after its arrival.
    """
    rows = rows.sort_values("arrival_time", kind="stable", ignore_index=True)
    dispatch = 1e3 * (rows["arrival_time"] - rows["arrival_time"][0])
    soonest = (1e3 * rows["queued_ts"] - dispatch)[: len(rows) // 2].min()
    times = {name: 1e3 * rows[column] - soonest for column, name in TIMES.items()}
    lengths = {"isl": rows["input_toks"], "osl": rows["output_toks"]}
    return pd.DataFrame({"dispatch_ms": dispatch, **lengths, **times})


def load_of(folder: Path, meta: dict[str, Any], rows: pd.DataFrame) -> pd.DataFrame:
    """The engine's state second by second; its clock starts when the run was started, a little before the first arrival."""
    load = pd.read_csv(folder / "timeseries.csv")
    started = pd.Timestamp(meta["started_at"]).timestamp()
    load["end_ms"] = 1e3 * (load["t"] - (rows["arrival_time"].min() - started))
    return load[["end_ms", "running", "waiting", "kv_cache_pct"]]
