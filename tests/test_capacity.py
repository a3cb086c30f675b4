"""The largest load that keeps service levels: known by hand, known by theory, and where load and latency do not go together."""

import math
from typing import Any

import pytest

import passcal as pc
from tests.worlds import CLOCK

SEATS = pc.Vllm(max_num_seqs=1024, max_num_batched_tokens=8192)
ROWS_COST = pc.LinearTiming(prefill=(0.0,), decode=(8.0, 0.05))  # a pass of C rows takes 8 + 0.05 C ms
LOOP = pc.Workload.closed_loop(isl=1, osl=20)
TTFT = pc.Sla("ttft", 0.99, 500)
ONE_SEAT = pc.Vllm(max_num_seqs=1, async_scheduling=False)
SERVER = pc.LinearTiming((10.0, 0.1), (1.0,))  # 20 ms for 100 tokens
QUEUE = pc.Workload.open_loop(isl=100, osl=1, rate_per_s=1.0)


@pytest.mark.parametrize(("limit", "clients"), [(8.04, 0), (8.051, 1), (8.11, 2), (12.501, 90), (20.001, 240)])
@pytest.mark.parametrize("level", ["mean", 0.5, 1.0])
def test_gaps_by_hand(limit: float, clients: int, level: Any):
    """Clients of equal requests in step: every gap is a pass of all of them, 8 + 0.05 C."""
    found = pc.capacity(SEATS, ROWS_COST, sla=pc.Sla("itl", level, limit), workload=LOOP)
    assert (found.unit, found.load, found.violated_load) == ("clients", clients, clients + 1)
    assert found.binds == pc.Sla("itl", level, limit)
    if clients:
        assert found.report is not None and found.report.itl_ms.mean == pytest.approx(8 + 0.05 * clients)
    else:
        assert found.report is None and "8.05 at load 1 is the least" in found.reason


def test_the_limit_itself_is_kept():
    exact = pc.evaluate_closed_loop(LOOP.model_copy(update={"concurrency": 64}), SEATS, ROWS_COST).itl_ms.mean
    assert pc.capacity(SEATS, ROWS_COST, sla=pc.Sla("itl", "mean", exact), workload=LOOP).load == 64


def test_the_tightest_of_several_binds():
    """The first prompt's pass takes 0.5 C: 40 ms allow 80 clients, gaps of 20 ms allow 240."""
    timing = pc.LinearTiming(prefill=(0.0, 0.5), decode=(8.0, 0.05))
    levels = [pc.Sla("itl", 0.5, 20.001), pc.Sla("ttft", 1.0, 40.001)]
    found = pc.capacity(SEATS, timing, sla=levels, workload=LOOP)
    assert (found.load, found.violated_load, found.binds) == (80, 81, levels[1])


@pytest.mark.slow
def test_theory_md1():
    """Pollaczek and Khinchine: the mean wait is rho S / (2 (1 - rho)), so 20 ms for S = 20 allow rho = 2/3."""
    found = pc.capacity(ONE_SEAT, SERVER, sla=pc.Sla("queue", "mean", 20), workload=QUEUE, checks=0)
    assert found.unit == "rate" and found.load == pytest.approx(1000 * (2 / 3) / 20, rel=0.03)
    assert found.violated_load == pytest.approx(found.load * 1.01)


@pytest.mark.slow
def test_theory_dd1():
    """Arrivals in step never wait below capacity: 50 requests/s, less a step."""
    steady = pc.Workload.open_loop(100, 1, 1.0, arrivals="constant")
    found = pc.capacity(ONE_SEAT, SERVER, sla=pc.Sla("queue", 1.0, 1e-6), workload=steady, checks=0)
    assert found.load == pytest.approx(50 / 1.01, rel=1e-6)
    assert found.binds is None and found.violated_load is None and "grows without end" in found.notes[0]


@pytest.mark.slow
@pytest.mark.parametrize("tolerance", [0.1, 0.02])
def test_rates_are_as_sharp_as_asked(tolerance: float):
    sla = pc.Sla("queue", "mean", 20)
    found = pc.capacity(ONE_SEAT, SERVER, sla=sla, workload=QUEUE, tolerance=tolerance, checks=0)
    assert found.violated_load == pytest.approx(found.load * (1 + tolerance))


