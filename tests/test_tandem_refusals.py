"""What is not modelled with prefill and decode apart is refused by name, and what can never move says so."""

from typing import Any

import pytest

import passcal as pc
from passcal.spec.deployment import Link
from tests.worlds import CLOCK

ROWS = [(0.0, 90, 30), (0.5, 300, 3), (1.0, 30, 40)]
LAUNCH = {"decode_ms": 3.0, "piecewise_ms": 4.0, "eager_ms": 5.0, "max_cudagraph_capture_size": 64}


def ask(prefill: Any = None, decode: Any = None, rows: Any = ROWS, **options: Any) -> pc.Report:
    """A replay on two pools, vLLM's if nothing else is said."""
    deployment = pc.Disaggregated(prefill=prefill or pc.Vllm(), decode=decode or pc.Vllm(), **options)
    return pc.evaluate(pc.Workload.replay(rows), deployment, CLOCK)


@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize(
    ("option", "engine"),
    [
        ("launch", pc.Vllm(launch=LAUNCH)),
        ("host_loop", pc.Sglang(host_loop={"decode_select_ms": 9.0})),
        ("prefill_decode_interval", pc.Sglang(prefill_decode_interval=3)),
    ],
)
def test_options_of_an_engine_that_stands_alone(side: str, option: str, engine: Any):
    with pytest.raises(pc.Unsupported, match=rf"^{side}\.{option}: "):
        ask(**{side: engine})


def test_a_rank_that_a_request_asks_for():
    row = {"dispatch_ms": 0.0, "isl": 90, "osl": 3, "data_parallel_rank": 1}
    with pytest.raises(pc.Unsupported, match=r"^data_parallel_rank: "):
        ask(pc.Vllm(data_parallel_size=2), pc.Vllm(data_parallel_size=2), [row])


@pytest.mark.parametrize("prefill", [pc.Vllm(), pc.Sglang(), pc.Trtllm()])
def test_a_first_token_that_sglang_would_have_to_compute_again(prefill: Any):
    with pytest.raises(pc.Unsupported, match=r"^first_token='decode_pass': .*sglang"):
        ask(prefill, pc.Sglang(), first_token="decode_pass")


@pytest.mark.parametrize("decode", [pc.Vllm(), pc.Trtllm()])
def test_tokens_that_only_sglang_reserves(decode: Any):
    with pytest.raises(pc.Unsupported, match=r"^num_reserved_decode_tokens=100: "):
        ask(pc.Sglang(), decode, num_reserved_decode_tokens=100)
    ask(decode, pc.Sglang(), num_reserved_decode_tokens=100)


def test_a_static_batch_that_decodes():
    static = pc.Trtllm(capacity_policy="STATIC_BATCH")
    with pytest.raises(pc.Unsupported, match=r"^decode\.capacity_policy='STATIC_BATCH': "):
        ask(decode=static)
    ask(prefill=static)


@pytest.mark.parametrize(
    ("decode", "taken"),
    [
        (pc.Vllm(num_gpu_blocks=20, block_size=16), "20 blocks of 19"),
        (pc.Sglang(max_total_tokens=600), "816 tokens of 600"),
        (pc.Sglang(max_total_tokens=600, page_size=16), "816 tokens of 592"),
        (pc.Trtllm(max_tokens_in_kv=304, tokens_per_block=16, capacity_policy="MAX_UTILIZATION"), "20 blocks of 19"),
    ],
)
def test_a_hand_off_larger_than_its_pool(decode: Any, taken: str):
    """All but SGLang take one token more than the prompt, which nobody stores if one output is all."""
    rows = [(0.0, 304, 1)]
    with pytest.raises(pc.SpecError, match=f"hand-off of 304 tokens takes {taken}") as refusal:
        ask(decode=decode, rows=rows, first_token="decode")
    assert len(str(refusal.value)) < 200
    ask(decode=decode, rows=[(0.0, 80, 1)] if isinstance(decode, pc.Sglang) else [(0.0, 303, 1)], first_token="decode")


def test_prefix_affinity_is_no_routing_here():
    with pytest.raises(pc.SpecError, match="routing"):
        pc.Disaggregated(prefill=pc.Vllm(), decode=pc.Vllm(), routing="prefix_affinity")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("gb_per_s", 0.0),
        ("kv_bytes_per_token", -1),
        ("efficiency", 1.5),
        ("efficiency", 0.0),
        ("latency_ms", -0.1),
        ("max_transfers_per_worker", 0),
        ("transfer", "some"),
        ("transfer_start", "first_chunk"),
    ],
)
def test_a_link_that_cannot_be(name: str, value: Any):
    with pytest.raises(pc.SpecError, match=name):
        Link(**{"gb_per_s": 1.0, "kv_bytes_per_token": 1} | {name: value})


def test_a_pool_without_a_timing_model_is_named():
    deployment = pc.Disaggregated(prefill=pc.Vllm(), decode=pc.Vllm())
    with pytest.raises(pc.SpecError, match="prefill, decode"):
        pc.evaluate(pc.Workload.replay(ROWS), deployment, {"prefill": CLOCK})


@pytest.mark.parametrize("workers", [1, 2])
def test_pools_that_wait_for_each_other_say_so(workers: int):
    """The first chunk of a long prompt takes the decode pool's memory, and short ones keep what its last chunk needs until they get some there."""
    shapes = [(1, 0, 1), (1, 0, 1), (1, 0, 1), (112, 0, 1), (3, 0, 1), (3, 0, 1)]
    deployment = pc.Disaggregated(
        prefill=pc.Vllm(long_prefill_token_threshold=1, data_parallel_size=2, block_size=1, num_gpu_blocks=113),
        decode=pc.Vllm(block_size=1, num_gpu_blocks=114),
        prefill_workers=workers,
        link=pc.Link(gb_per_s=1.0, kv_bytes_per_token=0, transfer_start="each_chunk"),
        first_token="decode",
        hold="blocks",
    )
    timing = pc.LinearTiming((5.0, 1 / 64), (8.0,))
    with pytest.raises(pc.Stalled, match="give more") as told:
        pc.evaluate(pc.Workload.closed_loop(shapes=shapes, concurrency=5, requests=20), deployment, timing)
    assert len(str(told.value)) < 200
