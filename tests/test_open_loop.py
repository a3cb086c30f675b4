"""Open loops: against seeded random streams, at and above capacity, over a horizon, and what the report says of them."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

import passcal as pc
from passcal.columns import COLUMNS
from passcal.drift import p99_interval
from tests.test_bad_input import refused
from tests.worlds import CLOCK

OPEN, L = pc.Workload.open_loop, pc.Lengths
ENGINE = pc.Vllm(max_num_batched_tokens=8192)
TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
SMALL = pc.Vllm(max_num_batched_tokens=512, max_num_seqs=8)
SHORT = pc.Window(requests=400)
ASK = pc.evaluate_open_loop


def figures(report: pc.Report) -> np.ndarray:
    """TTFT mean, p50, p90, p99 and TPOT."""
    return np.array([report.ttft_ms.mean, *report.ttft_ms.quantiles((0.5, 0.9, 0.99)), report.tpot_ms.mean])


def capacity(workload: Any = None, engine: Any = SMALL, timing: Any = CLOCK) -> float:
    """Requests a second that an engine serves at most."""
    return ASK(workload or OPEN(300, 20, 1e-3), engine, timing, stop=SHORT).capacity_per_s


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.5, 0.7, 0.85])
def test_it_is_what_seeded_poisson_runs_show(load: float):
    """Twenty runs of 5,000 random requests: each figure within 5% of all together, or inside the runs' own 95% interval."""
    rate = load * capacity(OPEN(4096, 256, 1.0), ENGINE, TIMING)
    ones, runs, pool = np.ones(5000, int), [], []
    for seed in range(20):
        at = np.cumsum(np.random.default_rng(seed).exponential(1000 / rate, 5000))
        rows = {"dispatch_ms": at, "isl": 4096 * ones, "osl": 256 * ones}
        report = pc.evaluate_replay(pc.Workload.replay(rows), ENGINE, TIMING)
        runs.append(figures(report))
        pool.append(report.ttft_ms.values)
    spread = np.std(runs, axis=0, ddof=1) / 20**0.5 * stats.t.ppf(0.975, 19)
    together = np.concatenate(pool)
    pooled = np.array([together.mean(), *np.quantile(together, (0.5, 0.9, 0.99)), np.mean(runs, axis=0)[4]])
    found = figures(ASK(OPEN(4096, 256, rate), ENGINE, TIMING))
    close = np.abs(found / pooled - 1) <= 0.05
    inside = np.abs(found - np.mean(runs, axis=0)) <= spread
    assert (close | inside).all(), (found / pooled - 1, spread / pooled)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [pc.Vllm(), pc.Sglang(), pc.Trtllm()], ids=["vllm", "sglang", "trtllm"])
def test_lengths_of_a_law_are_what_seeded_draws_show(engine: Any):
    """Gamma lengths with a spread of their mean, at 0.7 of capacity, against ten seeded runs without their first 500 requests."""
    workload = OPEN(L.gamma(1500, 1.0), L.gamma(200, 1.0), 1.0)
    rate = 0.7 * capacity(workload, engine, TIMING)
    runs = []
    for seed in range(10):
        draws = np.random.default_rng(seed)
        columns = {"dispatch_ms": np.cumsum(draws.exponential(1000 / rate, 5000))}
        for name, mean in (("isl", 1500), ("osl", 200)):
            columns[name] = np.maximum(1, np.rint(draws.gamma(1, mean, 5000))).astype(int)
        report = pc.evaluate_replay(pc.Workload.replay(columns), engine, TIMING)
        ttft = report.ttft_ms.values[500:]
        runs.append([ttft.mean(), *np.quantile(ttft, (0.5, 0.9, 0.99)), report.tpot_ms.mean])
    found = figures(ASK(workload.model_copy(update={"rate_per_s": rate}), engine, TIMING))
    means, spread = np.mean(runs, axis=0), 2.26 * np.std(runs, axis=0, ddof=1) / 10**0.5
    assert (np.abs(found - means) <= np.maximum(0.05 * means, spread)).all(), found / means - 1


