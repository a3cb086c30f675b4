"""Columns of candidates with prefill and decode apart to rows that the composed form reads: a candidate row of each pool, and what joins them."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from passcal.errors import SpecError, Unsupported
from passcal.screening.candidates import TIMING, WORKLOAD, candidate_rows, single_shape
from passcal.screening.columns_in import Coded, Columns, given, number
from passcal.screening.tables import HOP
from passcal.spec.deployment import Disaggregated, Link
from passcal.spec.workload import Workload
from passcal.timing.base import TimingModel

__all__ = ["POOLS", "Priced", "pool_columns", "tandem_rows"]

Priced = TimingModel | Mapping[str, TimingModel]  # one model, or one for `prefill` and one for `decode`

POOLS = ("prefill", "decode")
CHOICES = {  # texts of a hop, each by its code
    "first_token": ("prefill", "decode", "decode_pass"),
    "hold": ("none", "blocks", "blocks_and_seat"),
    "routing": ("round_robin", "least_loaded"),
    "link.transfer": ("full", "missing"),
    "link.transfer_start": ("last_chunk", "each_chunk"),
}
COUNTS = ("prefill_workers", "decode_workers", "prefill_inflight_cap", "link.max_transfers_per_worker")
RATE = 1e6  # bytes a ms of a GB/s


def tandem_rows(columns: Columns, workload: Workload | None, timing: Priced | None) -> tuple[Any, Any, Any]:
    """`CANDIDATE[n]` of the prefill pool, which makes one output, and of the decode pool, and `HOP[n]`.

    Args:
        columns: by name, of rows of this kind; no value stands for the default.
        workload: lengths and clients where no column has them.
        timing: one model for both pools, or one each; None: columns have coefficients.

    Raises:
        SpecError: something missing, or a value out of range.
        Unsupported: an open loop, or what the screen of one engine does not do either.
    """
    count = len(backend_of(columns, "prefill").codes)
    if "rate_per_s" in columns and given(columns["rate_per_s"]).any():
        raise Unsupported("rate_per_s: the composed form is of closed loops; use pc.evaluate for rates")
    models: Mapping[str, Any] = timing if isinstance(timing, Mapping) else dict.fromkeys(POOLS, timing)
    if set(models) != set(POOLS):
        raise SpecError(
            f"timing={list(models)!r:.60}: must be one model, or a mapping of prefill and decode; correct the keys"
        )
    ones, none = np.ones(count), np.zeros(count)
    prefill = candidate_rows(pool_columns(columns, "prefill") | {"osl": ones}, workload, models["prefill"])
    decode = candidate_rows(pool_columns(columns, "decode") | {"prefix": none}, workload, models["decode"])
    fallback = {"osl": None} if workload is None else single_shape(workload)[0]
    hops = np.zeros(count, HOP)
    fill_hops(hops, columns, prefill)
    fill_memory(hops, columns, prefill, decode, number(columns, "osl", fallback["osl"]))
    return prefill, decode, hops


def pool_columns(columns: Columns, pool: str) -> dict[str, Any]:
    """The columns of one pool by their own names, beside those that both share."""
    own = {name: column for name, column in columns.items() if name in (*WORKLOAD, *TIMING, "combine")}
    prefix = f"{pool}."
    own |= {name.removeprefix(prefix): column for name, column in columns.items() if name.startswith(prefix)}
    own["backend"] = backend_of(columns, pool)
    return own


def backend_of(columns: Columns, pool: str) -> Coded:
    """The pool's own backend, or the row's."""
    shared, own = (named(columns.get(name)) for name in ("backend", f"{pool}.backend"))
    if shared is None or own is None:
        found = own if shared is None else shared
    else:
        moved = np.where(own.codes >= 0, own.codes + len(shared.values), shared.codes)
        found = Coded(moved, (*shared.values, *own.values))
    if found is None or (found.codes < 0).any():
        raise SpecError(f"backend is missing: give a column backend, or {pool}.backend, in every row")
    return found


def named(column: Any) -> Coded | None:
    """A column of names, if any row has one."""
    if column is None or not given(column).any():
        return None
    if isinstance(column, Coded):
        return column
    raise SpecError(f"backend={column[given(column)][0]:g}: must be a name of a backend; correct it")


def fill_hops(hops: Any, columns: Columns, prefill: Any) -> None:
    """Workers, the first token, what is held, and the link."""
    for name, field in zip(COUNTS, ("sources", "sinks", "inflight", "most"), strict=True):
        values = number(columns, name, 1 if name.endswith("_workers") else np.inf)
        if not ((values >= 1) & ((values == np.floor(values)) | (values == np.inf))).all():
            raise SpecError(f"{name}: must be whole numbers from 1; correct the column")
        hops[field] = values
    for name, texts in CHOICES.items():
        hops[name.rpartition(".")[2]] = chosen(columns, name, texts)
    linked = np.zeros(len(hops), bool)
    for name in Link.model_fields:
        if f"link.{name}" in columns:
            linked |= given(columns[f"link.{name}"])
    values = {name: number(columns, f"link.{name}", fallback) for name, fallback in LINK.items()}
    for name, value in values.items():
        wrong = np.isnan(value) | ~(value >= 0) | ((name in ("gb_per_s", "efficiency")) & ~(value > 0))
        if np.any(linked & wrong):
            raise SpecError(
                f"link.{name}: must be given, finite and in range where a row has a link; correct the column"
            )
    tokens = np.where(hops["transfer"] == 1, prefill["new"], prefill["isl"])
    hops["bytes"] = np.where(linked, tokens * values["kv_bytes_per_token"], 0.0)
    hops["latency_ms"] = np.where(linked, values["latency_ms"], 0.0)
    hops["capacity"] = np.where(linked, values["gb_per_s"] * RATE * values["efficiency"], np.inf)


LINK = {"gb_per_s": None, "kv_bytes_per_token": None, "efficiency": 0.8, "latency_ms": 0.0}


def chosen(columns: Columns, name: str, texts: tuple[str, ...]) -> Any:
    """Codes of a column of texts; the first where it has none."""
    column = columns.get(name)
    if column is None or (not isinstance(column, Coded) and not given(column).any()):
        return 0
    values = column.values if isinstance(column, Coded) else (float(column[given(column)][0]),)
    for value in values:
        if value not in texts:
            raise SpecError(f"{name}={value!r:.40}: must be one of {', '.join(texts)}; correct it")
    return np.array([*(texts.index(value) for value in values), 0])[column.codes]


def fill_memory(hops: Any, columns: Columns, prefill: Any, decode: Any, osl: Any) -> None:
    """Outputs, and how many requests KV of a worker holds: prompts of prefill, and what decode reserves or has (D6)."""
    reserve = number(
        columns, "num_reserved_decode_tokens", Disaggregated.model_fields["num_reserved_decode_tokens"].default
    )
    backend = backend_of(columns, "decode")
    early = np.array([name == "sglang" for name in backend.values])[backend.codes]
    if np.any(~early & (reserve != 512)):
        raise Unsupported("num_reserved_decode_tokens: only sglang reserves so; leave it empty where decode is another")
    hops["osl"], hops["early"] = osl, early
    hops["held_prefill"] = np.maximum(prefill["kv"], 1.0)
    tokens = number(columns, "decode.max_total_tokens", np.inf)
    reserved = np.floor(tokens / (decode["isl"] + np.maximum(reserve, 1.0)))
    hops["held_decode"] = np.maximum(np.where(early, np.minimum(reserved, decode["kv"] * 1.0), decode["kv"]), 1.0)
