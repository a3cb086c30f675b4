"""E1: the ranks of a worker pass together. A pass takes a millisecond for every new token, and 1 ms with decode rows."""

from tools.oracle import simulate

from .building import column, replay, sent

PER_TOKEN = {"kind": "linear", "prefill": [0, 1, 0, 0], "decode": [1, 0, 0], "combine": "sum"}


def grouped(*requests: dict, ranks: int = 2, **engine: object) -> dict:
    """A replay on one worker of several ranks."""
    return replay(*requests, timing=PER_TOKEN, data_parallel_size=ranks, **engine)


def of_engine(answer: dict, engine: int, key: str) -> list:
    """One property of the passes of a rank."""
    return [each[key] for each in answer["passes"] if each["engine"] == engine]


def test_the_group_ends_with_its_slowest_rank():
    """E1: ranks at 5 and 20 ms from 100: both end at 120, and both outputs appear there."""
    answer = simulate(grouped(sent(5, 1, 100), sent(20, 1, 100)))
    assert [request["token_ms"] for request in answer["requests"]] == [[120], [120]]
    assert [(each["engine"], each["start_ms"], each["end_ms"]) for each in answer["passes"]] == [
        (0, 100, 120),
        (1, 100, 120),
    ]


def test_an_idle_rank_waits_for_the_group():
    """E1: an arrival on the idle rank at 101 runs at 120; the idle rank had no pass."""
    answer = simulate(grouped(sent(20, 1, 100), sent(5, 1, 101)))
    assert answer["requests"][1]["admitted_ms"] == 120
    assert of_engine(answer, 1, "start_ms") == [120]


def test_an_idle_rank_of_a_busy_group_looks_ahead_too():
    """E1, V12: with rank 0 going on, what comes at 101 is not in the pass decided at 100; without, it is no later."""
    going_on, ending = sent(20, 3, 100), sent(20, 1, 100)
    late = sent(5, 1, 101)
    assert column(grouped(going_on, late, async_scheduling=True), "admitted_ms")[1] == 121
    assert column(grouped(ending, late, async_scheduling=True), "admitted_ms")[1] == 120


def test_every_rank_has_seats_budget_and_blocks_of_its_own():
    """E1: the options hold for a rank: two requests, two ranks, one seat and three blocks each."""
    engine = {"max_num_seqs": 1, "max_num_batched_tokens": 32, "num_gpu_blocks": 4}
    answer = simulate(grouped(*[sent(32, 4)] * 4, **engine))
    assert [request["engine"] for request in answer["requests"]] == [0, 1, 0, 1]
    assert [request["admitted_ms"] for request in answer["requests"]] == [0, 0, 35, 35]
    assert of_engine(answer, 0, "prefill_tokens") == of_engine(answer, 1, "prefill_tokens") == [32, 0, 0, 0] * 2


def test_prefixes_are_cached_rank_by_rank():
    """E1: a group's second request on another rank finds nothing."""
    engine = {"num_gpu_blocks": 40}
    asked = grouped(*[sent(64, 1, at, 0, 1, 64) for at in (0, 500, 1000, 1500)], **engine)
    assert column(asked, "cached") == [0, 0, 48, 48]


def test_each_rank_is_priced_alone():
    """E1: the maximum of prices, not the price of all."""
    answer = simulate(grouped(sent(7, 2), sent(9, 2)))
    assert [each["end_ms"] for each in answer["passes"]][:2] == [9, 9]
    assert [request["token_ms"] for request in answer["requests"]] == [[9, 10], [9, 10]]


def test_outputs_of_one_instant_go_rank_by_rank():
    """E1: successors of both ranks are numbered in the order of the ranks."""
    workload = {"mode": "closed", "concurrency": 4, "requests": 8, "shapes": [[4, 0, 2], [6, 0, 2]]}
    asked = {**grouped(sent(1, 1)), "workload": workload}
    answer = simulate(asked)
    assert [request["engine"] for request in answer["requests"]] == [0, 1, 0, 1, 0, 1, 0, 1]
    assert len({request["dispatch_ms"] for request in answer["requests"][4:]}) == 1
