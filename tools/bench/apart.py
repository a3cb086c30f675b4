"""Prefill and decode apart: an operating point from numbers to columns, and a mixture over phases against one of them."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import passcal as pc
from tools.bench.figures import Figure
from tools.bench.stopwatch import median_seconds

__all__ = ["apart"]

POINTS = (("5P3D", 5, 3, 50.0), ("2P1D at 1 GB/s", 2, 1, 1.0))  # workers, and what a link carries (GB/s)
LOOP = {"isl": 4096, "osl": 256, "concurrency": 252}
KV_BYTES = 131072  # a token of llama-3.1-8b in 16 bits


def apart(quick: bool) -> Iterator[Figure]:
    """Limits: 15 ms a point, and four times a point for four phases."""
    for name, prefill, decode, gb_per_s in POINTS:
        link = pc.Link(gb_per_s=gb_per_s, kv_bytes_per_token=KV_BYTES)
        pools = pc.Disaggregated(
            prefill=pc.Vllm(), decode=pc.Vllm(), prefill_workers=prefill, decode_workers=decode, link=link
        )
        ask = partial(answer, pools)
        wall, thread = median_seconds(ask, 5 if quick else 40)
        note = f"252 clients, 4096/256, {ask()['window_kind']}; specs, run, report and columns"
        yield Figure(name, 1e3 * wall, "ms", 15.0, cpu=1e3 * thread, note=note)
        if name == "5P3D":
            four, four_thread = median_seconds(partial(ask, phases=4), 3 if quick else 15)
            yield Figure(f"{name}, phases=4", four / wall, "times", 4.0, cpu=four_thread / thread, note="of one phase")


def answer(pools: pc.Disaggregated, phases: int = 1) -> dict[str, Any]:
    """The columns of an evaluation."""
    return pc.evaluate(pc.Workload.closed_loop(**LOOP), pools, pc.LinearTiming(), phases=phases).to_columns()