@pytest.mark.parametrize("over", [1.0, 1.001, 5.0])
def test_at_capacity_and_above_there_is_no_answer(over: float):
    most = capacity()
    refused(lambda: ASK(OPEN(300, 20, over * most), SMALL, CLOCK), "rate_per_s=", f"{most:.6g}", by=pc.Diverged)
    refused(lambda: ASK(OPEN(300, 20, over * most, arrivals="constant"), SMALL, CLOCK), "horizon", by=pc.Diverged)


def test_just_below_capacity_there_is_one():
    assert ASK(OPEN(300, 20, 0.98 * capacity()), SMALL, CLOCK, stop=SHORT).window.kind == "window"


@pytest.mark.slow
@pytest.mark.parametrize("engine", [SMALL, pc.Sglang(max_running_requests=8), pc.Trtllm(max_batch_size=8)])
@pytest.mark.parametrize("seed", [0, 1])
def test_random_traffic_is_served_below_capacity_and_not_above(engine: Any, seed: int):
    """Long runs of equal requests find the slow one of an engine's saturated cycles; a burst alone would put vLLM at a fifth more."""
    waits = []
    for load in (0.95, 1.1):
        at = np.cumsum(np.random.default_rng(seed).exponential(1000 / (load * capacity(engine=engine)), 120_000))
        ones = np.ones(len(at), int)
        rows = {"dispatch_ms": at, "isl": 300 * ones, "osl": 20 * ones}
        report = pc.evaluate_replay(pc.Workload.replay(rows), engine, CLOCK)
        waits.append([part.mean() for part in np.split(report.queue_ms.values, 4)])
    below, above = waits
    assert max(below) < 1000
    assert above[3] > 1.5 * above[1] > 3000


def test_capacity_counts_all_workers():
    two = pc.evaluate(OPEN(300, 20, 1.0), pc.Aggregated(SMALL, replicas=2), CLOCK, stop=SHORT)
    assert two.capacity_per_s == pytest.approx(2 * capacity(), rel=0.02)


def test_capacity_falls_with_memory():
    assert capacity(engine=pc.Vllm(max_num_seqs=8, num_gpu_blocks=50)) < 0.9 * capacity(engine=pc.Vllm(max_num_seqs=8))


def test_a_horizon_is_the_finite_run():
    """From an empty system, each of its requests as a replay of the same times would have it; and it says so."""
    report = ASK(OPEN(300, 20, 9.0, horizon_requests=150), SMALL, CLOCK)
    frame = report.requests()
    replay = pc.evaluate_replay(pc.Workload.replay(frame[["dispatch_ms", "isl", "osl"]]), SMALL, CLOCK)
    assert replay.requests().equals(frame)
    assert len(frame) == report.window.requests == 150
    assert report.window.half_width_ms == report.window.p99_half_width_ms == 0
    assert "figures are of these requests" in report.notes[0]
    assert "the queue grows" not in report.notes[0]


def test_above_capacity_a_horizon_is_flagged_and_matters():
    rate = 3 * capacity()
    short, long = (ASK(OPEN(300, 20, rate, horizon_requests=n), SMALL, CLOCK) for n in (200, 800))
    assert "the queue grows" in short.notes[0]
    assert long.ttft_ms.mean > 3 * short.ttft_ms.mean


@pytest.mark.parametrize("load", [0.5, 3.0])
def test_throughput_is_of_the_window_not_of_the_drain(load: float):
    """What left until the next request would come, over that time; the drain is longer, and does not count."""
    rate = load * capacity()
    report = ASK(OPEN(300, 20, rate, horizon_requests=500), SMALL, CLOCK)
    start, end = report.window.start_ms, report.window.start_ms + report.window.length_ms
    done = report.requests()["done_ms"]
    assert report.window.length_ms == pytest.approx(500_000 / rate, rel=0.02)
    assert report.throughput_per_s == pytest.approx(1000 * (done <= end).sum() / (end - start))
    assert done.max() > end


