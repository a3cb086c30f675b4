"""TTFT moved onto Little's identity: the identity, the limits, and what is said about trust."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from tests.worlds import CLOCK

VARIED = pc.Workload.closed_loop(shapes=[(40 + 97 * k % 611, 2 + 31 * k % 47) for k in range(50)], concurrency=12)
FIXED = pc.Workload.closed_loop(900, 40, 8, turnaround_ms=30.0)
ENGINE = pc.Vllm(max_num_batched_tokens=512)


@pytest.mark.parametrize("workload", [FIXED, VARIED], ids=["fixed", "varied"])
def test_the_runs_own_figures_move_nothing(workload: pc.Workload):
    """With the calendar's throughput and pooled gap the identity holds already, the turnaround inside E2E."""
    report = pc.evaluate(workload, ENGINE, CLOCK)
    found = report.anchored(throughput_per_s=report.throughput_per_s, tpot_ms=report.itl_ms.mean)
    assert found.shift_ms == pytest.approx(0, abs=1e-6 * found.e2e_mean_ms)
    assert found.e2e_mean_ms == pytest.approx(report.e2e_ms.mean)


@given(st.floats(0.7, 1.1), st.floats(0.8, 1.05))
def test_the_identity_holds_and_the_shape_is_kept(faster: float, slower: float):
    report = pc.evaluate(FIXED, ENGINE, CLOCK)
    throughput, tpot = report.throughput_per_s * faster, report.tpot_ms.mean * slower
    found = report.anchored(throughput_per_s=throughput, tpot_ms=tpot)
    assert 1000 * 8 / throughput == pytest.approx(found.ttft_ms.mean + 39 * tpot)
    for level in (0.0, 0.5, 0.99):
        assert found.ttft_ms.quantile(level) - report.ttft_ms.quantile(level) == pytest.approx(found.shift_ms)


def test_it_says_how_much_an_error_weighs():
    report = pc.evaluate(FIXED, ENGINE, CLOCK)
    base, more = (
        report.anchored(throughput_per_s=report.throughput_per_s, tpot_ms=report.tpot_ms.mean * k) for k in (1, 1.01)
    )
    assert base.ttft_ms.mean - more.ttft_ms.mean == pytest.approx(base.ms_per_tpot_percent)
    assert f"1% of TPOT is {base.ms_per_tpot_percent:.3g} ms" in base.notes[0]
    assert all(len(note) < 200 for note in base.notes)


def test_a_spread_that_does_not_fit_is_named():
    report = pc.evaluate(VARIED, ENGINE, CLOCK)
    low = report.anchored(throughput_per_s=report.throughput_per_s, tpot_ms=report.itl_ms.mean * 1.12)
    assert low.ttft_ms.min < 0 < low.ttft_ms.mean
    assert "lie below 0" in low.notes[1]


def test_figures_that_contradict_each_other_are_refused():
    report = pc.evaluate(FIXED, ENGINE, CLOCK)
    with pytest.raises(pc.SpecError, match="no time is left for a first token") as caught:
        report.anchored(throughput_per_s=report.throughput_per_s, tpot_ms=report.tpot_ms.mean * 2)
    assert len(str(caught.value)) < 200
    for wrong in (0, -1, float("nan"), float("inf"), True, "8"):
        with pytest.raises(pc.SpecError, match="tpot_ms="):
            report.anchored(throughput_per_s=5.0, tpot_ms=wrong)  # type: ignore[arg-type]


def test_it_is_for_clients_that_go_on():
    for report in (
        pc.evaluate(pc.Workload.replay([(0.0, 9, 2)]), ENGINE, CLOCK),
        pc.evaluate(FIXED, ENGINE, CLOCK).benchmark(50),
    ):
        with pytest.raises(pc.SpecError, match="clients that go on for ever"):
            report.anchored(throughput_per_s=5.0, tpot_ms=8.0)
