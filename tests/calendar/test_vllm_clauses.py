"""vLLM's rules one by one, on a clock where every pass takes 10 ms. The ids are those of the design notes."""

from typing import Any

import pytest

import passcal as pc

TEN_MS = pc.LinearTiming((10.0,), (10.0,), combine="max")


def run(rows: list[tuple[float, int, int]], lookahead: bool = False, **engine: Any) -> Any:
    """Requests of a replay (dispatch_ms, isl, osl) on a synchronous engine unless told otherwise."""
    spec = pc.Vllm(**{"async_scheduling": lookahead, "enable_prefix_caching": False} | engine)
    return pc.evaluate_replay(pc.Workload.replay(rows), spec, TEN_MS)


def firsts(report: Any) -> list[float]:
    """First token of each request."""
    return report.requests()["first_ms"].tolist()


def loads(report: Any) -> list[tuple[int, int]]:
    """(prompt tokens, decode rows) of each pass."""
    passes = report.passes()
    return list(zip(passes["prefill_tokens"].tolist(), passes["decode_requests"].tolist(), strict=True))


def test_v1_running_before_waiting():
    """A decode row keeps its token; the partial prompt goes on before the next one starts."""
    report = run([(0, 1, 4), (0, 150, 1), (0, 60, 1)], max_num_batched_tokens=100, max_num_seqs=10)
    assert loads(report)[:3] == [(100, 0), (99, 1), (12, 1)]
    assert firsts(report) == [10, 20, 30]


@pytest.mark.parametrize(("isl", "first"), [(1235, 20), (1236, 30)])
def test_v2_a_tail_and_a_head_share_a_pass(isl: int, first: float):
    """Budget 2048, two decodes, a tail of 811: the next prompt gets 1235."""
    report = run([(0, 1, 9), (0, 1, 9), (0, 2046 + 811, 1), (0, isl, 1)], max_num_batched_tokens=2048)
    assert loads(report)[1] == (2046, 2)
    assert firsts(report)[2:] == [20, first]


def test_v3_partial_prompts_hold_seats():
    report = run([(0, 150, 1), (0, 10, 1)], max_num_batched_tokens=100, max_num_seqs=1)
    assert firsts(report) == [20, 30]
    assert loads(report) == [(100, 0), (50, 0), (10, 0)]


def test_v4_a_completing_prompt_is_no_decode_row():
    report = run([(0, 5, 1), (0, 5, 2)])
    assert loads(report) == [(10, 0), (0, 1)]
    assert report.requests()["done_ms"].tolist() == [10, 20]


def test_v4_the_last_token_is_never_stored():
    """16 + 17 - 1 tokens fill two blocks of 16 exactly; one token more needs a third."""
    assert run([(0, 16, 17)], num_gpu_blocks=3).requests()["done_ms"].tolist() == [170]
    with pytest.raises(pc.SpecError, match="num_gpu_blocks=3"):
        run([(0, 16, 18)], num_gpu_blocks=3)


def test_v5_a_seat_is_free_for_the_next_pass():
    report = run([(0, 5, 1), (0, 5, 3), (0, 5, 1)], max_num_seqs=2)
    assert firsts(report) == [10, 10, 20]


def test_v5_successors_queue_in_running_order():
    loop = pc.Workload.closed_loop(shapes=[(5, 2), (6, 2), (50, 2), (60, 2)], concurrency=2, requests=4)
    report = pc.evaluate_closed_loop(loop, pc.Vllm(async_scheduling=False, max_num_seqs=2), TEN_MS)
    assert report.requests()["isl"].tolist() == [5, 6, 50, 60]


@pytest.mark.parametrize(("reserve", "admitted"), [(True, 30), (False, 10)])
def test_v6_a_whole_prompt_must_fit(reserve: bool, admitted: float):
    """Ten usable blocks, six held until 30 ms: 96 prompt tokens need six, a first chunk of 50 only four."""
    rows = [(0.0, 96, 3), (1.0, 96, 1)]
    sizes = {"num_gpu_blocks": 11 if reserve else 12, "max_num_batched_tokens": 100, "max_num_seqs": 50}
    if not reserve:
        rows, sizes["max_num_batched_tokens"] = [(0.0, 49, 3), (1.0, 96, 1)], 50
    report = run(rows, scheduler_reserve_full_isl=reserve, **sizes)
    assert report.requests()["admitted_ms"].tolist() == [0, admitted]


def test_v6_the_head_blocks_the_queue():
    """A short prompt that would fit waits behind a long one that does not."""
    report = run([(0, 96, 3), (1, 96, 1), (2, 5, 1)], num_gpu_blocks=11)
    assert firsts(report) == [10, 40, 40]