def test_arrivals_go_on_until_the_last_measured_request_is_done():
    """So the last requests of the window wait as those before them do."""
    report = ASK(OPEN(300, 20, 0.9 * capacity()), SMALL, CLOCK, stop=pc.Window(requests=8000))
    frame = report.requests()
    done = frame["done_ms"].max()
    assert report.passes()["end_ms"].max() <= report.window.start_ms + report.window.length_ms < done
    tpot = (frame["done_ms"] - frame["first_ms"]) / (frame["osl"] - 1)
    assert tpot.tail(4).mean() > 1.5 * report.tpot_ms.min  # a drain would leave them alone


@pytest.mark.slow
def test_the_window_has_half_widths():
    report = ASK(OPEN(300, 20, 0.5 * capacity()), SMALL, CLOCK)
    window, columns = report.window, report.to_columns()
    assert list(columns) == list(COLUMNS)
    assert (window.kind, columns["window_kind"], columns["fidelity"]) == ("window", "window", "W1")
    assert 0 < window.half_width_ms < 0.1 * report.ttft_ms.mean
    assert 0 < window.p99_half_width_ms <= 0.1 * report.ttft_ms.quantile(0.99)
    assert columns["ttft_steady_p99_hi"] - columns["ttft_steady_p99_lo"] == pytest.approx(2 * window.p99_half_width_ms)
    assert report.notes == ()


@pytest.mark.slow
def test_the_run_grows_until_p99_is_sure_or_says_that_it_is_not():
    workload = OPEN(300, 20, 0.6 * capacity())
    loose, tight = (ASK(workload, SMALL, CLOCK, tolerance=t) for t in (0.2, 0.04))
    assert tight.window.requests > loose.window.requests
    assert tight.window.p99_half_width_ms <= 0.04 * tight.ttft_ms.quantile(0.99)
    capped = ASK(workload, SMALL, CLOCK, stop=pc.Window(tolerance=0.01, max_requests=10_000))
    assert capped.window.requests <= 10_000
    assert any("less sure than tolerance=0.01" in note for note in capped.notes)


def test_a_closed_loops_window_grows_too():
    rows = [(40 + 97 * k % 611, 1 + 31 * k % 47) for k in range(211)]
    loop = pc.Workload.closed_loop(shapes=rows, concurrency=12)
    plain, sure = (pc.evaluate(loop, SMALL, CLOCK, stop=pc.Window(tolerance=t)) for t in (None, 0.005))
    assert sure.window.requests > plain.window.requests
    assert sure.window.p99_half_width_ms <= 0.005 * sure.ttft_ms.quantile(0.99)


def test_sizes_of_a_window_are_kept():
    workload = OPEN(300, 20, 0.5 * capacity())
    one, other = (ASK(workload, SMALL, CLOCK, stop=pc.Window(requests=n, warmup=w)) for n, w in ((300, 50), (301, 60)))
    assert (one.window.requests, other.window.requests) == (300, 301)
    assert (one.requests()["request"].iloc[0], other.requests()["request"].iloc[0]) == (50, 60)


def test_half_widths_of_p99_cover():
    """Of independent exponential values about 95 of 100 intervals hold the percentile; of few values it is not known."""
    draws = np.random.default_rng(5).exponential(1.0, (300, 4000))
    found = [p99_interval(row) for row in draws]
    covered = [abs(p99 - np.log(100)) <= half for p99, half in found]
    assert 0.88 <= np.mean(covered) <= 0.99
    assert p99_interval(draws[0, :99]) == (draws[0, :99].max(), float("inf"))
    assert p99_interval(np.full(500, 3.0)) == (3.0, 0.0)


def test_gaps_come_in_their_order():
    gaps = [10.0, 90.0, 0.0, 500.0]
    report = ASK(OPEN(30, 2, gaps_ms=gaps), SMALL, CLOCK, stop=pc.Window(requests=40, warmup=0))
    found = np.diff(report.requests()["dispatch_ms"])
    np.testing.assert_allclose(found, (gaps * 10)[1:], atol=1e-9)
    scaled = ASK(OPEN(30, 2, gaps_ms=gaps, rate_per_s=2.0), SMALL, CLOCK, stop=pc.Window(requests=40, warmup=0))
    np.testing.assert_allclose(np.diff(scaled.requests()["dispatch_ms"]), 500 / 150 * found, atol=1e-9)
    assert report.fidelity == "W3"