@pytest.mark.slow
def test_a_rate_of_closed_loop_lengths_is_poisson():
    """And clients of an open loop's lengths are a closed loop; the arrival plane goes along."""
    sla = pc.Sla("ttft", "mean", 60)
    plane = {"turnaround_ms": 3.0, "ingest_us_per_token": 7.0}
    closed, open_ = (
        pc.Workload.closed_loop(100, 1, 7, **plane),
        pc.Workload.open_loop(100, 1, 2.0, **plane),
    )
    for unit in ("clients", "rate"):
        one, other = (
            pc.capacity(
                ONE_SEAT, SERVER, sla=sla, workload=w, unit=unit, checks=2, tolerance=0.1 if unit == "rate" else None
            )
            for w in (closed, open_)
        )
        assert one.points().equals(other.points()) and one.load == other.load > 0


def test_where_nothing_is_violated_the_largest_load_is_named():
    found = pc.capacity(SEATS, ROWS_COST, sla=pc.Sla("itl", 0.5, 1000), workload=LOOP, most=100)
    assert (found.load, found.violated_load, found.binds) == (100, None, None)
    assert found.notes == ("most=100: the largest load asked about keeps the latencies; raise most to ask about more",)
    rated = pc.capacity(ONE_SEAT, SERVER, sla=TTFT, workload=QUEUE, most=10, checks=0)
    assert rated.load == 10 and rated.notes[0].startswith("most=10")


def uneven(batch: int, context: float) -> float:
    """Passes of five rows are slow, as a kernel may be that has no plan for their number."""
    return 30.0 if batch == 5 else 1.0 + batch


def test_a_dip_is_reported_with_both_points():
    """5 clients violate, 6 to 19 keep it: the answer is below the first violation."""
    timing = pc.PhaseTiming(prefill_ms=lambda *_: 0.0, decode_ms=uneven, pure=True)
    sla = pc.Sla("itl", "mean", 20)
    found = pc.capacity(SEATS, timing, sla=sla, workload=LOOP, most=64)
    assert (found.load, found.violated_load, found.binds) == (4, 5, sla)
    assert found.notes == (
        "not monotone: load 5 violates itl:mean<=20 with 30, 19 keeps it with 20; the answer is below the first violation",
    )
    assert pc.capacity(SEATS, timing, sla=sla, workload=LOOP, most=64, checks=0).load == 19


def test_cohorts_of_a_real_calendar_are_not_monotone():
    """Three clients of 4096 tokens do not fit two a pass; four do."""
    loop = pc.Workload.closed_loop(4096, 64)
    found = pc.capacity(pc.Vllm(), CLOCK, sla=pc.Sla("ttft", 1.0, 200), workload=loop, most=8)
    assert found.load == 2 and found.notes[0].startswith("not monotone: load 3 violates")


def test_floors_are_looked_at_below_the_most_that_keeps_latencies():
    """A pass of C rows takes C^2 ms: throughput falls as 1 / C, so a floor caps the load too, and binds."""
    timing = pc.PhaseTiming(prefill_ms=lambda *_: 0.0, decode_ms=lambda rows, _: float(rows**2), pure=True)
    four = pc.evaluate_closed_loop(LOOP.model_copy(update={"concurrency": 4}), SEATS, timing)
    levels = [pc.Sla("itl", "mean", 150), pc.Floor("throughput_rps", four.throughput_per_s * 0.99)]
    found = pc.capacity(SEATS, timing, sla=levels, workload=LOOP, most=64)
    assert (found.load, found.violated_load, found.binds) == (4, 5, levels[1])


@pytest.mark.parametrize("metric", ["throughput_rps", "output_tokens_per_s", "output_tokens_per_s_per_gpu"])
def test_a_floor_out_of_reach_is_infeasible(metric: str):
    floor = pc.Floor(metric, 1e9)
    found = pc.capacity(SEATS, ROWS_COST, sla=[pc.Sla("itl", "mean", 10.001), floor], workload=LOOP, most=64)
    assert (found.load, found.report, found.violated_load, found.binds) == (0, None, 40, floor)
    assert "load 40 is the most that keeps the latencies; nothing is feasible" in found.reason


