"""Ranks of attention data parallelism: they plan alone and pass together (E1, S14, S18, T7), and requests find their rank (E4)."""

from typing import Any

import pytest

import passcal as pc

STEP = pc.LinearTiming((0.0, 1.0, 0.0, 0.0), (2.0,))  # a prompt token takes a millisecond, a decode pass two


def run(rows: Any, engine: Any, timing: Any = STEP, **deployment: Any) -> Any:
    """A replay on one worker."""
    return pc.evaluate(pc.Workload.replay(rows), pc.Aggregated(engine, **deployment), timing)


def spans(report: Any) -> list[tuple[int, float, float]]:
    """(engine, start, end) of each pass."""
    passes = report.passes()
    return list(zip(passes["engine"].tolist(), passes["start_ms"].tolist(), passes["end_ms"].tolist(), strict=True))


ENGINES = [
    pytest.param(pc.Vllm(data_parallel_size=2, async_scheduling=False), id="vllm"),
    pytest.param(pc.Sglang(dp_size=2, disable_overlap_schedule=True), id="sglang"),
    pytest.param(pc.Trtllm(attention_dp=2, overlap_scheduler=False), id="trtllm"),
]


@pytest.mark.parametrize("engine", ENGINES)
def test_e1_a_group_ends_with_its_slowest_rank(engine: Any):
    """Ranks at 5 and 20 ms from 100 end at 120; one that arrives for the idle rank at 101 runs at 120."""
    report = run([(100, 5, 1), (100, 20, 1)], engine)
    assert spans(report) == [(0, 100, 120), (1, 100, 120)]
    report = run([(100, 20, 1), (101, 5, 1)], engine)
    assert spans(report) == [(0, 100, 120), (1, 120, 125)]


@pytest.mark.parametrize(
    "engine", [pytest.param(pc.Sglang(dp_size=2), id="sglang"), pytest.param(pc.Trtllm(attention_dp=2), id="trtllm")]
)
def test_under_overlap_an_idle_rank_turns_with_the_others(engine: Any):
    """The group's second pass is planned when its first starts, so who comes in between waits for the third, on an idle rank too."""
    report = run([(100, 20, 4), (101, 5, 1)], engine)
    assert spans(report) == [(0, 100, 120), (0, 120, 122), (0, 122, 127), (1, 122, 127), (0, 127, 129)]
    assert report.requests()["first_ms"].tolist() == [120, 127]


def test_s18_a_worker_shares_its_chunk_and_slots_among_ranks():
    rows = [(0, 100, 3)] * 4
    report = run(rows, pc.Sglang(dp_size=2, chunked_prefill_size=120, disable_overlap_schedule=True))
    assert report.passes()["prefill_tokens"].tolist()[:9] == [60, 60, 60, 60, 60, 60, 20, 20, 0]
    report = run(rows, pc.Sglang(dp_size=2, max_running_requests=2, disable_overlap_schedule=True))
    assert report.passes()["prefill_requests"].max() == 1


def test_s18_max_prefill_tokens_are_a_ranks_own():
    """With chunking off a second prompt must stay below what is left of them."""
    engine = pc.Sglang(dp_size=2, chunked_prefill_size=-1, max_prefill_tokens=250, disable_overlap_schedule=True)
    report = run([(0, 100, 2)] * 4, engine)
    assert report.passes()["prefill_tokens"].tolist()[:2] == [200, 200]


def test_s18_ranks_reserve_less_of_an_output():
    """Beside 75 tokens held and 75 outputs to come, a prompt of 50 with 100 fits into 260 if 0.21 of those are reserved, but not with 0.7."""
    rows = {"dispatch_ms": [0, 0, 100, 100], "isl": [50] * 4, "osl": [100] * 4}
    options = {
        "max_total_tokens": 260,
        "ignore_eos": False,
        "disable_radix_cache": True,
        "disable_overlap_schedule": True,
    }
    alone = run({name: column[:1] + column[2:3] for name, column in rows.items()}, pc.Sglang(**options))
    ranks = run(rows, pc.Sglang(dp_size=2, **options))
    assert (alone.requests()["admitted_ms"][1], ranks.requests()["admitted_ms"][2]) == (248, 100)


