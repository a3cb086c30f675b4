"""When a run has said enough, and what is said about it."""

import math
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.drift import half_width, settled
from tests.worlds import CLOCK, World

LOOP = pc.Workload.closed_loop(900, 40, 8)
VARIED = pc.Workload.closed_loop(shapes=[(40 + 97 * k % 611, 1 + 31 * k % 47) for k in range(211)], concurrency=12)
ENGINE = pc.Vllm(max_num_batched_tokens=512)
JUST = pc.evaluate_closed_loop


def test_the_default_follows_the_workload():
    assert JUST(LOOP, ENGINE, CLOCK).window.kind == "cycle"
    assert JUST(pc.Workload.closed_loop(900, 40, 8, requests=20), ENGINE, CLOCK).window.kind == "drained"
    assert pc.evaluate(pc.Workload.replay([(0, 9, 2)]), ENGINE, CLOCK).window.kind == "drained"


def test_drained_is_every_request():
    window = JUST(pc.Workload.closed_loop(900, 40, 8, requests=20), ENGINE, CLOCK).window
    assert (window.requests, window.start_ms, window.half_width_ms) == (20, 0, 0)


def test_a_cycle_is_exact():
    report = JUST(LOOP, ENGINE, CLOCK)
    assert report.window.half_width_ms == 0
    assert report.to_columns()["ttft_steady_p99_lo"] == report.to_columns()["ttft_steady_p99_hi"]


def test_where_no_cycle_is_found_a_window_says_so():
    report = JUST(VARIED, ENGINE, CLOCK, stop=pc.LimitCycle(max_passes=300))
    assert report.window.kind == "window"
    assert "no limit cycle within 300 passes" in report.notes[0]
    assert report.window.half_width_ms > 0


def test_strict_refuses_a_window():
    with pytest.raises(pc.NotConverged, match="max_passes=300"):
        JUST(VARIED, ENGINE, CLOCK, stop=pc.LimitCycle(max_passes=300, strict=True))


@pytest.mark.parametrize("lookahead", [False, True])
def test_a_jump_lands_in_the_cycle_of_the_burst(lookahead: bool):
    """Where the start-up is long, a start from the predicted cohorts ends in the same cycle, sooner, and says so."""
    engine = pc.Vllm(async_scheduling=lookahead)
    waited, jumped = (
        JUST(pc.Workload.closed_loop(4096, 64, 16), engine, CLOCK, stop=pc.LimitCycle(jump_after=after))
        for after in (None, 200)
    )
    assert waited.window.kind == jumped.window.kind == "cycle"
    assert jumped.window.start_ms < waited.window.start_ms / 2
    assert any("longer than 200 passes" in note for note in jumped.notes)
    assert not waited.notes
    for name in ("ttft_ms", "itl_ms", "e2e_ms"):
        one, other = (np.sort(getattr(report, name).values) for report in (waited, jumped))
        np.testing.assert_allclose(one, other, rtol=1e-7)


@pytest.mark.parametrize(
    ("smaller", "larger"),
    [
        (pc.Window(requests=100), pc.Window(requests=101)),
        (pc.Window(requests=100, warmup=0), pc.Window(requests=100, warmup=500)),
    ],
)
def test_a_windows_sizes_matter(smaller: pc.Window, larger: pc.Window):
    one, other = (JUST(VARIED, ENGINE, CLOCK, stop=stop) for stop in (smaller, larger))
    assert one.window.requests == smaller.requests
    assert other.window.requests == larger.requests
    assert one.window != other.window
    assert other.requests()["request"].iloc[0] >= (larger.warmup or 0)


def test_a_window_grows_until_it_settles_or_may_not():
    """A long ramp drifts; how far the window may grow decides."""
    ramp = [(100 + 10 * k, 20) for k in range(4000)]
    drifting = pc.Workload.closed_loop(shapes=ramp, concurrency=4)
    engine = pc.Vllm(max_num_batched_tokens=65536)
    short, long = (JUST(drifting, engine, CLOCK, stop=pc.Window(max_requests=n)) for n in (2000, 9000))
    assert any("still drifts" in note for note in short.notes)
    assert long.window.requests > short.window.requests


def test_a_window_agrees_with_the_cycle():
    cycle, window = JUST(VARIED, ENGINE, CLOCK), JUST(VARIED, ENGINE, CLOCK, stop=pc.Window(requests=211 * 40))
    assert cycle.window.kind == "cycle"
    assert window.ttft_ms.mean == pytest.approx(cycle.ttft_ms.mean, abs=2 * window.window.half_width_ms + 1e-6)
    assert window.throughput_per_s == pytest.approx(cycle.throughput_per_s, rel=0.01)
    assert window.utilisation == pytest.approx(cycle.utilisation, rel=0.01)
    assert window.output_tokens_per_s == pytest.approx(cycle.output_tokens_per_s, rel=0.01)
    assert window.itl_ms.mean == pytest.approx(cycle.itl_ms.mean, rel=0.02)