@pytest.mark.slow
def test_a_bursty_stream_waits_longer():
    rate = 0.6 * capacity()
    constant, poisson, bursty = (
        ASK(OPEN(300, 20, rate, **how), SMALL, CLOCK).queue_ms.mean
        for how in ({"arrivals": "constant"}, {}, {"arrivals": "gamma", "cv": 3.0})
    )
    assert 1.3 * constant < poisson < bursty / 1.5


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"arrivals": "gamma", "cv": 1.0}, {"arrivals": "poisson"}),
        ({"arrivals": "gamma", "cv": 0.0}, {"arrivals": "constant"}),
        ({"rate_per_s": None, "gaps_ms": [125.0]}, {"arrivals": "constant"}),
        ({"arrivals": "poisson"}, {}),
    ],
)
def test_kinds_of_arrivals_degenerate(one: dict[str, Any], other: dict[str, Any]):
    """Bit for bit."""
    first, second = (
        ASK(OPEN(300, 20, **{"rate_per_s": 8.0} | how), SMALL, CLOCK, stop=SHORT).requests() for how in (one, other)
    )
    assert first.equals(second)


def test_listed_shapes_come_in_their_order():
    rows = [(40, 2), (50, 3), (60, 10, 4)]
    frame = ASK(OPEN(shapes=rows, rate_per_s=1.0), SMALL, CLOCK, stop=pc.Window(requests=30, warmup=0)).requests()
    assert frame["isl"].tolist() == [40, 50, 60] * 10
    assert frame["prefix"].tolist() == [0, 0, 10] * 10


@pytest.mark.parametrize(
    ("workload", "tier"),
    [
        (OPEN(30, 2, 1.0), "W1"),
        (OPEN(shapes=[(30, 2)], rate_per_s=1.0), "W1"),
        (OPEN(L.uniform(20, 40), 2, 1.0), "W2"),
        (OPEN(shapes=[(30, 2), (31, 2)], rate_per_s=1.0), "W2"),
        (OPEN(shapes=L.joint([(30, 2), (31, 2)]), rate_per_s=1.0), "W3"),
        (OPEN(30, 2, gaps_ms=[100.0]), "W3"),
        (pc.Workload.closed_loop(L.uniform(20, 40), 2), "W2"),
        (pc.Workload.closed_loop(shapes=L.joint([(30, 2), (31, 2)])), "W3"),
    ],
)
def test_the_tier_is_named(workload: Any, tier: str):
    assert pc.evaluate(workload, SMALL, CLOCK).fidelity == tier


