"""TensorRT-LLM's clauses by worked numbers. Every pass takes 10 ms; blocks have 4 tokens, unless told otherwise."""

import pytest

from tools.oracle import ScenarioError, simulate

from .building import TEN_MS, sent


def asked(*requests: dict, **engine: object) -> dict:
    """A replay without overlap, unless told otherwise."""
    engine = {"overlap_scheduler": False, "tokens_per_block": 4, **engine}
    workload = {"mode": "replay", "requests": list(requests)}
    return {"name": "built", "backend": "trtllm", "engine": engine, "workload": workload, "timing": TEN_MS}


def shapes(scenario: dict) -> list[tuple[int, int, int]]:
    """(prompt tokens, chunks, rows) of each pass."""
    keys = ("prefill_tokens", "prefill_requests", "decode_requests")
    return [tuple(each[key] for key in keys) for each in simulate(scenario)["passes"]]


def times(scenario: dict) -> list[list[float]]:
    """The times of all tokens."""
    return [request["token_ms"] for request in simulate(scenario)["requests"]]


def test_guaranteed_counts_the_full_output_and_equal_fits():
    """T1: 8 + 8 tokens are four blocks; of eight, two run, and of seven, one."""
    pair = [sent(8, 8), sent(8, 8)]
    assert times(asked(*pair, max_tokens_in_kv=32))[1][0] == 10
    assert times(asked(*pair, max_tokens_in_kv=28))[1][0] == 90


def test_utilization_pauses_the_last_and_resumes_with_its_outputs():
    """T2, T12: of five blocks both prompts take two, the first row the fifth, and the second pauses itself.

    The first needs its fourth block for the token of pass 6; with that it is done, and 8 + 1 tokens are computed again.
    """
    answer = simulate(asked(sent(8, 6), sent(8, 6), capacity_policy="MAX_UTILIZATION", max_tokens_in_kv=20))
    assert [request["preemptions"] for request in answer["requests"]] == [0, 1]
    assert answer["requests"][0]["token_ms"] == [10, 20, 30, 40, 50, 60]
    assert answer["requests"][1]["token_ms"] == [10, 70, 80, 90, 100, 110]
    assert answer["passes"][6]["prefill_tokens"] == 9


def test_a_static_batch_takes_prompts_when_nobody_decodes():
    """T3: the third prompt is not begun before the first two are done."""
    scenario = asked(sent(8, 3), sent(4, 2), sent(4, 2, 5), capacity_policy="STATIC_BATCH")
    assert shapes(scenario) == [(12, 2, 0), (0, 0, 2), (0, 0, 1), (4, 1, 0), (0, 0, 1)]


def test_a_shorter_prompt_overtakes_a_cut_one():
    """T9: of 10 tokens the first gets two units, the second, which is shorter than what is left, all."""
    assert shapes(asked(sent(13, 1), sent(2, 1), max_num_tokens=10)) == [(10, 2, 0), (5, 1, 0)]


def test_equal_progress_deals_units():
    """T9: one unit each, then what still fits: 4 + 4 of 10, and no piece of 2."""
    policy = {"chunk_policy": "EQUAL_PROGRESS", "max_num_tokens": 10}
    assert shapes(asked(sent(9, 1), sent(9, 1), **policy)) == [(8, 2, 0), (10, 2, 0)]


def test_a_small_mixed_pass_waits():
    """T6: the second prompt is held for two passes with rows, then goes."""
    wait = {"batch_wait_timeout_iters": 2, "batch_wait_max_tokens_ratio": 0.5}
    scenario = asked(sent(8, 6), sent(8, 1, 5), max_num_tokens=64, **wait)
    assert shapes(scenario)[:4] == [(8, 1, 0), (0, 0, 1), (0, 0, 1), (8, 1, 1)]


@pytest.mark.parametrize(("overlap", "first_ms"), [(False, 30), (True, 40)])
def test_a_seat_comes_a_pass_later_with_overlap(overlap: bool, first_ms: float):
    """T5, T8: the finisher of pass 2 still has its seat when pass 3 is planned."""
    scenario = asked(sent(8, 2), sent(8, 9), sent(8, 1), max_batch_size=2, overlap_scheduler=overlap)
    assert times(scenario)[2] == [first_ms]


def test_a_chunk_of_one_token_is_a_chunk():
    """T13: a resumed prompt's as well, though it lies behind isl."""
    policy = {"capacity_policy": "MAX_UTILIZATION", "max_tokens_in_kv": 20, "max_num_tokens": 8}
    assert shapes(asked(sent(8, 6), sent(8, 6, 1), **policy))[6:8] == [(8, 1, 0), (1, 1, 0)]


REFUSALS = [
    ({"chunk_unit": 9, "max_num_tokens": 8}, "max_num_tokens 8 is below the chunk unit of 9"),
    ({"capacity_policy": "BEST"}, "capacity_policy 'BEST' is not modelled"),
    ({"speculation": 2}, "'speculation' is not modelled"),
    ({"max_tokens_in_kv": 15}, "isl 8, max_tokens 8 need 4 blocks; 3 are usable"),
    ({"max_num_tokens": 7, "enable_chunked_prefill": False}, "a prompt may exceed max_num_tokens"),
]


@pytest.mark.parametrize(("engine", "message"), REFUSALS, ids=[case[1][:30] for case in REFUSALS])
def test_what_could_never_run_is_refused(engine: dict, message: str):
    """T1, T9, T10, T14: by name."""
    with pytest.raises(ScenarioError, match=message):
        simulate(asked(sent(8, 8), **engine))


def test_utilization_stores_all_but_the_last_output():
    """T14: 8 + 9 - 1 tokens fit four blocks; T1 wants five."""
    assert len(times(asked(sent(8, 9), max_tokens_in_kv=16, capacity_policy="MAX_UTILIZATION"))[0]) == 9
    with pytest.raises(ScenarioError, match="need 5 blocks"):
        simulate(asked(sent(8, 9), max_tokens_in_kv=16))
