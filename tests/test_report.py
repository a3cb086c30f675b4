"""What a report says beyond its numbers: names, what binds, and other views."""

import math
from typing import Any

import pandas as pd
import pytest

import passcal as pc
from passcal.columns import COLUMNS, PASS_COLUMNS, REQUEST_COLUMNS
from tests.worlds import CLOCK

AICONFIGURATOR = {
    *(f"ttft_steady_{name}" for name in ("mean", "p50", "p75", "p90", "p95", "p99", "p999", "p99_lo", "p99_hi")),
    *("ttft_transient_mean", "ttft_transient_max", "itl_mean", "itl_p50", "itl_p99", "queueing_tier"),
}


def loop(concurrency: int = 8, isl: int = 900, osl: int = 40, **engine: Any) -> pc.Report:
    """Clients in a closed loop."""
    return pc.evaluate_closed_loop(pc.Workload.closed_loop(isl, osl, concurrency), pc.Vllm(**engine), CLOCK)


def test_column_names_are_a_contract():
    columns = loop().to_columns()
    assert tuple(columns) == COLUMNS
    assert set(columns) >= AICONFIGURATOR
    assert len(AICONFIGURATOR) == 15
    for metric in ("tpot", "e2e", "queue"):
        assert {f"{metric}_{q}" for q in ("mean", "p50", "p75", "p90", "p95", "p99", "p999")} <= set(columns)
    assert all(isinstance(value, float | int | str) for value in columns.values())


def test_columns_are_the_reports_numbers():
    report = loop()
    columns = report.to_columns()
    for metric, distribution in (("ttft_steady", report.ttft_ms), ("e2e", report.e2e_ms), ("queue", report.queue_ms)):
        assert columns[f"{metric}_mean"] == distribution.mean
        for name, level in {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}.items():
            assert columns[f"{metric}_{name}"] == distribution.quantile(level)
    assert columns["throughput_rps"] == report.throughput_per_s
    assert columns["window_kind"] == report.window.kind


def test_frames():
    report = loop()
    assert tuple(report.requests().columns) == REQUEST_COLUMNS
    assert tuple(report.passes().columns) == PASS_COLUMNS
    assert pd.concat([pd.DataFrame([loop(c).to_columns()]) for c in (1, 2)]).shape == (2, len(COLUMNS))


def test_one_token_outputs_have_no_gaps():
    report = pc.evaluate_replay(pc.Workload.replay([(0.0, 9, 1), (5.0, 9, 1)]), pc.Vllm(), CLOCK)
    assert report.itl_ms.count == report.tpot_ms.count == 0
    assert math.isnan(report.to_columns()["tpot_p99"])


@pytest.mark.parametrize(
    ("workload", "tier"),
    [
        (pc.Workload.closed_loop(9, 2, 3), "W0"),
        (pc.Workload.closed_loop(shapes=[(9, 2), (9, 2)], concurrency=3), "W0"),
        (pc.Workload.closed_loop(shapes=[(9, 2), (10, 2)], concurrency=3), "W2"),
        (pc.Workload.replay([(0.0, 9, 2)]), "W3"),
        (pc.Workload.replay([(0.0, 9, 2)], max_concurrency=1), "W3"),
        (pc.Workload.sessions([[pc.Turn(9, 2)]]), "W4"),
    ],
)
def test_the_traffic_tier_is_named(workload: Any, tier: str):
    assert pc.evaluate(workload, pc.Vllm(), CLOCK).fidelity == tier


@pytest.mark.parametrize("lookahead", [False, True])
def test_passes_of_several_workers_stand_by_start(lookahead: bool):
    """Though the log is in order of launches, and has one row for a plan that stands."""
    rows = [(71.0 * k, 40 + 17 * k % 300, 5 + 31 * k % 90) for k in range(60)]
    deployed = pc.Aggregated(pc.Vllm(async_scheduling=lookahead), replicas=3)
    report = pc.evaluate(pc.Workload.replay(rows), deployed, CLOCK)
    passes = report.passes()
    assert passes.equals(passes.sort_values(["start_ms", "engine"], kind="stable", ignore_index=True))
    for _, own in passes.groupby("engine"):
        assert (own["start_ms"].to_numpy()[1:] >= own["end_ms"].to_numpy()[:-1]).all()
    assert passes["decode_requests"].sum() == (report.requests()["osl"] - 1).sum()


def test_it_prints():
    assert "req/s" in repr(loop())