def test_laws_in_a_closed_loop_break_convoys():
    """Equal requests travel together; those of a law do not, and first tokens come sooner."""
    fixed, varied = (
        pc.evaluate_closed_loop(pc.Workload.closed_loop(isl, osl, 16), pc.Vllm(max_num_batched_tokens=2048), CLOCK)
        for isl, osl in ((512, 128), (L.gamma(512, 0.7), L.gamma(128, 0.7)))
    )
    assert varied.fidelity == "W2"
    assert varied.throughput_per_s == pytest.approx(fixed.throughput_per_s, rel=0.1)
    assert varied.ttft_ms.quantile(0.5) != pytest.approx(fixed.ttft_ms.quantile(0.5), rel=0.05)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: OPEN(30, 2), "rate_per_s is missing"),
        (lambda: OPEN(30, rate_per_s=1.0), "isl and osl are missing"),
        (lambda: OPEN(30, 2, 0.0), "rate_per_s=0.0"),
        (lambda: OPEN(30, 2, float("inf")), "rate_per_s=inf"),
        (lambda: OPEN(30, 2, "1"), "rate_per_s='1'"),
        (lambda: OPEN(30, 2, 1.0, arrivals="weibull"), "arrivals='weibull'"),
        (lambda: OPEN(30, 2, 1.0, arrivals="gamma"), "cv=None"),
        (lambda: OPEN(30, 2, 1.0, cv=2.0), "cv=2.0"),
        (lambda: OPEN(30, 2, 1.0, arrivals="gamma", cv=-1.0), "cv=-1.0"),
        (lambda: OPEN(30, 2, 1.0, arrivals="gaps"), "gaps_ms"),
        (lambda: OPEN(30, 2, arrivals="constant", gaps_ms=[1.0]), "gaps_ms"),
        (lambda: OPEN(30, 2, gaps_ms=[]), "at least one gap"),
        (lambda: OPEN(30, 2, gaps_ms=[0.0]), "mean above 0"),
        (lambda: OPEN(30, 2, gaps_ms=[1.0, -2.0]), "row 1"),
        (lambda: OPEN(30, 2, gaps_ms=[1.0, float("nan")]), "row 1"),
        (lambda: OPEN(30, 2, gaps_ms=["a"]), "must be numbers"),
        (lambda: OPEN(30, 2, gaps_ms=4.0), "must be numbers"),
        (lambda: OPEN(30, 2, 1.0, horizon_requests=0), "horizon_requests=0"),
        (lambda: pc.Window(tolerance=0.0), "tolerance=0.0"),
        (lambda: pc.Window(tolerance=1.0), "tolerance=1.0"),
        (lambda: pc.Window(tolerance=True), "tolerance=True"),
        (lambda: ASK(OPEN(30, 2, 1.0), SMALL, CLOCK, tolerance=2.0), "tolerance=2.0"),
        (lambda: ASK(OPEN(30, 2, 1.0), SMALL, CLOCK, tolerance=0.1, stop=SHORT), "both be given"),
        (lambda: ASK(pc.Workload.closed_loop(30, 2), SMALL, CLOCK), "must be an open loop"),
        (lambda: pc.evaluate(OPEN(30, 2, 1.0), SMALL, CLOCK, stop=pc.LimitCycle()), "stop=LimitCycle()"),
        (lambda: pc.evaluate(OPEN(30, 2, 1.0), SMALL, CLOCK, stop=pc.Drained()), "horizon_requests"),
        (lambda: ASK(OPEN(30, 2, 1.0, horizon_requests=9), SMALL, CLOCK, stop=SHORT), "horizon ends the run"),
        (lambda: pc.evaluate(OPEN(30, 2, 1.0), SMALL, CLOCK, start="spread"), "start='spread'"),
        (lambda: pc.evaluate(OPEN(30, 2, 1.0), SMALL, CLOCK, phases=2), "phases=2"),
        (lambda: pc.evaluate_closed_loop(OPEN(30, 2, 1.0), SMALL, CLOCK), "must be a closed loop"),  # type: ignore[arg-type]
    ],
)
def test_what_is_none_is_refused(ask: Any, words: str):
    refused(ask, words)


def test_a_benchmark_sends_so_many_and_waits_for_all():
    """The same requests as a horizon has, but the drain counts, as a tool's clock runs until the last answer is complete."""
    workload = OPEN(300, 20, 9.0)
    horizon = ASK(OPEN(300, 20, 9.0, horizon_requests=70), SMALL, CLOCK)
    found = ASK(workload, SMALL, CLOCK, stop=SHORT).benchmark(70)
    assert found.requests().equals(horizon.requests())
    assert found.window.kind == "drained"
    assert found.window.length_ms == found.requests()["done_ms"].max() - found.requests()["dispatch_ms"].min()
    assert found.fidelity == horizon.fidelity == "W1"


@pytest.mark.slow
def test_a_python_timing_model_is_asked():
    asked = pc.PhaseTiming(
        prefill_ms=lambda batch, isl, prefix: 5.0 + 0.02 * batch * (isl - prefix), decode_ms=lambda *_: 8.0
    )
    formula = pc.LinearTiming(prefill=(5.0, 0.02), decode=(8.0,))
    one, other = (ASK(OPEN(300, 20, 4.0), SMALL, timing, stop=SHORT) for timing in (asked, formula))
    assert one.ttft_ms.mean == pytest.approx(other.ttft_ms.mean)
    assert one.capacity_per_s == pytest.approx(other.capacity_per_s)
