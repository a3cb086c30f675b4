"""A benchmark's eyes against plain loops over requests and token times, as the tools keep them."""

import math
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.benchmark import Benchmark
from tests.worlds import CLOCK

SHAPES = [(40 + 97 * k % 611, 1 + 31 * k % 47) for k in range(211)]
LOOP = pc.Workload.closed_loop(shapes=SHAPES, concurrency=12)
TRACE = pc.Workload.replay([(17.0 * k + 60 * (k % 5), *SHAPES[k]) for k in range(120)])
SPECULATING = pc.Vllm(speculation=pc.Speculation(drafts=3, accepted=1.6), max_num_batched_tokens=512)
ENGINES = {
    "budget": pc.Vllm(max_num_batched_tokens=512),
    "lookahead": pc.Vllm(max_num_batched_tokens=512, async_scheduling=True),
    "memory": pc.Vllm(max_num_batched_tokens=512, num_gpu_blocks=120),
    "drafts": SPECULATING,
    "pausing": pc.Sglang(chunked_prefill_size=512),
}
LEVELS = (1, 50, 90, 99, 99.9)


@pytest.fixture(params=ENGINES)
def report(request: pytest.FixtureRequest) -> pc.Report:
    return pc.evaluate_closed_loop(LOOP, ENGINES[request.param], CLOCK)


class Client:
    """What clients wrote down of the counted requests, one entry a request."""

    def __init__(self, report: pc.Report, warmup: int) -> None:
        table = report.requests()
        kept = table.iloc[warmup:]
        self.start, self.first, self.done = (kept[name].to_numpy() for name in ("dispatch_ms", "first_ms", "done_ms"))
        self.isl, self.osl = kept["isl"].to_numpy(), kept["osl"].to_numpy()
        self.tokens = [np.array(report.token_ms(number)) for number in kept["request"]]
        self.seconds = (self.done.max() - self.start.min()) / 1000
        self.ttft, self.e2e = self.first - self.start, self.done - self.start
        self.tpot = np.array(
            [(e - t) / (n - 1) for e, t, n in zip(self.e2e, self.ttft, self.osl, strict=True) if n > 1]
        )
        self.itl = np.concatenate([np.diff(one) for one in self.tokens])


@pytest.fixture(params=[0, 40], ids=["all", "warmed"])
def seen(request: pytest.FixtureRequest, report: pc.Report) -> tuple[Benchmark, Client]:
    """A benchmark of 200 requests, and its clients' notes."""
    return report.benchmark(200, warmup=request.param), Client(report.benchmark(200), request.param)


def test_latencies_are_of_the_counted_requests(seen: tuple[Benchmark, Client]):
    run, client = seen
    for found, wanted in (
        (run.ttft_ms, client.ttft),
        (run.e2e_ms, client.e2e),
        (run.tpot_ms, client.tpot),
        (run.itl_ms, client.itl),
        (run.chunk_itl_ms(), client.itl[client.itl > 0]),
    ):
        assert found.count == len(wanted)
        assert found.mean == pytest.approx(wanted.mean(), rel=1e-9)
        assert found.std == pytest.approx(wanted.std(), rel=1e-6, abs=1e-9)
    assert len(run.requests()) == run.window.requests == len(client.ttft)


def test_rates_are_over_first_dispatch_to_last_token(seen: tuple[Benchmark, Client]):
    run, client = seen
    assert run.duration_ms == pytest.approx(1000 * client.seconds)
    assert run.throughput_per_s == pytest.approx(len(client.ttft) / client.seconds)
    assert run.output_tokens_per_s == pytest.approx(client.osl.sum() / client.seconds)
    assert run.total_tokens_per_s == pytest.approx((client.isl.sum() + client.osl.sum()) / client.seconds)
    assert run.concurrency == pytest.approx(client.e2e.sum() / 1000 / client.seconds)
    assert run.utilisation <= 1 + 1e-9


