"""Open loops: exact where hardly anybody comes, near the evaluator's window elsewhere, without a bound above."""

import numpy as np
import pytest

import passcal as pc

TIMING = pc.LinearTiming(prefill=(5.0, 0.02), decode=(8.0, 0.05, 2e-6), combine="shared")
BACKENDS = [
    {"backend": "vllm"},
    {"backend": "sglang", "chunked_prefill_size": 1024},
    {"backend": "sglang", "enable_mixed_chunk": True},
    {"backend": "trtllm", "overlap_scheduler": False},
]


def capacity(options):
    crowd = pc.Workload.closed_loop(isl=800, osl=40, concurrency=512)
    return pc.screen([options], crowd, TIMING)["throughput_rps"][0]


@pytest.mark.parametrize("options", BACKENDS, ids=str)
def test_a_lone_request_meets_an_idle_engine(options):
    row = pc.screen([options], pc.Workload.open_loop(isl=800, osl=40, rate_per_s=1e-6, turnaround_ms=3.0), TIMING).iloc[
        0
    ]
    alone = pc.evaluate_closed_loop(
        pc.Workload.closed_loop(isl=800, osl=40, concurrency=1, turnaround_ms=3.0),
        pc.engine(**options),
        TIMING,
    )
    assert row["regime"] == "open"
    assert row["ttft_steady_mean"] == pytest.approx(alone.ttft_ms.mean, rel=1e-4)
    assert row["ttft_steady_p99_lo"] == pytest.approx(alone.ttft_ms.mean, rel=1e-6)
    assert row["ttft_steady_p99_hi"] == np.inf
    assert row["tpot_mean"] == pytest.approx(alone.tpot_ms.mean, rel=1e-4)


@pytest.mark.parametrize("options", BACKENDS, ids=str)
def test_above_capacity_the_queue_grows(options):
    rate = 1.01 * capacity(options)
    row = pc.screen([options], pc.Workload.open_loop(isl=800, osl=40, rate_per_s=rate), TIMING).iloc[0]
    assert (row["regime"], row["binding"]) == ("overload", "budget")
    assert row["ttft_steady_mean"] == np.inf
    assert row["throughput_rps"] < rate


@pytest.mark.slow
@pytest.mark.parametrize("options", BACKENDS, ids=str)
@pytest.mark.parametrize("load", [0.2, 0.5])
def test_means_are_near_the_evaluators(options, load):
    workload = pc.Workload.open_loop(isl=800, osl=40, rate_per_s=load * capacity(options))
    report = pc.evaluate_open_loop(workload, pc.engine(**options), TIMING)
    row = pc.screen([options], workload, TIMING).iloc[0]
    assert row["ttft_steady_mean"] == pytest.approx(report.ttft_ms.mean, rel=0.35)
    assert row["tpot_mean"] == pytest.approx(report.tpot_ms.mean, rel=0.25)
    assert report.ttft_ms.quantile(0.99) >= row["ttft_steady_p99_lo"]
