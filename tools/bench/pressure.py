"""Figures of the kernel under load: KV that is short, KV that is merely counted, and every recorded schedule."""

import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import passcal as pc
from passcal.assemble import assemble
from passcal.machine import IdentitiesNeeded
from tools.bench.figures import Figure
from tools.bench.stopwatch import median_seconds
from tools.conformance.adapters import asked
from tools.conformance.recordings import default_files, kinds, read

__all__ = ["pressure"]

CLIENTS, ISL, OSL, BLOCK = 64, 512, 1024, 16
NEEDED = CLIENTS * -(-(ISL + OSL - 1) // BLOCK)  # blocks that all clients need together
SCHEDULERS = {
    "vllm": (300, 20_000),
    "sglang": (2_000, 2_000),
}  # passes a second that the engine's own scheduler ran at when recorded
SLICE = 2_000_000


def pressure(quick: bool = False) -> Iterator[Figure]:
    """All of them, in the order of the table."""
    for caching in (False, True):
        yield kv_tight(caching, 3 if quick else 15)
    yield counted_kv(5 if quick else 200)
    yield from recorded(1 if quick else 5)


def ask(blocks: int | None, caching: bool = False) -> dict[str, Any]:
    """From numbers to columns on vLLM with this many usable blocks."""
    engine = pc.Vllm(num_gpu_blocks=None if blocks is None else blocks + 1, enable_prefix_caching=caching)
    loop = pc.Workload.closed_loop(isl=ISL, osl=OSL, concurrency=CLIENTS)
    return pc.evaluate_closed_loop(loop, engine, pc.LinearTiming()).to_columns()


def kv_tight(caching: bool, repeats: int) -> Figure:
    """Sixty percent of the blocks that all clients need, so that sequences are preempted."""
    blocks = round(0.6 * NEEDED)
    point = partial(ask, blocks, caching)
    wall, thread = median_seconds(point, repeats)
    columns = point()
    note = f"{CLIENTS} clients {ISL}/{OSL}, {blocks} of {NEEDED} blocks; {columns['window_kind']}, {columns['preemptions']} preemptions"
    return Figure(f"KV tight, caching {'on' if caching else 'off'}", 1e3 * wall, "ms", 5.0, cpu=1e3 * thread, note=note)


def counted_kv(repeats: int) -> Figure:
    """A pool that never binds against no pool: what counting blocks costs."""
    (counted, counted_cpu), (free, free_cpu) = (
        median_seconds(partial(ask, blocks), repeats) for blocks in (100 * NEEDED, None)
    )
    note = f"{CLIENTS} clients {ISL}/{OSL}: {1e3 * counted:.3g} ms against {1e3 * free:.3g} ms"
    return Figure("KV that never binds", counted / free, "times", 1.2, cpu=counted_cpu / free_cpu, note=note)


def recorded(repeats: int) -> Iterator[Figure]:
    """The kernel over all recorded schedules: seconds in all, and passes a second against the engine's own scheduler."""
    everything = [case for file in default_files() for case in read(file)]
    by_engine = {name: [case for case in everything if kinds(case)[0] == name] for name in (*SCHEDULERS, "trtllm")}
    spent = {name: kernel_seconds(cases, repeats) for name, cases in by_engine.items()}
    wall, thread = (sum(seconds[column] for seconds in spent.values()) for column in (0, 1))
    yield Figure(
        "conformance suite", wall, "s", 3.0, cpu=thread, note=f"{len(everything)} recorded cases, kernel time, one core"
    )
    for name, (slow, fast) in SCHEDULERS.items():
        passes, (seconds, cpu) = sum(len(case["passes"]["end_ms"]) for case in by_engine[name]), spent[name]
        range_ = f"{slow:,} to {fast:,}" if slow < fast else f"{fast:,}"
        note = f"{passes / seconds:,.0f} passes/s, kernel time; its own scheduler {range_} when recorded, the faster is the base"
        yield Figure(
            f"kernel / {name}'s scheduler", passes / seconds / fast, "times", cpu=passes / cpu / fast, note=note
        )


def kernel_seconds(cases: list[Any], repeats: int) -> tuple[float, float]:
    """Wall and thread seconds that the kernel spends on these cases, the least of some repeats after a first one."""
    questions = [asked(case) for case in cases]
    runs = [[kernel_run(*question) for question in questions] for _ in range(1 + repeats)][1:]
    walls, threads = zip(*(map(sum, zip(*run, strict=True)) for run in runs), strict=True)
    return min(walls), min(threads)


def kernel_run(workload: Any, engine: Any, timing: pc.LinearTiming) -> tuple[float, float]:
    """Wall and thread seconds of the kernel alone, a run that has to begin again with identities included."""
    wall = thread = 0.0
    for identities in (False, True):
        machine = assemble(workload, pc.Aggregated(engine), timing, identities=identities)
        started, at = time.perf_counter(), time.thread_time()
        try:
            machine.advance(SLICE)
            again = False
        except IdentitiesNeeded:
            again = True
        wall += time.perf_counter() - started
        thread += time.thread_time() - at
        if not again:
            break
    return wall, thread