def test_what_vllm_prints(seen: tuple[Benchmark, Client]):
    """numpy's percentiles; gaps between messages; seconds counted from the first dispatch."""
    run, client = seen
    found = run.vllm(LEVELS)
    samples = {"ttft": client.ttft, "tpot": client.tpot, "itl": client.itl[client.itl > 0], "e2el": client.e2e}
    for name, values in samples.items():
        wanted = {"mean": values.mean(), "median": np.median(values), "std": values.std()}
        wanted |= {f"p{level:g}": np.percentile(values, level) for level in LEVELS}
        for key, value in wanted.items():
            assert found[f"{key}_{name}_ms"] == pytest.approx(value, rel=1e-6), (key, name)
    assert found["total_input_tokens"] == client.isl.sum() and found["completed"] == len(client.isl)
    begin = client.start.min()
    messages = [((when - begin) // 1000) for one in client.tokens for when in np.unique(one)]
    assert found["max_output_tokens_per_s"] == max(messages.count(second) for second in set(messages))
    touched = [
        second
        for start, done in zip(client.start - begin, client.done - begin, strict=True)
        for second in range(int(start // 1000), int(done // 1000) + 1)
    ]
    assert found["max_concurrent_requests"] == max(touched.count(second) for second in set(touched))
    assert "mean_client_queue_time_ms" not in found


def steps(values: Any, weights: Any, level: float) -> float:
    """The first value at which the shares, added up one by one, reach the level."""
    total, upto = sum(weights), 0.0
    merged: dict[float, float] = {}
    for value, weight in zip(values, weights, strict=True):
        merged[value] = merged.get(value, 0.0) + weight
    for value in sorted(merged):
        upto += merged[value] / total
        if upto >= level and merged[value]:
            return float(value)
    raise AssertionError


def test_what_guidellm_prints(seen: tuple[Benchmark, Client]):
    """Weights: tokens for the time per output token, gaps for the inter-token latency; quantiles are measured values."""
    run, client = seen
    found, ones = run.guidellm(), np.ones(len(client.osl))
    with_first, gaps = client.e2e / client.osl, client.osl[client.osl > 1] - 1
    for name, values, weights in (
        ("time_to_first_token_ms", client.ttft, ones),
        ("request_latency", client.e2e / 1000, ones),
        ("time_per_output_token_ms", with_first, client.osl),
        ("inter_token_latency_ms", client.tpot, gaps),
    ):
        assert found[name]["mean"] == pytest.approx(np.average(values, weights=weights))
        assert found[name]["median"] == pytest.approx(steps(values, weights, 0.5))
        for key, level in (("p05", 0.05), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
            assert found[name][key] == pytest.approx(steps(values, weights, level)), (name, key)
    assert found["inter_token_latency_ms"]["mean"] == pytest.approx(client.itl.mean())
    assert found["requests_per_second"]["mean"] == pytest.approx(len(client.osl) / client.seconds)
    assert found["request_concurrency"]["mean"] == pytest.approx(run.concurrency)
    assert run.tpot_with_first_ms.mean == pytest.approx(client.e2e.sum() / client.osl.sum())


def test_what_aiperf_prints(seen: tuple[Benchmark, Client]):
    """ITL is one value a request and counts requests alike; gaps between messages stand beside it."""
    run, client = seen
    found = run.aiperf()
    for name, values in (
        ("time_to_first_token", client.ttft),
        ("inter_token_latency", client.tpot),
        ("inter_chunk_latency", client.itl[client.itl > 0]),
        ("request_latency", client.e2e),
        ("output_token_throughput_per_user", 1000 / client.tpot),
        ("e2e_output_token_throughput", 1000 * client.osl / client.e2e),
    ):
        wanted = {"avg": values.mean(), "std": values.std(), "min": values.min(), "max": values.max()}
        wanted |= {f"p{level}": np.percentile(values, level) for level in (1, 5, 10, 25, 50, 75, 90, 95, 99)}
        assert found[name] == pytest.approx(wanted, rel=1e-6)
    assert found["benchmark_duration"]["avg"] == pytest.approx(client.seconds)


def test_goodput(seen: tuple[Benchmark, Client]):
    """A request is good within all bounds; one-token outputs have no TPOT, and tools differ on them."""
    run, client = seen
    bounds = float(np.median(client.ttft)), float(np.median(client.tpot))
    spent = np.full(len(client.osl), math.nan)
    spent[client.osl > 1] = client.tpot
    for absent in (True, False):
        good = sum(
            t <= bounds[0] and (absent if math.isnan(p) else p <= bounds[1] * (1 + 1e-12))
            for t, p in zip(client.ttft, spent, strict=True)
        )
        asked = {"ttft_ms": bounds[0], "tpot_ms": bounds[1] * (1 + 1e-12), "without_tpot": absent}
        assert run.goodput_per_s(**asked) == pytest.approx(good / client.seconds)
    assert run.goodput_per_s(e2e_ms=client.e2e.max()) == pytest.approx(run.throughput_per_s)
    with pytest.raises(pc.SpecError, match="needs a bound"):
        run.goodput_per_s()


def test_chunks_of_several_tokens():
    run = pc.evaluate_closed_loop(LOOP, ENGINES["budget"], CLOCK).benchmark(60)
    wanted = []
    for number in range(60):
        times = run.token_ms(number)
        wanted += np.diff([t for k, t in enumerate(times) if k % 4 == 0 or k == len(times) - 1]).tolist()
    assert np.sort(run.chunk_itl_ms(4).values) == pytest.approx(np.sort(wanted))
    with pytest.raises(pc.SpecError, match="tokens_per_chunk=0"):
        run.chunk_itl_ms(0)


def test_a_replay_is_its_own_benchmark():
    report = pc.evaluate_replay(TRACE, ENGINES["budget"], CLOCK)
    assert report.benchmark().requests().equals(report.requests())
    run, client = report.benchmark(120, warmup=30), Client(report, 30)
    assert run.ttft_ms.mean == pytest.approx(client.ttft.mean())
    assert run.itl_ms.mean == pytest.approx(client.itl.mean())
    assert run.window.start_ms == client.start.min()
    with pytest.raises(pc.SpecError, match="this replay sends 120"):
        report.benchmark(50)


def test_a_limit_with_a_rate_keeps_requests_at_the_client():
    """As a replay whose client has the limit; TTFT counts from the send, or from when a request was due."""
    report = pc.evaluate_replay(TRACE, ENGINES["budget"], CLOCK)
    limited = pc.evaluate_replay(TRACE.model_copy(update={"max_concurrency": 3}), ENGINES["budget"], CLOCK)
    run = report.benchmark(max_concurrency=3)
    assert run.requests().equals(limited.requests()) and run.peak_concurrency == 3
    assert run.client_queue_ms.max > 0
    with_queue = report.benchmark(max_concurrency=3, include_client_queue=True)
    assert with_queue.ttft_ms.mean == pytest.approx(run.ttft_ms.mean + run.client_queue_ms.mean)


def test_an_open_loop_under_a_limit():
    """A benchmark at a rate above what the limit lets through becomes a closed loop of so many clients."""
    loop = pc.Workload.open_loop(isl=200, osl=20, rate_per_s=1.0)
    report = pc.evaluate_open_loop(loop, ENGINES["budget"], CLOCK)
    free, held = report.benchmark(200), report.benchmark(200, max_concurrency=1)
    assert held.peak_concurrency == 1 < free.peak_concurrency
    assert held.client_queue_ms.mean > 0 == free.client_queue_ms.max
    service = pc.evaluate_closed_loop(pc.Workload.closed_loop(isl=200, osl=20, concurrency=1), ENGINES["budget"], CLOCK)
    assert held.e2e_ms.quantile(0.5) == pytest.approx(service.e2e_ms.mean)


def test_nothing_to_say_of_one_token_outputs():
    """vLLM and GuideLLM print 0, aiperf prints nothing."""
    run = pc.evaluate_replay(pc.Workload.replay([(0.0, 9, 1), (5.0, 9, 1)]), pc.Vllm(), CLOCK).benchmark()
    assert run.vllm()["p99_tpot_ms"] == run.vllm()["mean_itl_ms"] == 0
    assert run.guidellm()["inter_token_latency_ms"]["p99"] == 0
    assert "inter_token_latency" not in run.aiperf()


def test_a_limit_that_is_never_reached_changes_nothing():
    """And one that would be reached belongs into the workload."""
    report = pc.evaluate_closed_loop(LOOP, ENGINES["budget"], CLOCK)
    assert report.benchmark(90).peak_concurrency == 12
    assert report.benchmark(90, max_concurrency=12).vllm() == report.benchmark(90).vllm()
    with pytest.raises(pc.SpecError, match=r"max_concurrency=11: this run has 12"):
        report.benchmark(90, max_concurrency=11)
    replayed = pc.evaluate_replay(TRACE, ENGINES["budget"], CLOCK).benchmark()
    table = replayed.requests()
    most = max(((table["dispatch_ms"] <= now) & (table["done_ms"] > now)).sum() for now in table["dispatch_ms"])
    assert replayed.peak_concurrency == most


def test_the_clients_queue_is_counted_or_not():
    """Requests that their client kept back: latencies count from dispatch, or from when they were due."""
    report = pc.evaluate_replay(TRACE, ENGINES["budget"], CLOCK)
    table = report.requests()
    waited = np.arange(120) % 7 * 3.0
    report.arrivals_ms = table["dispatch_ms"].to_numpy() - waited
    sent, due = (report.benchmark(warmup=20, include_client_queue=counted) for counted in (False, True))
    assert sent.client_queue_ms.values == pytest.approx(waited[20:])
    assert due.ttft_ms.values == pytest.approx(sent.ttft_ms.values + waited[20:])
    assert due.e2e_ms.mean == pytest.approx(sent.e2e_ms.mean + waited[20:].mean())
    assert due.tpot_ms.mean == sent.tpot_ms.mean
    assert not any("waited at its client" in note for note in due.notes)
    for run in (sent, due):  # the tools report both, whichever the reader looks at
        printed = run.vllm()
        assert printed["mean_ttft_ms"] == pytest.approx(sent.ttft_ms.mean)
        assert printed["p99_client_queue_time_ms"] == pytest.approx(np.percentile(waited[20:], 99))
        assert printed["mean_e2el_including_client_queue_ms"] == pytest.approx(due.e2e_ms.mean)
        assert run.guidellm()["request_scheduled_latency"]["mean"] == pytest.approx(due.e2e_ms.mean / 1000)


def test_without_a_queue_its_inclusion_is_said_to_change_nothing():
    report = pc.evaluate_replay(TRACE, ENGINES["budget"], CLOCK)
    run = report.benchmark(include_client_queue=True)
    assert run.ttft_ms.mean == report.ttft_ms.mean
    assert "no request waited at its client" in run.notes[-1]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "say how many requests"),
        ({"requests": 0}, "requests=0"),
        ({"requests": 2.5}, "requests=2.5"),
        ({"requests": True}, "requests=True"),
        ({"requests": 50, "warmup": -1}, "warmup=-1"),
        ({"requests": 50, "warmup": 50}, "below the 50 requests"),
        ({"requests": 50, "max_concurrency": 0}, "max_concurrency=0"),
    ],
)
def test_counts_are_checked(asked: dict[str, Any], said: str):
    with pytest.raises(pc.SpecError) as caught:
        pc.evaluate_closed_loop(LOOP, ENGINES["budget"], CLOCK).benchmark(**asked)
    assert said in str(caught.value) and len(str(caught.value)) < 200