@pytest.mark.parametrize(("watermark", "second"), [(0.0, 20), (0.1, 40)])
def test_v7_the_watermark_holds_while_something_runs(watermark: float, second: float):
    """Twenty usable blocks: ten for each, of which two must stay free while the first runs."""
    report = run([(0, 160, 3), (1, 160, 1)], num_gpu_blocks=22, watermark=watermark)
    assert firsts(report) == [10, second]


def test_v8_the_newest_is_recomputed():
    """Both hold two full blocks; the first takes the last free one, the second finds none and starts over when the first is done."""
    report = run([(0, 32, 4), (0, 32, 4)], num_gpu_blocks=6)
    frame = report.requests()
    assert frame["preemptions"].tolist() == [0, 1]
    assert frame["done_ms"].tolist() == [40, 70]
    assert loads(report) == [(64, 0), (0, 1), (0, 1), (0, 1), (33, 0), (0, 1), (0, 1)]
    assert report.token_ms(1) == [10, 50, 60, 70]


@pytest.mark.parametrize(("others", "chunk"), [([], 100), ([(0.0, 5, 9)], 40)])
def test_v10_long_prompts_are_capped_unless_alone(others: list[tuple[float, int, int]], chunk: int):
    report = run([*others, (0.0, 100, 1)], long_prefill_token_threshold=40)
    passes = report.passes()["prefill_tokens"].tolist()
    assert passes[0] == chunk + sum(row[1] for row in others)


def test_v11_without_chunking_a_large_prompt_blocks():
    """60 do not fit beside 50 of 100, and the 5 behind them wait too."""
    report = run(
        [(0, 50, 1), (0, 60, 1), (0, 5, 1)], enable_chunked_prefill=False, max_num_batched_tokens=100, max_num_seqs=9
    )
    assert firsts(report) == [10, 20, 20]


@pytest.mark.parametrize(("dispatch", "ahead", "at_once"), [(12.0, 40, 30), (20.0, 40, 30), (10.0, 30, 20)])
def test_v12_an_arrival_during_a_pass_joins_the_pass_after_the_next(dispatch: float, ahead: float, at_once: float):
    """Synchronous engines take it into the next pass; an arrival at a pass end counts as that boundary's."""
    rows = [(0.0, 5, 20), (dispatch, 5, 1)]
    assert firsts(run(rows, lookahead=True))[1] == ahead
    assert firsts(run(rows))[1] == at_once


def test_v12_an_idle_engine_starts_at_once():
    assert firsts(run([(0, 5, 2), (33, 5, 1)], lookahead=True)) == [10, 43]


def test_v12_a_drained_pipeline_starts_at_the_end():
    loop = pc.Workload.closed_loop(5, 2, 1, requests=2)
    for lookahead in (False, True):
        report = pc.evaluate_closed_loop(loop, pc.Vllm(async_scheduling=lookahead), TEN_MS)
        assert report.requests()["dispatch_ms"].tolist() == [0, 20]
        assert firsts(report) == [10, 30]


def test_v12_a_seat_comes_a_pass_later():
    rows = [(0.0, 5, 2), (0.0, 5, 9), (0.0, 5, 1)]
    assert firsts(run(rows, max_num_seqs=2))[2] == 30
    assert firsts(run(rows, lookahead=True, max_num_seqs=2))[2] == 40


def test_v12_async_is_the_default():
    rows = [(0.0, 5, 2), (0.0, 5, 9), (0.0, 5, 1)]
    by_default = pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(max_num_seqs=2), TEN_MS)
    assert firsts(by_default) == firsts(run(rows, lookahead=True, max_num_seqs=2))


def test_e2_generation_stops_at_the_context_limit():
    frame = run([(0, 90, 50)], max_model_len=100).requests()
    assert frame["osl"].tolist() == [10]
    assert frame["done_ms"].tolist() == [100]
    with pytest.raises(pc.SpecError, match="max_model_len=90"):
        run([(0, 90, 50)], max_model_len=90)


def test_v8_only_the_pass_that_preempts_admits_nobody():
    """A prompt that loses its blocks comes back in the next pass if its first chunk fits."""
    rows = [(0.0, 1, 20), (0.0, 90, 1)]
    engine = {
        "max_num_batched_tokens": 40,
        "max_num_seqs": 40,
        "block_size": 1,
        "num_gpu_blocks": 91,
        "scheduler_reserve_full_isl": False,
    }
    asked = pc.PhaseTiming(lambda *_: 10.0, lambda *_: 10.0, lambda *_: 10.0)
    literal = pc.evaluate(
        pc.Workload.replay(rows), pc.Vllm(enable_prefix_caching=False, async_scheduling=False, **engine), asked
    )
    report = run(rows, **engine)
    assert literal.preemptions > 1
    assert report.preemptions == literal.preemptions
