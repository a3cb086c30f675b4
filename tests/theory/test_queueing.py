"""Results of queueing theory that the engine must show where it is a queue of one seat, and bounds that hold for any."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from passcal.drift import half_width
from tests.worlds import CLOCK

SERVICE_MS = 20.0  # 10 + 0.1 * 100
SERVER = pc.LinearTiming((10.0, 0.1), (1.0,))
ONE_SEAT = pc.Vllm(max_num_seqs=1, async_scheduling=False)


def queue(arrivals: np.ndarray, isl: np.ndarray | int = 100) -> pc.Report:
    """One-token outputs on one seat: a request is served in one pass of 10 + 0.1 isl ms."""
    ones = np.ones(len(arrivals), int)
    return pc.evaluate_replay(
        pc.Workload.replay({"dispatch_ms": arrivals, "isl": ones * isl, "osl": ones}), ONE_SEAT, SERVER
    )


def poisson(rate_per_ms: float, requests: int, seed: int) -> np.ndarray:
    """Arrivals of a seeded Poisson stream."""
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate_per_ms, requests))


def lindley(arrivals: np.ndarray, services: np.ndarray) -> np.ndarray:
    """Waits of a single server: what is left of the work before, less the gap."""
    waits, wait = np.zeros(len(arrivals)), 0.0
    for k in range(1, len(arrivals)):
        wait = max(0.0, wait + services[k - 1] - (arrivals[k] - arrivals[k - 1]))
        waits[k] = wait
    return waits


@pytest.mark.parametrize("load", [0.25, 0.9, 1.0])
def test_dd1_below_capacity_nobody_waits(load: float):
    report = queue(np.arange(500) * SERVICE_MS / load)
    assert report.queue_ms.max == 0
    np.testing.assert_allclose(report.ttft_ms.values, SERVICE_MS, rtol=1e-9)
    assert report.utilisation == pytest.approx(500 * load / (499 + load))


def test_dd1_above_capacity_waits_grow_linearly():
    report = queue(np.arange(500) * SERVICE_MS / 2)
    np.testing.assert_allclose(report.queue_ms.values, np.arange(500) * SERVICE_MS / 2)
    assert report.utilisation == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_md1_mean_wait(load: float):
    """Pollaczek and Khinchine: rho S / (2 (1 - rho)), within the run's own confidence interval and 5%."""
    report = queue(poisson(load / SERVICE_MS, 200_000, seed=11))
    expected = load * SERVICE_MS / (2 * (1 - load))
    half = half_width(report.queue_ms.values)
    assert abs(report.queue_ms.mean - expected) <= half < 0.05 * expected
    assert report.utilisation == pytest.approx(load, rel=0.01)


@pytest.mark.slow
def test_mg1_mean_wait():
    """Two lengths: lambda E[S^2] / (2 (1 - rho))."""
    isl = np.random.default_rng(5).choice([50, 400], 200_000)
    services = 10 + 0.1 * np.array([50, 400])
    rate = 0.7 / services.mean()
    report = queue(poisson(rate, len(isl), seed=12), isl)
    expected = rate * (services**2).mean() / (2 * 0.3)
    assert abs(report.queue_ms.mean - expected) <= half_width(report.queue_ms.values) < 0.05 * expected


def test_every_wait_is_lindleys():
    """Not only the mean: each wait of a random stream of random lengths."""
    isl = np.random.default_rng(2).integers(1, 500, 3000)
    arrivals = poisson(0.8 / 35, 3000, seed=3)
    np.testing.assert_allclose(queue(arrivals, isl).queue_ms.values, lindley(arrivals, 10 + 0.1 * isl), atol=1e-6)


@pytest.mark.slow
@given(st.integers(1, 600), st.integers(1, 40), st.integers(1, 24), st.booleans(), st.sampled_from([64, 1024]))
def test_closed_loop_bounds(isl: int, osl: int, clients: int, lookahead: bool, budget: int):
    """X <= min(C / least E2E, 1 / what a request costs an engine that shares its fixed costs with everybody)."""
    engine = pc.Vllm(async_scheduling=lookahead, max_num_batched_tokens=budget, max_num_seqs=32)
    x, alone = (
        pc.evaluate_closed_loop(
            pc.Workload.closed_loop(isl, osl, n), engine, CLOCK, stop=pc.LimitCycle(max_passes=20_000)
        )
        for n in (clients, 1)
    )
    (_, a1, *_), (_, d1, d2) = CLOCK.prefill, CLOCK.decode
    cost = a1 * isl + (osl - 1) * d1 + d2 * sum(range(isl + 1, isl + osl))
    bound = min(clients / alone.e2e_ms.mean, 1 / cost)
    slack = 1 + 1e-9 if x.window.kind == "cycle" else 1.02
    assert x.throughput_per_s / 1000 <= bound * slack
    assert x.e2e_ms.min >= alone.e2e_ms.min * (1 - 1e-9)


def test_one_client_by_hand():
    """300 tokens in chunks of 128, 128 and 44, then nine decode passes with growing context."""
    engine = pc.Vllm(max_num_batched_tokens=128, max_num_seqs=8)
    timing = pc.LinearTiming((5.0, 0.02, 1e-3), (8.0, 0.05, 2e-3))
    report = pc.evaluate_closed_loop(pc.Workload.closed_loop(300, 10, 1), engine, timing)
    prefill = 3 * 5 + 0.02 * 300 + 1e-3 * (128 * 128 + 44 * 256)
    decode = sum(8 + 0.05 + 2e-3 * context for context in range(301, 310))
    assert report.window.kind == "cycle"
    assert report.ttft_ms.mean == pytest.approx(prefill, rel=1e-12)
    assert report.e2e_ms.mean == pytest.approx(prefill + decode, rel=1e-12)
    assert [report.itl_ms.mean, report.tpot_ms.mean] == pytest.approx([decode / 9] * 2, rel=1e-12)
    assert report.throughput_per_s == pytest.approx(1000 / (prefill + decode), rel=1e-9)
    assert report.utilisation == pytest.approx(1)
    assert math.isclose(report.output_tokens_per_s, 10 * report.throughput_per_s)
