"""Random candidates with prefill and decode apart, what the evaluator says of them, and how far the composed screener is from it."""

import time
from typing import Any

import numpy as np
import pandas as pd

import passcal as pc
from passcal.bounding import bounds_of
from passcal.points import read_points
from tools.screening.draw import ENGINE, a_model, a_timing, log_int, log_real

__all__ = ["COMPOSED", "draw_apart", "report_apart", "truth_apart"]

KV = {"vllm": ("num_gpu_blocks", 16), "sglang": ("max_total_tokens", 1), "trtllm": ("max_tokens_in_kv", 1)}
COMPOSED = {
    "throughput_rps": "throughput",
    "ttft_steady_mean": "TTFT mean",
    "itl_mean": "ITL mean",
    "ttft_steady_p99": "TTFT p99",
    "itl_p99": "ITL p99",
}


def draw_apart(count: int, seed: int) -> pd.DataFrame:
    """So many candidates."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame([a_candidate(rng) for _ in range(count)])
    for column in frame:
        if frame[column].dtype == object:
            frame[column] = frame[column].where(frame[column].notna(), None)
    return frame


def a_candidate(rng: Any) -> dict[str, Any]:
    """Two pools, a link, clients, and a timing that both share."""
    isl, osl, clients = log_int(rng, 64, 8192), log_int(rng, 2, 512), log_int(rng, 1, 256)
    prefill, decode = (str(rng.choice([*ENGINE])) for _ in range(2))
    timing = a_timing(rng)
    del timing["family"]
    row: dict[str, Any] = {
        "kind": "disaggregated",
        "isl": isl,
        "osl": osl,
        "concurrency": clients,
        "turnaround_ms": float(rng.choice([0.0, 0.0, log_real(rng, 1.0, 300.0)])),
        "prefill_workers": int(rng.integers(1, 6)),
        "decode_workers": int(rng.integers(1, 6)),
        "first_token": str(
            rng.choice(["prefill", "decode"] if decode == "sglang" else ["prefill", "decode", "decode_pass"])
        ),
        "hold": str(rng.choice(["none", "blocks", "blocks_and_seat"])),
        "routing": str(rng.choice(["round_robin", "least_loaded"])),
        "prefill_inflight_cap": float(rng.choice([np.nan, np.nan, 1.0])),
        "link.gb_per_s": log_real(rng, 1.0, 400.0),
        "link.kv_bytes_per_token": log_real(rng, 2e4, 4e5),
        "link.latency_ms": float(rng.choice([0.0, log_real(rng, 0.1, 10.0)])),
        "link.max_transfers_per_worker": float(rng.choice([np.nan, np.nan, log_int(rng, 1, 8)])),
        "link.transfer_start": str(rng.choice(["last_chunk", "last_chunk", "each_chunk"])),
        **timing,
    }
    row |= a_pool(rng, "prefill", prefill, isl, 1, clients) | a_pool(rng, "decode", decode, isl, osl, clients)
    return row


def a_pool(rng: Any, pool: str, backend: str, isl: int, osl: int, clients: int) -> dict[str, Any]:
    """An engine with a budget, seats, and half of the time KV that holds fewer than all clients."""
    budget, seats = log_int(rng, 512, 16384), log_int(rng, 4, 256)
    names = ENGINE[backend]
    options: dict[str, Any] = {"backend": backend, names[0]: max(budget, seats), names[1]: seats}
    if rng.integers(2):
        name, unit = KV[backend]
        held = log_int(rng, 2, max(2, clients))
        reserve = 512 if backend == "sglang" and pool == "decode" else 0
        tokens = held * (isl + max(osl, reserve) + 2 * 64)
        options[name] = tokens // unit + 2
    if backend == "sglang" and pool == "prefill":
        options["enable_mixed_chunk"] = bool(rng.integers(2))
    return {f"{pool}.{name}": value for name, value in options.items()}


def truth_apart(frame: pd.DataFrame) -> pd.DataFrame:
    """The evaluator's columns of every row."""
    found = pc.sweep(frame, None, a_model, top=None, executor="serial").sort_index()
    assert len(found) == len(frame), found.attrs["counts"]
    return found.drop(columns=list(frame.columns))


def report_apart(count: int, seed: int) -> str:
    """Markdown: errors by what binds, what is contained, and the rate."""
    frame = draw_apart(count, seed)
    found, true = pc.screen(frame), truth_apart(frame)
    return "\n\n".join(
        (
            f"{count} random candidates (`python -m tools.screening --apart {count} --seed {seed}`, as drawn in `tools/screening/apart.py`: three engines on each "
            "side, 1-5 workers each, links of 1-400 GB/s, 1-256 clients, isl 64-8192, osl 2-512, KV that binds in half of the pools), by what binds according "
            "to the evaluator. Relative errors in percent, median and 95th percentile.",
            composed_table(found, true),
            containment_line(frame, found, true),
            apart_rate_line(seed),
        )
    )


def composed_table(found: pd.DataFrame, true: pd.DataFrame) -> str:
    """Median and 95th percentile of errors, in percent, over all and by what binds."""
    error = pd.DataFrame({name: (found[name] / true[name] - 1.0).abs() for name in COMPOSED})
    head = " | ".join(f"{short} p50 | p95" for short in COMPOSED.values())
    lines = [f"| binds | n | {head} | named so |", "|---|---|" + "---|" * (2 * len(COMPOSED) + 1)]
    groups = [("all", true.index), *((str(name), rows.index) for name, rows in true.groupby("binding"))]
    for name, index in groups:
        cells = [f"{100 * error.loc[index, figure].quantile(q):.1f}" for figure in COMPOSED for q in (0.5, 0.95)]
        named = (found.loc[index, "binding"].astype(str) == true.loc[index, "binding"]).mean()
        lines.append(f"| {name} | {len(index)} | {' | '.join(cells)} | {named:.0%} |")
    return "\n".join(lines)


def containment_line(frame: pd.DataFrame, found: pd.DataFrame, true: pd.DataFrame) -> str:
    """How often the lower bound of the bracket holds, and bounds on throughput."""
    low, high, p99 = found["ttft_steady_p99_lo"], found["ttft_steady_p99_hi"], true["ttft_steady_p99"]
    columns = {name: [None if value is None or value != value else value for value in frame[name]] for name in frame}
    bounds = bounds_of(frame, read_points(columns, None, a_model), None)
    served = true["throughput_rps"] / bounds.most_per_s
    return (
        f"Of {len(frame)} brackets {int((p99 < low * (1 - 1e-9)).sum())} do not hold the evaluator's p99; the upper end is infinite in {(high == np.inf).mean():.0%}, "
        f"the lower one is at the median {(low / p99).median():.0%} of the p99. {int((served > 1).sum())} throughputs are above their bound; the median one is "
        f"{served.median():.0%} of it."
    )


def apart_rate_line(seed: int, count: int = 500_000) -> str:
    """Candidates a second with all columns built, by the processor's clock."""
    frame = draw_apart(2000, seed).sample(count, replace=True, random_state=0, ignore_index=True)
    pc.screen(frame[:100])
    start = time.process_time()
    pc.screen(frame)
    used = time.process_time() - start
    return f"{count / used:,.0f} candidates a second on one core, all columns read and built ({count:,} rows of {len(frame.columns)} columns)."
