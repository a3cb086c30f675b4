"""Ends by a stop token: the engine reckons with `max_tokens`, and sees the stop when its pass is processed (V12, S4, T1, T5)."""

from typing import Any

import pytest

import passcal as pc

FLAT = pc.LinearTiming((7.0,), (2.0,))


def run(engine: Any, osl: int, most: int | None, others: int = 0) -> Any:
    """A prompt of 10 at 0, and some that run on beside it."""
    rows = {
        "dispatch_ms": [0.0] * (1 + others),
        "isl": [10] * (1 + others),
        "osl": [osl] + [20] * others,
        "max_tokens": [most] + [None] * others,
    }
    return pc.evaluate(pc.Workload.replay(rows), engine, FLAT)


LOOKING_AHEAD = [
    pytest.param(pc.Vllm(), id="vllm"),
    pytest.param(pc.Sglang(), id="sglang"),
    pytest.param(pc.Trtllm(), id="trtllm"),
]


@pytest.mark.parametrize("engine", LOOKING_AHEAD)
@pytest.mark.parametrize("others", [0, 2])
def test_a_stop_wastes_one_row(engine: Any, others: int):
    foreseen, stopped = run(engine, 4, None, others), run(engine, 4, 9, others)
    assert stopped.token_ms(0) == foreseen.token_ms(0) == [7, 9, 11, 13]
    assert stopped.passes()["decode_requests"].sum() == foreseen.passes()["decode_requests"].sum() + 1


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param(pc.Vllm(async_scheduling=False), id="vllm"),
        pytest.param(pc.Sglang(disable_overlap_schedule=True), id="sglang"),
        pytest.param(pc.Trtllm(overlap_scheduler=False), id="trtllm"),
    ],
)
def test_without_lookahead_nothing_is_wasted(engine: Any):
    assert run(engine, 4, 9, 2).passes().equals(run(engine, 4, None, 2).passes())


def test_t1_reserves_max_tokens():
    """The clause's anchor: 7,319 blocks of 32, prompts of 1,096, at most 7,000 outputs: 28 of 64 run, however few they emit."""
    rows = {"dispatch_ms": [0.0] * 64, "isl": [1096] * 64, "osl": [40] * 64, "max_tokens": [7000] * 64}
    engine = pc.Trtllm(max_tokens_in_kv=7319 * 32, max_num_tokens=80_000, overlap_scheduler=False)
    assert pc.evaluate(pc.Workload.replay(rows), engine, FLAT).passes()["prefill_requests"].iloc[0] == 28


def test_s8_reserves_max_tokens():
    rows = {"dispatch_ms": [0.0] * 4, "isl": [100] * 4, "osl": [5] * 4, "max_tokens": [150] * 4}
    engine = pc.Sglang(max_total_tokens=600, disable_overlap_schedule=True)
    assert pc.evaluate(pc.Workload.replay(rows), engine, FLAT).passes()["prefill_requests"].iloc[0] == 2


def test_it_is_not_below_osl():
    with pytest.raises(pc.SpecError, match="max_tokens=3"):
        run(pc.Vllm(), 4, 3)
    with pytest.raises(pc.Unsupported, match="host_offload"):
        run(pc.Vllm(host_offload=True, num_gpu_blocks=100), 4, 9)


@pytest.mark.parametrize("engine", LOOKING_AHEAD)
def test_a_closed_loop_of_stops_settles(engine: Any):
    """Clients whose outputs stop go round as those do whose outputs end, on rows that are used again, at the cost of wasted rows."""
    shapes = [{"isl": 100, "osl": 20, "max_tokens": most} for most in (20, 50)]
    for shape in shapes:
        loop = pc.Workload.closed_loop(shapes=[shape], concurrency=6)
        report = pc.evaluate(loop, engine, FLAT)
        assert report.window.kind == "cycle"
        assert 6 / report.throughput_per_s * 1e3 == pytest.approx(report.e2e_ms.mean, rel=1e-9)
