"""One function a figure. What lies beside the checkout is used where it is there, else what is committed."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import passcal as pc
from passcal.sources.readers import read_azure
from tools.bench.apart import apart
from tools.bench.figures import Figure
from tools.bench.pressure import pressure
from tools.bench.stopwatch import median_seconds
from tools.conformance.adapters import asked
from tools.conformance.recordings import default_files, kinds, read
from tools.oracle import simulate

__all__ = ["REQUESTS", "all_figures", "azure_trace", "million"]

ROOT = Path(__file__).resolve().parents[2]
FULL_TRACE = ROOT.parent / "shared" / "data" / "traces" / "azure_llm_2023_conv.csv"
TRACE = ROOT / "examples" / "data" / "azure_conv_2000.csv"
REQUESTS = 1_000_000


def all_figures(quick: bool = False) -> Iterator[Figure]:
    """Every figure but the million, in the order of the table."""
    yield from operating_points(quick)
    yield from open_loops(quick)
    yield from pressure(quick)
    yield from apart(quick)
    yield schedules(quick)
    yield trace(quick)
    yield oracle_ratio(quick)
    yield threads(quick)
    yield from fresh_processes()


def operating_points(quick: bool) -> Iterator[Figure]:
    """From numbers to columns: specs, limit cycle, report, every column."""
    for clients, seats, limit, repeats in ((32, 256, 1.0, 200), (128, 256, 15.0, 40), (512, 512, 15.0, 20)):

        def point(clients: int = clients, seats: int = seats) -> dict[str, Any]:
            loop = pc.Workload.closed_loop(isl=4096, osl=256, concurrency=clients)
            return pc.evaluate_closed_loop(loop, pc.Vllm(max_num_seqs=seats), pc.LinearTiming()).to_columns()

        wall, thread = median_seconds(point, 5 if quick else repeats)
        note = f"4096/256, {seats} seats, {point()['window_kind']}; specs, run, report and columns"
        yield Figure(f"{clients} clients", 1e3 * wall, "ms", limit, cpu=1e3 * thread, note=note)


def open_loops(quick: bool) -> Iterator[Figure]:
    """From a rate to TTFT percentiles and TPOT, capacity included."""
    engine, timing = pc.Vllm(), pc.LinearTiming()
    ask = lambda rate: pc.evaluate_open_loop(pc.Workload.open_loop(4096, 256, rate), engine, timing)  # noqa: E731
    capacity = ask(0.1).capacity_per_s
    for load in (0.5, 0.7, 0.85):

        def point(load: float = load) -> pc.Report:
            report = ask(load * capacity)
            report.ttft_ms.quantiles((0.5, 0.9, 0.99))
            report.tpot_ms.quantiles((0.5, 0.9, 0.99))
            return report

        wall, thread = median_seconds(point, 3 if quick else 15)
        note = f"4096/256, {point().window.requests:,} requests; capacity, run, report and percentiles"
        yield Figure(f"open loop, {load:.0%}", 1e3 * wall, "ms", 50, cpu=1e3 * thread, note=note)


def schedules(quick: bool) -> Figure:
    """Recorded schedules of vLLM, from specs to reports."""
    cases = [
        c
        for file in default_files()
        if file.name.startswith("vllm")
        for c in read(file)
        if "prefix cache" not in kinds(c)
    ]
    questions = [asked(case) for case in cases]
    passes = sum(len(case["passes"]["end_ms"]) for case in cases)
    wall, thread = median_seconds(lambda: [pc.evaluate(*question) for question in questions], 3 if quick else 15)
    note = f"{len(cases)} cases, {passes:,} passes, assembly included"
    return Figure("recorded schedules", passes / wall, "passes/s", 3e6, "above", passes / thread, note)


def azure_trace() -> Any:
    """The conversation trace as a frame: in full if it is there."""
    return read_azure(FULL_TRACE if FULL_TRACE.exists() else TRACE)


def trace(quick: bool) -> Figure:
    """A replay of the whole trace."""
    frame = azure_trace()
    replay = lambda: pc.evaluate_replay(pc.Workload.replay(frame), pc.Vllm(), pc.LinearTiming()).to_columns()  # noqa: E731
    wall, thread = median_seconds(replay, 2 if quick else 9)
    return Figure(
        "Azure trace", wall, "s", 0.5, cpu=thread, note=f"{len(frame):,} requests; specs, run, report and columns"
    )


def oracle_ratio(quick: bool) -> Figure:
    """The same finite closed loop by the oracle and by passcal."""
    requests = 256
    timing = pc.LinearTiming()
    scenario = {
        "name": "bench",
        "backend": "vllm",
        "engine": {"max_num_batched_tokens": 8192, "enable_prefix_caching": False},
        "workload": {"mode": "closed", "concurrency": 64, "requests": requests, "shapes": [[2048, 0, 256]]},
        "timing": {"kind": "linear", "prefill": [*timing.prefill], "decode": [*timing.decode], "combine": "sum"},
    }
    loop = pc.Workload.closed_loop(isl=2048, osl=256, concurrency=64, requests=requests)
    ours = partial(pc.evaluate_closed_loop, loop, pc.Vllm(enable_prefix_caching=False), timing)
    wall, thread = median_seconds(ours, 5 if quick else 50)
    other, other_thread = median_seconds(lambda: simulate(scenario), 1 if quick else 5)
    answer: Any = simulate(scenario)
    theirs = [request["token_ms"][-1] for request in answer["requests"]]
    apart = float(abs(ours().requests()["done_ms"] / theirs - 1).max())
    note = f"64 clients, {requests} requests of 2048/256; oracle {other:.3g} s, ours {1e3 * wall:.3g} ms; apart by {apart:.0e}"
    return Figure("oracle / ours", other / wall, "times", 500, "above", other_thread / thread, note)


def threads(quick: bool) -> Figure:
    """The kernel lets go of the interpreter's lock: two threads against one, on the same work.

    What the machine itself has to give at that moment is measured beside it, by a hash that lets go of the lock too.
    """
    shapes = [(1000 + 37 * k % 900, 100 + 7 * k % 90) for k in range(97)]
    loop = pc.Workload.closed_loop(shapes=shapes, concurrency=64, requests=60_000)
    engine, timing, block = (
        pc.Vllm(max_num_batched_tokens=2048, long_prefill_token_threshold=1024),
        pc.LinearTiming(),
        bytes(2**25),
    )
    evaluate = partial(pc.evaluate_closed_loop, loop, engine, timing)
    repeats = 2 if quick else 9
    (one, two), machine = gain(evaluate, repeats), gain(lambda: sha256(block).digest(), repeats)
    note = f"4 runs of 60,000 requests: {one:.3g} s and {two:.3g} s; a hash gains {machine[0] / machine[1]:.2f} here and now"
    return Figure("two threads", one / two, "times", 1.7, "above", note=note)


def gain(run: Callable[[], Any], repeats: int) -> tuple[float, float]:
    """Wall seconds of four runs in one thread and in two, taken in turn; the best of each, since others may be at work."""
    with ThreadPoolExecutor(1) as single, ThreadPoolExecutor(2) as pair:
        spent: dict[ThreadPoolExecutor, list[float]] = {single: [], pair: []}
        for _ in range(1 + repeats):
            for pool, walls in spent.items():
                walls.append(four(run, pool))
        return min(spent[single][1:]), min(spent[pair][1:])


def four(run: Callable[[], Any], pool: ThreadPoolExecutor) -> float:
    """Wall seconds of four runs in a pool."""
    started = time.perf_counter()
    for future in [pool.submit(run) for _ in range(4)]:
        future.result()
    return time.perf_counter() - started


def fresh_processes() -> Iterator[Figure]:
    """Processes with an empty cache folder, then with the one that was filled."""
    with tempfile.TemporaryDirectory() as folder:
        cold, cold_cpu, _ = child("point", PASSCAL_CACHE_DIR=folder)
        warm, warm_cpu, _ = sorted(
            (child("point", PASSCAL_CACHE_DIR=folder) for _ in range(5)), key=lambda run: run[0]
        )[2]
    yield Figure(
        "cold process", cold, "s", 20, cpu=cold_cpu, note="empty cache folder: import, compile everything, first answer"
    )
    yield Figure("warm process", warm, "s", 1.5, cpu=warm_cpu, note="process start to first answer, import included")


def million(requests: int = REQUESTS) -> Iterator[Figure]:
    """A long replay at the trace's rate, in a process of its own for its peak memory."""
    *_, answer = child("million", str(requests))
    note = f"{requests:,} requests at {answer['rate_per_s']:.3g}/s, {answer['passes']:,} passes, {answer['run_s']:.3g} s to run"
    yield Figure("long replay, peak", answer["peak_gb"], "GB", 1.5, note=note)
    yield Figure("long replay", answer["total_s"], "s", note="specs, run, report and columns")


def child(*arguments: str, **environment: str) -> tuple[float, float, dict[str, Any]]:
    """Wall and processor seconds of `python -m tools.bench.child` with these arguments, and what it printed."""
    before, started = os.times(), time.perf_counter()
    command = [sys.executable, "-m", "tools.bench.child", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True)
    wall, after = time.perf_counter() - started, os.times()
    cpu = after.children_user - before.children_user + after.children_system - before.children_system
    return wall, cpu, json.loads(done.stdout)
