"""Candidates that are gone through until their cycle is met: every figure is the evaluator's."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from passcal.bounding import asked_of
from passcal.meets import figure
from passcal.screening.candidates import candidate_rows
from passcal.screening.cycles import cycles_of
from passcal.screening.screen import column_of
from passcal.screening.tables import columnwise
from tests.screening.odd import an_odd_candidate
from tools.screening.draw import EXTRA, draw, specs, truth
from tools.screening.table import ranks

TARGETS = (
    *(
        pc.Sla(metric, level, 1)
        for metric in ("ttft", "e2e", "tpot", "queue", "itl")
        for level in ("mean", 0.37, 0.99, 1)
    ),
    pc.Floor("throughput_rps", 1),
    pc.Floor("output_tokens_per_s", 1),
)
MEASURED = [  # columns of the closed form that a cycle has
    name
    for metric in ("ttft_steady", "e2e", "tpot", "queue")
    for name in (f"{metric}_{level}" for level in ("mean", "p50", "p75", "p90", "p95", "p99", "p999"))
] + ["itl_mean", "itl_p50", "itl_p99", "ttft_transient_mean", "ttft_transient_max", "throughput_rps", "output_tokens_per_s"]  # fmt: skip


def rows_of(frame):
    """`CANDIDATE` rows."""
    own = frame.drop(columns=[*EXTRA])
    return candidate_rows({name: column_of(own[name]) for name in own}, None, None)


def evaluated(frame, targets):
    """What the evaluator says of targets, a row a candidate."""
    reports = (pc.evaluate_closed_loop(*asked) for asked in specs(frame))
    return np.array([[figure(report, target) for target in targets] for report in reports])


@pytest.mark.slow
@settings(deadline=None, max_examples=40)
@given(st.integers(0, 2**32 - 1))
def test_what_is_met_is_the_evaluators(seed):
    """Of all engines and timings, clients that think and clients that outnumber seats: any quantile of any latency, and rates."""
    frame = draw(10, seed)
    found = cycles_of(rows_of(frame), asked_of(TARGETS))
    met = ~np.isnan(found[:, 0])
    assert met.mean() > 0.7
    true = evaluated(frame[met], TARGETS)
    np.testing.assert_allclose(found[met][:, 2:], true, rtol=1e-8, atol=1e-8)
    assert found[met][:, 0] == pytest.approx(true[:, -2], rel=1e-9)


@pytest.mark.slow
def test_odd_candidates_that_are_met_are_the_evaluators():
    """Instants that coincide, KV that just holds all, one token a pass: what is claimed is so, and most is claimed."""
    rng = np.random.default_rng(2)
    asked, met = 0, 0
    for _ in range(1500):
        workload, options, timing = an_odd_candidate(rng)
        columns = {name: column_of(pd.Series([value])) for name, value in options.items()}
        try:
            engine = pc.engine(options.pop("backend"), **options)
            rows = candidate_rows(columns, workload, timing)
        except (pc.SpecError, pc.Unsupported):
            continue
        if not rows["covered"][0]:  # passes that cost nothing
            continue
        found = cycles_of(rows, asked_of(TARGETS))[0]
        asked += 1
        if found[0] == found[0]:
            met += 1
            report = pc.evaluate_closed_loop(workload, engine, timing)
            true = [figure(report, target) for target in TARGETS]
            np.testing.assert_allclose(found[2:], true, rtol=1e-7, atol=1e-7, err_msg=f"{workload} {engine} {timing}")
    assert asked > 1200 and met > 0.85 * asked


@pytest.mark.slow
def test_screens_that_go_far_enough_are_evaluations():
    """Every column, the bracket closed around the p99."""
    frame = draw(400, 77)
    found, true = pc.screen(frame.drop(columns=[*EXTRA]), steps=20_000), truth(frame)
    width = found["ttft_steady_p99_hi"] / found["ttft_steady_p99_lo"]
    met = width < 1.00001
    assert met.mean() > 0.98
    for name in MEASURED:
        np.testing.assert_allclose(found.loc[met, name], true.loc[met, name], rtol=1e-8, atol=1e-8, err_msg=name)
    assert (true["ttft_steady_p99"] >= found["ttft_steady_p99_lo"] * (1 - 1e-9)).all()
    assert (true["ttft_steady_p99"] <= found["ttft_steady_p99_hi"] * (1 + 1e-9)).all()


@pytest.mark.slow
def test_engines_come_in_the_evaluators_order_where_they_are_gone_through():

    frame = draw(480, 11, per_workload=80)
    table = ranks(pc.screen(frame.drop(columns=[*EXTRA]), steps=20_000), truth(frame), frame["workload"])
    assert (table["throughput_rps"].dropna() >= 0.99).all() and (table["ttft_steady_p99"].dropna() >= 0.99).all()


def test_steps_only_decide_what_is_met():
    """What some steps change of the closed form, no further steps change."""
    frame = draw(150, 3).drop(columns=[*EXTRA])
    far, near, never = (pc.screen(frame, steps=steps)[MEASURED] for steps in (5000, 200, 0))
    changed = (near.fillna(0) != never.fillna(0)).any(axis=1)
    assert 0.3 < changed.mean() < 1
    pd.testing.assert_frame_equal(far[changed], near[changed], check_exact=True)


def test_runs_of_passes_that_overlap_are_told_apart():
    """A prompt's chunks beside rows whose contexts grow: gaps of several runs, against the evaluator's."""
    timing = pc.LinearTiming(prefill=(5.0, 0.01, 1e-6, 0.0), decode=(4.0, 0.2, 1e-4), combine="max")
    workload = pc.Workload.closed_loop(isl=900, osl=64, concurrency=6, turnaround_ms=40.0)
    engine = pc.Vllm(max_num_batched_tokens=300, max_num_seqs=4, async_scheduling=False)
    report = pc.evaluate_closed_loop(workload, engine, timing)
    found = pc.screen(
        [{"backend": "vllm", **engine.model_dump(exclude_unset=True)}], workload, timing, steps=5000
    ).iloc[0]
    for name, level in (("itl_p50", 0.5), ("itl_p99", 0.99)):
        assert found[name] == pytest.approx(report.itl_ms.quantile(level), rel=1e-9)


@pytest.mark.parametrize("steps", [-1, 2.5, True, "many"])
def test_steps_are_a_whole_number(steps):
    with pytest.raises(pc.SpecError, match="steps"):
        pc.screen(
            [{"backend": "vllm"}],
            pc.Workload.closed_loop(64, 8, 1),
            pc.LinearTiming((1.0, 0.1), (1.0, 0.1)),
            steps=steps,
        )


def test_memory_that_binds_is_not_met():
    """The closed form lets in as many as KV holds: a guess, of which no cycle is believed."""
    workload = pc.Workload.closed_loop(isl=512, osl=64, concurrency=32)
    timing = pc.LinearTiming(prefill=(5.0, 0.02), decode=(8.0, 0.05))
    row = [{"backend": "vllm", "num_gpu_blocks": 200}]
    found = pc.screen(row, workload, timing, steps=5000).iloc[0]
    assert found["regime"] == "kv" and found["ttft_steady_p99_hi"] == np.inf and found["ttft_steady_p99_lo"] == 0


@pytest.mark.parametrize("count", [0, 1, 7, 8, 15, 16, 1000, 16384])
def test_columns_are_contiguous_and_lie_apart(count):
    out = columnwise(count)
    assert len(out) == count
    assert out.strides[0] == 8 and out.strides[1] % 128 == 64 and out.strides[1] > 8 * count