def test_a_latency_that_nobody_had_is_kept():
    """Outputs of one token have no gaps."""
    found = pc.capacity(SEATS, ROWS_COST, sla=pc.Sla("itl", 0.99, 0), workload=pc.Workload.closed_loop(1, 1), most=3)
    assert found.load == 3 and math.isnan(found.tried[0].figures[0])


def test_points_are_all_that_was_tried():
    levels = [pc.Sla("itl", "mean", 10.001), pc.Floor("throughput_rps", 1)]
    seen: list[Any] = []
    found = pc.capacity(SEATS, ROWS_COST, sla=levels, workload=LOOP, most=64, on_point=seen.append)
    frame = found.points()
    latest = {point.load: point for point in seen}
    assert set(latest.values()) == set(found.tried) and len(frame) == len(latest) == len(set(frame.load))
    assert frame.load.is_monotonic_increasing
    assert list(frame) == [
        "load",
        "throughput_rps",
        "itl:mean<=10.001",
        "throughput_rps>=1",
        "ttft_p99_half_width_ms",
        "kept",
        "violated",
        "queueing_tier",
    ]
    assert (frame.kept == (frame.load <= 40)).all()
    assert set(frame.violated[~frame.kept]) == {"itl:mean<=10.001"}


@pytest.mark.slow
def test_a_percentile_that_is_not_sure_is_told():
    """The step between rates is finer than what p99 is known to."""
    found = pc.capacity(ONE_SEAT, SERVER, sla=pc.Sla("ttft", 0.99, 100), workload=QUEUE, checks=0)
    assert "so the answer is no sharper" in found.notes[-1]


def test_start_and_stop_are_those_of_evaluate():
    loop = pc.Workload.closed_loop(512, 128)
    engine, sla = pc.Vllm(max_num_batched_tokens=2048), pc.Sla("ttft", "mean", 30)
    found = pc.capacity(engine, CLOCK, sla=sla, workload=loop, most=8, start="spread", phases=1)
    spread = pc.evaluate_closed_loop(loop.model_copy(update={"concurrency": 2}), engine, CLOCK, start="spread")
    assert found.tried[1].load == 2 and found.tried[1].figures[0] == spread.ttft_ms.mean
    window = pc.capacity(engine, CLOCK, sla=sla, workload=loop, most=2, stop=pc.Window(requests=50))
    assert window.report is not None and window.report.window.kind == "window"


REFUSED: dict[str, dict[str, Any]] = {
    "sla: there must be at least one": {"sla": []},
    "sla='ttft:p99<=5'": {"sla": ["ttft:p99<=5"]},
    "deployment=str": {"deployment": "vllm"},
    "workload=Replay": {"workload": pc.Workload.replay([(0, 8, 2)])},
    "horizon_requests": {"workload": pc.Workload.open_loop(8, 2, 1.0, horizon_requests=5)},
    "unit='users'": {"unit": "users"},
    "unit='rate': stagger_ms": {"unit": "rate", "workload": pc.Workload.closed_loop(8, 2, stagger_ms=1.0)},
    "unit='rate': requests": {"unit": "rate", "workload": pc.Workload.closed_loop(8, 2, requests=9)},
    "unit='clients': arrivals": {
        "unit": "clients",
        "workload": pc.Workload.open_loop(8, 2, 1.0, arrivals="constant"),
    },
    "tolerance=0.1: is of rates": {"tolerance": 0.1},
    "tolerance=0": {"unit": "rate", "tolerance": 0},
    "most=0": {"most": 0},
    "most=2.5": {"most": 2.5},
    "most=-1": {"unit": "rate", "most": -1},
    "checks=-1": {"checks": -1},
    "start='late'": {"start": "late"},
    "start='spread'": {"unit": "rate", "start": "spread"},
    "passes cost nothing": {"unit": "rate", "timing": pc.LinearTiming((0.0,), (0.0,))},
}


@pytest.mark.parametrize("said", REFUSED)
def test_refusals(said: str):
    asked: dict[str, Any] = {"deployment": SEATS, "timing": ROWS_COST, "sla": TTFT, "workload": LOOP} | REFUSED[said]
    with pytest.raises(pc.SpecError) as caught:
        pc.capacity(asked.pop("deployment"), asked.pop("timing"), **asked)
    assert said in str(caught.value) and len(str(caught.value)) < 200
