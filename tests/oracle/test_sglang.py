"""SGLang's clauses by worked numbers. Every pass takes 10 ms."""

import pytest

from tools.oracle import ScenarioError, simulate

from .building import TEN_MS, sent


def asked(*requests: dict, **engine: object) -> dict:
    """A replay without overlap, unless told otherwise."""
    engine = {"disable_overlap_schedule": True, **engine}
    workload = {"mode": "replay", "requests": list(requests)}
    return {"name": "built", "backend": "sglang", "engine": engine, "workload": workload, "timing": TEN_MS}


def shapes(scenario: dict) -> list[tuple[int, int, int]]:
    """(prompt tokens, chunks, rows) of each pass."""
    keys = ("prefill_tokens", "prefill_requests", "decode_requests")
    return [tuple(each[key] for key in keys) for each in simulate(scenario)["passes"]]


def column(scenario: dict, key: str) -> list:
    """One property of all requests of the answer."""
    return [request[key] for request in simulate(scenario)["requests"]]


def test_prefill_goes_first_and_alone():
    """S2: decodes stall while anything is admissible; the chunk is shared with the next prompt."""
    scenario = asked(sent(10, 3), sent(150, 2, 5), sent(30, 1, 5), chunked_prefill_size=100)
    assert shapes(scenario) == [(10, 1, 0), (100, 1, 0), (80, 2, 0), (0, 0, 2), (0, 0, 1)]


def test_mixed_rows_ride_and_cost_the_chunk():
    """S6, S11: a row leaves 99 of the chunk."""
    scenario = asked(sent(10, 4), sent(150, 1, 5), chunked_prefill_size=100, enable_mixed_chunk=True)
    assert shapes(scenario) == [(10, 1, 0), (99, 1, 1), (51, 1, 1), (0, 0, 1)]


@pytest.mark.parametrize(("overlap", "start_ms"), [(False, 20), (True, 30)])
def test_a_slot_comes_a_pass_later_with_overlap(overlap: bool, start_ms: float):
    """S4, S5: a leaver holds its slot while the next pass is planned."""
    scenario = asked(
        sent(10, 2), sent(10, 9), sent(10, 1), max_running_requests=2, disable_overlap_schedule=not overlap
    )
    assert column(scenario, "admitted_ms")[2] == start_ms


@pytest.mark.parametrize(("pool", "start_ms"), [(303, 0), (302, 10)])
def test_prompt_and_outputs_must_be_less_than_the_rest(pool: int, start_ms: float):
    """S8: 100 + 50 + 1 of what the first leaves, 151 less than the pool; equal is not enough.

    A pass later it is: the page is no longer charged, and running was empty, which cleared the flag (S5).
    """
    scenario = asked(sent(100, 50), sent(100, 50), max_total_tokens=pool)
    assert column(scenario, "admitted_ms")[1] == start_ms


def test_a_cut_prompt_is_whole_pages_and_the_partial_is_not():
    """S8, S10: of 100 a new prompt gets 64; the partial goes on with all of 100."""
    assert shapes(asked(sent(250, 1), chunked_prefill_size=100, page_size=64)) == [(64, 1, 0), (100, 1, 0), (86, 1, 0)]


def test_retraction_drops_the_longest_prompt_and_keeps_what_was_seen():
    """S13: rows have seen as much, so the longer prompt goes; it resumes with all it had seen."""
    engine = {"max_total_tokens": 60, "ignore_eos": False, "schedule_conservativeness": 0.05}
    answer = simulate(asked(sent(12, 30), sent(10, 30), **engine))
    assert [request["preemptions"] for request in answer["requests"]] == [1, 0]
    resumed = [each for each in answer["passes"] if each["prefill_requests"]][-1]
    seen = sum(token <= resumed["start_ms"] for token in answer["requests"][0]["token_ms"])
    assert resumed["prefill_tokens"] + resumed["prefill_kv_tokens"] == 12 + seen


