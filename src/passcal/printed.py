"""What `vllm bench serve`, GuideLLM and aiperf would print of a benchmark, by their own names and definitions (B1-B7).

All three leave out what passcal has no notion of: failed requests, time series, server metrics.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from passcal import samples
from passcal.definitions import messages
from passcal.distribution import Distribution

if TYPE_CHECKING:
    from passcal.benchmark import Benchmark

__all__ = ["aiperf", "guidellm", "vllm"]

GUIDELLM_PERCENTILES = {
    f"p{digits}": float(f"0.{digits}")
    for digits in ("001", "01", "05", "10", "25", "50", "75", "90", "95", "99", "999")
}
AIPERF_PERCENTILES = {f"p{level}": level / 100 for level in (1, 5, 10, 25, 50, 75, 90, 95, 99)}


def vllm(run: Benchmark, percentiles: Iterable[float] = (99,)) -> dict[str, float]:
    """The summary of `vllm bench serve`, by the keys of its result file.

    Percentiles lie on a line between order statistics; ITL are gaps between messages; a metric without values is 0. TTFT and E2E count from
    dispatch; where a client's queue was modelled, `client_queue_time` and `e2el_including_client_queue` are beside them.
    """
    tokens, requests = by_second(run)
    figures: dict[str, float] = {
        "duration": run.duration_ms / 1000,
        "completed": len(run.noted),
        "total_input_tokens": int(run.noted["isl"].sum()),
        "total_output_tokens": int(run.osl.sum()),
        "request_throughput": run.throughput_per_s,
        "output_throughput": run.output_tokens_per_s,
        "total_token_throughput": run.total_tokens_per_s,
        "max_output_tokens_per_s": tokens,
        "max_concurrent_requests": requests,
    }
    e2e = samples.e2e(run.part)
    metrics = {"ttft": samples.ttft(run.part), "tpot": run.tpot_ms, "itl": run.chunk_itl_ms(), "e2el": e2e}
    if run.arrivals_ms is not None:
        queue = run.client_queue_ms
        metrics |= {"client_queue_time": queue, "e2el_including_client_queue": Distribution(e2e.values + queue.values)}
    levels = {f"p{level:g}": level / 100 for level in percentiles}
    for name, sample in metrics.items():
        median, *rest = sample.interpolated((0.5, *levels.values()))
        listed = {"mean": sample.mean, "median": median, "std": sample.std, **dict(zip(levels, rest, strict=True))}
        figures |= {f"{key}_{name}_ms": value if sample.count else 0.0 for key, value in listed.items()}
    return figures


def by_second(run: Benchmark) -> tuple[float, int]:
    """The most messages and the most requests that touch one second of the run, seconds counted from the first dispatch."""
    times, heads = run.token_times
    sent, first = messages(times, heads, 1)
    begin = run.window.start_ms
    apart = first | np.append(True, np.diff(times[sent]) > 0)  # tokens of one instant share a message
    streamed = np.bincount(((times[sent][apart] - begin) / 1000).astype(np.int64))
    since, until = (((run.noted[name] - begin) / 1000).astype(np.int64) for name in ("dispatch_ms", "done_ms"))
    seconds = int(until.max()) + 2
    out = np.cumsum(np.bincount(since, minlength=seconds) - np.bincount(until + 1, minlength=seconds))
    return float(streamed.max()), int(out.max())


def guidellm(run: Benchmark) -> dict[str, dict[str, float]]:
    """The metrics of GuideLLM's report, by its names; rates and concurrency by their means only.

    Percentiles are the left-continuous inverse, as everywhere in passcal but for rounding; a metric without values is 0. Time per output
    token has the TTFT in it and is weighted by osl; inter-token latency is a request's mean and is weighted by osl - 1, so its mean is the
    pooled one. Request latency is in seconds.
    """
    long = run.osl > 1
    e2e = samples.e2e(run.part)
    metrics = {
        "request_latency": Distribution(e2e.values / 1000),
        "time_to_first_token_ms": samples.ttft(run.part),
        "time_per_output_token_ms": Distribution(e2e.values / run.osl, run.osl),
        "inter_token_latency_ms": Distribution(run.tpot_ms.values, run.osl[long] - 1),
        "prompt_token_count": Distribution(run.noted["isl"]),
        "output_token_count": Distribution(run.osl),
    }
    if run.arrivals_ms is not None:
        metrics["request_scheduled_latency"] = Distribution((e2e.values + run.client_queue_ms.values) / 1000)
    rates = {
        "requests_per_second": run.throughput_per_s,
        "output_tokens_per_second": run.output_tokens_per_s,
        "tokens_per_second": run.total_tokens_per_s,
        "request_concurrency": run.concurrency,
    }
    found = {name: {"mean": value} for name, value in rates.items()}
    for name, sample in metrics.items():
        listed = {"mean": sample.mean, "std_dev": sample.std, "min": sample.min, "max": sample.max}
        listed |= dict(zip(GUIDELLM_PERCENTILES, by_shares(sample, list(GUIDELLM_PERCENTILES.values())), strict=True))
        listed["median"] = listed["p50"]
        found[name] = listed if sample.count else dict.fromkeys(listed, 0.0)
    return found


def by_shares(sample: Distribution, levels: list[float]) -> list[float]:
    """Quantiles as GuideLLM finds them: shares are added up one by one.

    With 200 requests the 99th percentile stands exactly on a step, and the rounding of that sum decides on which side, so it is repeated here.
    """
    if not sample.count:
        return [0.0] * len(levels)
    values, place = np.unique(sample.values, return_inverse=True)
    weights = np.bincount(place, sample.weights)
    found: list[float] = values[np.cumsum(weights / weights.sum()).searchsorted(levels)].tolist()
    return found


def aiperf(run: Benchmark) -> dict[str, dict[str, float]]:
    """The metrics of aiperf's export, by its names, latencies in milliseconds; totals and rates by `avg` only.

    Percentiles lie on a line between order statistics; those of `inter_chunk_latency`, which aiperf sketches, are exact here. A metric
    without values is absent.
    """
    ttft, e2e = samples.ttft(run.part), samples.e2e(run.part)
    spent = run.tpot_ms
    metrics = {
        "time_to_first_token": ttft,
        "inter_token_latency": spent,
        "inter_chunk_latency": run.chunk_itl_ms(),
        "request_latency": e2e,
        "output_token_throughput_per_user": Distribution(1000 / spent.values[spent.values > 0]),
        "e2e_output_token_throughput": Distribution(
            (1000 * run.osl / np.where(e2e.values > 0, e2e.values, np.nan))[e2e.values > 0]
        ),
        "output_sequence_length": Distribution(run.osl),
        "input_sequence_length": Distribution(run.noted["isl"]),
    }
    totals = {
        "request_count": float(len(run.noted)),
        "benchmark_duration": run.duration_ms / 1000,
        "request_throughput": run.throughput_per_s,
        "output_token_throughput": run.output_tokens_per_s,
        "total_token_throughput": run.total_tokens_per_s,
    }
    found = {name: {"avg": value} for name, value in totals.items()}
    for name, sample in metrics.items():
        if sample.count:
            found[name] = {"avg": sample.mean, "min": sample.min, "max": sample.max, "std": sample.std}
            found[name] |= dict(zip(AIPERF_PERCENTILES, sample.interpolated(AIPERF_PERCENTILES.values()), strict=True))
    return found