def test_s14_a_prefill_on_any_rank_defers_the_others():
    """Both ranks decode; a prompt on rank 0 runs in a pass of its own; the next one, on rank 1, waits two rounds from there."""
    rows = [(0, 10, 9), (0, 10, 9), (11, 7, 9), (22, 5, 1)]
    engine = {"dp_size": 2, "disable_overlap_schedule": True}
    admitted = [run(rows, pc.Sglang(prefill_decode_interval=n, **engine)).requests()["admitted_ms"][3] for n in (0, 2)]
    assert admitted == [23, 25]


def test_t7_requests_go_to_the_rank_with_the_fewest_tokens():
    report = run([(0, 100, 4), (0, 30, 4), (0, 40, 4), (0, 20, 4), (0, 20, 4), (0, 5, 4)], pc.Trtllm(attention_dp=2))
    assert report.requests()["rank"].tolist() == [0, 1, 1, 1, 1, 0]


def test_t7_an_idle_rank_runs_a_token():
    """A decode pass costs ten times a short prompt: the dummy of the idle rank sets the pace."""
    timing = pc.LinearTiming((1.0,), (10.0,))
    for engine, end in ((pc.Trtllm(attention_dp=2), 10), (pc.Sglang(dp_size=2), 1)):
        assert run([(0, 5, 1)], engine, timing).passes()["end_ms"].tolist() == [end]


def test_t7_balance_waits_for_prompts_on_all_ranks():
    """Both ranks decode; a prompt for one waits until the other has one too, or until time is up."""
    first = [(0, 10, 40), (0, 10, 40)]
    balance = pc.AttentionDpBalance(timeout_iters=5, batching_wait_iters=0)
    options: dict[str, Any] = {"attention_dp": 2, "overlap_scheduler": False}
    held, both, free = (
        run(first + rows, pc.Trtllm(**options, attention_dp_balance=wait)).requests()["admitted_ms"].tolist()
        for rows, wait in (([(11, 8, 1)], balance), ([(11, 8, 1), (15, 9, 1)], balance), ([(11, 8, 1)], None))
    )
    assert free[2] == 12
    assert held[2] == 12 + 4 * 2  # the fifth pass lets it go
    assert both[2:] == [16, 16]


def test_t7_balance_then_waits_for_more():
    first, balance = [(0, 10, 40), (0, 10, 40)], pc.AttentionDpBalance(timeout_iters=50, batching_wait_iters=3)
    engine = pc.Trtllm(attention_dp=2, overlap_scheduler=False, attention_dp_balance=balance)
    report = run([*first, (11, 8, 1), (11, 8, 1), (15, 8, 1), (15, 8, 1)], engine)
    assert report.requests()["admitted_ms"].tolist()[2:] == [18] * 4


@pytest.mark.parametrize("engine", ENGINES)
def test_e4_a_request_may_be_pinned_to_a_rank(engine: Any):
    rows = {"dispatch_ms": [0, 0, 0], "isl": [10, 5, 5], "osl": [1, 1, 1], "data_parallel_rank": [1, 1, None]}
    passes = run(rows, engine).passes()
    assert dict(zip(passes["engine"], passes["prefill_tokens"], strict=True)) == {0: 5, 1: 15}
    for routing in ("least_loaded", "prefix_affinity"):
        passes = run(rows, engine, routing=routing).passes()
        assert passes.groupby("engine")["prefill_tokens"].sum().tolist() == [5, 15]
    with pytest.raises(pc.SpecError, match="data_parallel_rank=2"):
        run({**rows, "data_parallel_rank": [2, None, None]}, engine)


def test_sglang_keeps_a_tree_on_every_worker():
    """Two groups on two workers by affinity: a group's later prompts hit what its first left there, and nothing on the other worker."""
    rows = {
        "dispatch_ms": [0.0, 0.0, 900.0, 900.0],
        "isl": [80, 60, 90, 70],
        "osl": [2, 2, 2, 2],
        "prefix_group": [0, 1, 1, 0],
        "prefix_len": [64, 48, 48, 64],
    }
    engine = pc.Sglang(max_total_tokens=400)
    for routing, computed in (("prefix_affinity", [80, 60, 6, 42]), ("round_robin", [80, 60, 90, 70])):
        tokens = run(rows, engine, replicas=2, routing=routing).passes()["prefill_tokens"]
        assert tokens[tokens > 0].tolist() == computed