def test_whoever_was_in_the_system_when_the_window_began_counts_when_it_leaves():
    """Many clients and a short window: throughput is that of the cycle, though most that leave were sent before."""
    loop = pc.Workload.closed_loop(100, 60, 64)
    cycle, window = (JUST(loop, pc.Vllm(), CLOCK, stop=stop) for stop in (pc.LimitCycle(), pc.Window(requests=192)))
    assert window.throughput_per_s == pytest.approx(cycle.throughput_per_s, rel=0.02)


@pytest.mark.parametrize(
    ("workload", "stop", "rule"),
    [
        (LOOP, pc.Drained(), "never drains"),
        (pc.Workload.closed_loop(9, 2, 1, requests=3), pc.LimitCycle(), "needs a closed loop without"),
        (pc.Workload.closed_loop(9, 2, 1, requests=3), pc.Window(), "needs a closed loop without"),
        (pc.Workload.replay([(0, 9, 2)]), pc.LimitCycle(), "needs a closed loop without"),
        (LOOP, "cycle", "must be LimitCycle"),
    ],
)
def test_a_stop_must_suit_the_workload(workload: Any, stop: Any, rule: str):
    with pytest.raises(pc.SpecError, match=rule):
        pc.evaluate(workload, ENGINE, CLOCK, stop=stop)


def test_a_benchmark_is_the_finite_run():
    """What a client that sends N requests measures, start-up and drain included."""
    report = JUST(LOOP, ENGINE, CLOCK)
    finite = JUST(pc.Workload.closed_loop(900, 40, 8, requests=50), ENGINE, CLOCK)
    assert report.benchmark(50).requests().equals(finite.requests())
    assert report.benchmark(50).window.kind == "drained"


@pytest.mark.parametrize("lookahead", [False, True])
def test_the_start_up_is_the_first_request_of_each_client(lookahead: bool):
    report = JUST(LOOP, pc.Vllm(max_num_batched_tokens=512, async_scheduling=lookahead), CLOCK)
    first = report.benchmark(8).requests()
    assert report.startup_ttft_ms.count == 8
    assert report.startup_ttft_ms.values.tolist() == pytest.approx((first["first_ms"] - first["dispatch_ms"]).tolist())
    columns = report.to_columns()
    assert columns["ttft_transient_max"] == report.startup_ttft_ms.max
    assert columns["ttft_transient_mean"] == report.startup_ttft_ms.mean


def test_half_widths_shrink_and_cover():
    """Batch means of independent normal values: about 95 of 100 intervals hold the mean."""
    draws = np.random.default_rng(7).normal(5.0, 1.0, (300, 2000))
    widths = np.array([half_width(row) for row in draws])
    covered = np.abs(draws.mean(axis=1) - 5) <= widths
    assert 0.91 <= covered.mean() <= 0.985
    assert np.median([half_width(row[:500]) for row in draws]) == pytest.approx(2 * np.median(widths), rel=0.15)
    assert math.isinf(half_width(np.array([1.0])))


def test_drift_is_seen():
    noise = np.random.default_rng(3).normal(0, 1, 4000)
    assert settled(noise) == (0, False)
    assert settled(noise + np.linspace(0, 3, 4000))[1]
    assert settled(noise + 5 * (np.arange(4000) < 800)) == (800, False)


@pytest.mark.parametrize("start", ["burst", "spread"])
def test_a_spread_start_staggers_by_one_interval(start: Any):
    report = World(True, {"shapes": [(512, 64)], "concurrency": 8}, {"async_scheduling": False}).ask(start=start)
    assert report.window.kind == "cycle"


def test_where_sequences_go_on_being_evicted_the_search_ends_early():
    """Such a run hardly ever closes a cycle; a strict search goes on to its limit."""
    tight = pc.Vllm(num_gpu_blocks=300, enable_prefix_caching=False)
    loop = pc.Workload.closed_loop(isl=100, osl=200, concurrency=32)
    report = pc.evaluate(loop, tight, pc.LinearTiming(), stop=pc.LimitCycle(jump_after=None))
    assert report.preemptions > 0
    assert report.window.kind == "cycle" or "go on being evicted" in report.notes[0]