def test_an_interval_lets_decodes_go_between():
    """S14: two decode passes behind every pass with prefill."""
    scenario = asked(sent(10, 4), sent(10, 1, 5), prefill_decode_interval=2)
    assert shapes(scenario) == [(10, 1, 0), (0, 0, 1), (0, 0, 1), (10, 1, 0), (0, 0, 1)]


def test_an_interval_costs_no_time_when_nothing_decodes():
    """S14: rounds that launch nothing count."""
    scenario = asked(sent(150, 1), chunked_prefill_size=100, prefill_decode_interval=3)
    assert column(scenario, "token_ms") == [[20]]


def test_a_hit_leaves_a_token_to_compute():
    """S15: whole pages of the prefix, published when the first prompt is through."""
    prompts = [sent(128, 1, 0, 0, 7, 128), sent(128, 1, 50, 0, 7, 128)]
    assert column(asked(*prompts), "cached") == [0, 127]
    assert column(asked(*prompts, page_size=64), "cached") == [0, 64]
    assert column(asked(*prompts, disable_radix_cache=True), "cached") == [0, 0]


def test_equal_prompts_of_one_batch_are_computed_twice():
    """S15: nothing is published before the results."""
    assert shapes(asked(sent(50, 1, 0, 0, 7, 50), sent(50, 1, 0, 0, 7, 50)))[0] == (100, 2, 0)


def test_lpm_sorts_by_match_and_delays_those_that_could_share():
    """S16: the known prefix overtakes; of two unknown equal prompts the second goes last."""
    known, new = [0, 7, 40], [0, 8, 40]
    prompts = [
        sent(50, 1, 0, *known),
        sent(60, 1, 5, *new),
        sent(60, 1, 5, *new),
        sent(60, 1, 5),
        sent(60, 1, 5, *known),
    ]
    scenario = asked(*prompts, schedule_policy="lpm", max_running_requests=1)
    assert column(scenario, "admitted_ms") == [0, 20, 30, 40, 10]
    one_plan = asked(*prompts[:4], schedule_policy="lpm", max_running_requests=2)
    assert column(one_plan, "admitted_ms") == [0, 10, 20, 10]


def test_outputs_are_cut_to_the_pool():
    """S17: 100 - 60 - 1 - 1 outputs."""
    assert len(column(asked(sent(60, 90), max_total_tokens=100), "token_ms")[0]) == 38


REFUSALS = [
    ({"page_size": 64, "chunked_prefill_size": 63}, "chunked_prefill_size 63 is below page_size 64"),
    ({"schedule_policy": "dfs-weight"}, "schedule_policy 'dfs-weight' is not modelled"),
    ({"dp_size": 5, "chunked_prefill_size": 4}, "chunked_prefill_size 0 for each of 5 ranks is below page_size 1"),
    ({"dp_size": 2, "max_running_requests": 1}, "max_running_requests is 0 for each of 2 ranks"),
    ({"host_loop": {"prefill_select_ms": 1}}, "host_loop lacks 'decode_select_ms'"),
    ({"host_loop": {"prefill_select_ms": 1, "decode_select_ms": 1}}, "host_loop needs the overlap schedule"),
    ({"max_total_tokens": 11}, "isl 9 leaves no output room"),
]


@pytest.mark.parametrize(("engine", "message"), REFUSALS, ids=[case[1][:30] for case in REFUSALS])
def test_what_is_not_modelled_or_could_never_run_is_refused(engine: dict, message: str):
    """By name."""
    with pytest.raises(ScenarioError, match=message):
        simulate(asked(sent(9, 8), **engine))


def test_a_constant_prefix_is_refused():
    """The clauses give it no meaning in a tree of identities."""
    with pytest.raises(ScenarioError, match="constant prefix is not modelled"):
        simulate(asked(sent(9, 8, 0, 4)))
