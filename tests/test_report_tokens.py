"""When tokens appear, as a report tells it, on every backend and on several ranks."""

from typing import Any

import numpy as np
import pytest

import passcal as pc
from tests.worlds import CLOCK, token_times

SHAPES = [(300, 160), (90, 225), (200, 140), (41, 1)]
ENGINES: dict[str, Any] = {
    "vllm": pc.Vllm(max_num_batched_tokens=512),
    "vllm preempts": pc.Vllm(num_gpu_blocks=90, enable_prefix_caching=False, async_scheduling=False),
    "vllm cuts": pc.Vllm(max_num_batched_tokens=256, long_prefill_token_threshold=100),
    "sglang": pc.Sglang(chunked_prefill_size=512),
    "sglang mixes": pc.Sglang(chunked_prefill_size=512, enable_mixed_chunk=True),
    "sglang retracts": pc.Sglang(
        max_total_tokens=1600, disable_radix_cache=True, ignore_eos=False, schedule_conservativeness=0.1
    ),
    "sglang retracts in order": pc.Sglang(
        max_total_tokens=1600, ignore_eos=False, schedule_conservativeness=0.1, disable_overlap_schedule=True
    ),
    "sglang waits": pc.Sglang(chunked_prefill_size=256, prefill_decode_interval=3),
    "trtllm": pc.Trtllm(max_num_tokens=512),
    "trtllm pauses": pc.Trtllm(max_tokens_in_kv=1600, capacity_policy="MAX_UTILIZATION"),
}
DEPLOYMENTS = {
    **{name: pc.Aggregated(engine) for name, engine in ENGINES.items()},
    **{f"3 x {name}": pc.Aggregated(engine, replicas=3) for name, engine in ENGINES.items() if "in order" not in name},
    "2 ranks": pc.Aggregated(pc.Vllm(data_parallel_size=2, max_num_batched_tokens=512)),
    "2 x 2 ranks": pc.Aggregated(pc.Vllm(data_parallel_size=2), replicas=2, routing="least_loaded"),
}


def closed(deployment: pc.Aggregated, requests: int | None = 60, **options: Any) -> pc.Report:
    """Clients in a closed loop on a deployment."""
    loop = pc.Workload.closed_loop(shapes=SHAPES, concurrency=11, requests=requests, turnaround_ms=3.0)
    return pc.evaluate(loop, deployment, CLOCK, **options)


@pytest.mark.parametrize("name", DEPLOYMENTS)
@pytest.mark.parametrize("stop", [None, pc.Window(requests=40)])
def test_tokens_of_every_request(name: str, stop: pc.Window | None):
    """One for each output token, from the first to the last, each at the end of a pass of its own rank."""
    report = closed(DEPLOYMENTS[name], None if stop else 60, stop=stop)
    if stop is None and name.split()[-1] in ("preempts", "retracts", "order", "pauses"):
        assert report.preemptions or "3 x" in name
    ends = report.passes()["end_ms"].to_numpy()
    for row, times in zip(report.requests().itertuples(), token_times(report), strict=True):
        assert (times[0], times[-1], len(times)) == (row.first_ms, row.done_ms, row.osl)
        assert (np.diff(times) > 0).all()
        assert stop or np.isin(times, ends).all()


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_gaps_are_those_between_tokens(name: str):
    """Pooled ITL, which the log counts pass by pass, is the gaps of the tokens one by one."""
    report = closed(DEPLOYMENTS[name])
    one_by_one = np.sort(np.concatenate([np.diff(times) for times in token_times(report)]))
    counted = np.sort(np.repeat(report.itl_ms.values, report.itl_ms.weights))
    np.testing.assert_allclose(counted, one_by_one, rtol=1e-9)


@pytest.mark.parametrize(
    ("deployment", "columns"),
    [
        (pc.Aggregated(pc.Vllm()), set()),
        (pc.Aggregated(pc.Sglang(), replicas=3), {"worker"}),
        (pc.Aggregated(pc.Vllm(data_parallel_size=2)), {"rank"}),
        (pc.Aggregated(pc.Vllm(data_parallel_size=2), replicas=3), {"worker", "rank"}),
    ],
)
def test_where_a_request_ran(deployment: pc.Aggregated, columns: set[str]):
    """Round robin goes over workers, then over the ranks of each (E4); what there is one of has no column."""
    frame = closed(deployment, requests=12).requests()
    assert {"worker", "rank"} & set(frame) == columns
    places = {"worker": deployment.replicas, "rank": getattr(deployment.engine, "data_parallel_size", 1)}
    for k, row in enumerate(frame.to_dict("records")):
        if "worker" in columns:
            assert row["worker"] == k % places["worker"]
        if "rank" in columns:
            assert row["rank"] == k // places["worker"] % places["rank"]


@pytest.mark.parametrize(("replicas", "ranks", "tensor"), [(1, 1, 1), (3, 1, 2), (2, 2, 4)])
def test_gpus(replicas: int, ranks: int, tensor: int):
    """Replicas times ranks times what a rank's pass runs on, as its timing says (E3)."""
    deployment = pc.Aggregated(pc.Vllm(data_parallel_size=ranks), replicas=replicas)
    loop = pc.Workload.closed_loop(200, 9, 6, requests=12)
    for timing in (pc.LinearTiming(gpus=tensor), pc.Roofline(tensor_parallel=tensor).timing()):
        report = pc.evaluate(loop, deployment, timing)
        assert report.gpus == replicas * ranks * tensor
        assert report.output_tokens_per_s_per_gpu == report.output_tokens_per_s / report.gpus
    assert pc.evaluate(loop, deployment, pc.PhaseTiming(lambda *_: 5.0, lambda *_: 9.0)).gpus == replicas * ranks


@pytest.mark.parametrize("gpus", [0, -1, 1.5, True, None])
def test_a_pass_runs_on_a_whole_number_of_gpus(gpus: Any):
    with pytest.raises(pc.SpecError, match=f"gpus={gpus!r}"):
        pc.LinearTiming(gpus=gpus)
