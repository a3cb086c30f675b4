"""Queueing theory against open loops: single servers, bulk service, no load, and Little's law."""

import math
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.drift import half_width
from passcal.traffic import dealt
from tests.theory.test_queueing import ONE_SEAT, SERVER, SERVICE_MS
from tests.worlds import CLOCK

OPEN, L = pc.Workload.open_loop, pc.Lengths


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.6, 0.8, 0.9])
def test_md1(load: float):
    """Pollaczek and Khinchine: rho S / (2 (1 - rho)), inside the stated half-width, which is below 12%."""
    workload = OPEN(100, 1, 1000 * load / SERVICE_MS)
    report = pc.evaluate_open_loop(workload, ONE_SEAT, SERVER, stop=pc.Window(requests=150_000))
    expected = load * SERVICE_MS / (2 * (1 - load))
    assert report.capacity_per_s == pytest.approx(1000 / SERVICE_MS)
    assert abs(report.queue_ms.mean - expected) <= report.window.half_width_ms < 0.12 * expected
    assert report.utilisation == pytest.approx(load, rel=0.003)


@pytest.mark.slow
def test_md1_percentiles():
    """The wait's law at load 0.7 (Erlang's series), at its quantiles: within 3%, which draws of this length would miss half of the time."""
    load = 0.7
    report = pc.evaluate_open_loop(
        OPEN(100, 1, 1000 * load / SERVICE_MS), ONE_SEAT, SERVER, stop=pc.Window(requests=150_000)
    )

    def below(wait: float) -> float:
        x = wait / SERVICE_MS
        terms = (
            (load * (k - x)) ** k / math.factorial(k) * math.exp(-load * (k - x)) for k in range(math.floor(x) + 1)
        )
        return (1 - load) * sum(terms)

    for share in (0.5, 0.9, 0.99):
        wait = report.queue_ms.quantile(share)
        assert below(wait * 0.97) < share < below(wait * 1.03)


@pytest.mark.slow
def test_an_exponential_server():
    """One seat, outputs of exponential length: the mean wait is lambda E[S^2] / (2 (1 - rho)) of the dealt services."""
    timing = pc.LinearTiming((0.0, 0.01), (0.2, 0.0, 0.0))
    law, seat = L.gamma(400, 1.0), ONE_SEAT
    osl = dealt(OPEN(100, law, 1.0).shapes, 100_000)["osl"]
    service = 1.0 + 0.2 * (osl - 1)
    rate = 0.7 / service.mean()
    report = pc.evaluate_open_loop(OPEN(100, law, 1000 * rate), seat, timing, stop=pc.Window(requests=150_000))
    expected = rate * (service**2).mean() / (2 * 0.3)
    assert expected == pytest.approx(0.7 * service.mean() / 0.3, rel=0.02)  # as in M/M/1
    assert abs(report.queue_ms.mean - expected) <= half_width(report.queue_ms.values) < 0.12 * expected
    assert report.fidelity == "W2"


@pytest.mark.parametrize("load", [0.2, 0.9, 0.999])
def test_dd1_nobody_waits(load: float):
    report = pc.evaluate_open_loop(OPEN(100, 1, 1000 * load / SERVICE_MS, arrivals="constant"), ONE_SEAT, SERVER)
    assert report.queue_ms.max < 1e-6
    assert report.ttft_ms.quantile(0.99) == pytest.approx(SERVICE_MS)
    assert report.window.half_width_ms < 1e-9
    assert report.window.p99_half_width_ms < 1e-6
    assert report.notes == ()


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 1.0, 4.0])
def test_bulk_service(load: float):
    """A server that takes whoever waits, S whatever their number: waits are what is left of a service, S / 2 while it is busy.

    It is idle for 1 / lambda after a service in which nobody came, which is one of e^(lambda S).
    """
    service = 50.0
    engine = pc.Vllm(max_num_batched_tokens=1 << 20, async_scheduling=False)
    workload = OPEN(10, 1, 1000 * load / service)
    report = pc.evaluate_open_loop(
        workload, engine, pc.LinearTiming((service,), (0.0,)), stop=pc.Window(requests=100_000)
    )
    busy = service / (service + math.exp(-load) * service / load)
    assert report.queue_ms.mean == pytest.approx(busy * service / 2, rel=0.01)
    assert report.utilisation == pytest.approx(busy, rel=0.01)


@pytest.mark.parametrize("engine", [pc.Vllm(), pc.Sglang(), pc.Trtllm()], ids=["vllm", "sglang", "trtllm"])
def test_without_load_every_request_is_alone(engine: Any):
    alone = pc.evaluate(pc.Workload.replay([(0.0, 700, 30)]), engine, CLOCK)
    report = pc.evaluate_open_loop(OPEN(700, 30, 1e-5), engine, CLOCK, stop=pc.Window(requests=500))
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "queue_ms"):
        for share in (0.0, 0.5, 1.0):
            assert getattr(report, name).quantile(share) == pytest.approx(getattr(alone, name).mean, abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.2, 0.6, 0.9])
@pytest.mark.parametrize("engine", [pc.Vllm(), pc.Sglang(), pc.Trtllm()], ids=["vllm", "sglang", "trtllm"])
def test_littles_law(engine: Any, load: float):
    """Requests in the system, counted by time from the log of passes and from the requests' own times, is rate times sojourn.

    Decode rows of passes are requests between their first and last token; a window's ends may cut a few of them.
    """
    workload = OPEN(L.lognormal(900, 0.8), L.lognormal(80, 0.8), 1.0)
    rate = load * pc.evaluate_open_loop(workload, engine, CLOCK, stop=pc.Window(requests=100)).capacity_per_s
    workload = workload.model_copy(update={"rate_per_s": rate})
    report = pc.evaluate_open_loop(workload, engine, CLOCK, stop=pc.Window(requests=20_000))
    start, length = report.window.start_ms, report.window.length_ms
    passes = report.passes()
    rows = float((passes["decode_requests"] * (passes["end_ms"] - passes["start_ms"])).sum()) / length
    decoding = report.e2e_ms.mean - report.ttft_ms.mean
    assert report.throughput_per_s == pytest.approx(rate, rel=0.01)
    if not isinstance(engine, pc.Sglang):  # whose prefill passes pause all rows
        assert rows == pytest.approx(report.throughput_per_s / 1000 * decoding, rel=0.02)
    frame = report.requests()
    inside = np.minimum(frame["done_ms"], start + length) - frame["dispatch_ms"]
    system = float(inside.sum()) / length
    assert system == pytest.approx(rate / 1000 * report.e2e_ms.mean, rel=0.02)
