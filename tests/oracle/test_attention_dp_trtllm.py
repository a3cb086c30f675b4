"""T7: ranks of TensorRT-LLM, their dummies, placement and balance. Every pass takes 10 ms, unless told otherwise."""

import pytest

from tools.oracle import ScenarioError, simulate

from .building import asked_of, column, deployed, sent

BY_TOKEN = {"kind": "linear", "prefill": [0, 1, 0, 0], "decode": [5, 1, 2], "combine": "sum"}


def trtllm(*requests: dict, overlap: bool = False, timing: dict | None = None, **engine: object) -> dict:
    """A replay on two ranks without overlap, unless told otherwise."""
    engine = {"attention_dp": 2, "overlap_scheduler": overlap, **engine}
    return asked_of("trtllm", *requests, **({"timing": timing} if timing else {}), **engine)


def balanced(*requests: dict, timeout: int, batching: int, **engine: object) -> dict:
    """With the balance on."""
    balance = {"timeout_iters": timeout, "batching_wait_iters": batching}
    return trtllm(*requests, attention_dp_balance=balance, **engine)


def test_a_rank_without_rows_runs_a_dummy():
    """T7: a prompt of 3 tokens costs 3; the other rank's dummy costs 5 + 1 + 2, and is not written down."""
    asked = trtllm(sent(3, 1), timing=BY_TOKEN)
    assert column(asked, "token_ms") == [[8]]
    assert [each["engine"] for each in simulate(asked)["passes"]] == [0]
    assert column(trtllm(sent(3, 1), timing=BY_TOKEN, attention_dp=1), "token_ms") == [[3]]
    assert column(trtllm(sent(30, 1), timing=BY_TOKEN), "token_ms") == [[30]]


@pytest.mark.parametrize(("overlap", "start_ms"), [(False, 10), (True, 20)])
def test_the_ranks_take_turns_together(overlap: bool, start_ms: float):
    """T5, T7: an arrival on the idle rank joins the group's next turn, or with overlap the one after it."""
    assert column(trtllm(sent(10, 9), sent(10, 1, 3), overlap=overlap), "admitted_ms") == [0, start_ms]


def test_the_rank_is_that_with_the_fewest_tokens():
    """T7: 50; 40 on the other rank; 30 there, 70; 10 at the first, 60; 20 there again, 80; then 5 on the other one."""
    asked = trtllm(*[sent(isl, 9, at) for at, isl in enumerate([50, 40, 30, 10, 20, 5])])
    assert column(asked, "engine") == [0, 1, 1, 0, 0, 1]


def test_ties_go_to_the_fewest_requests_then_to_the_lowest_rank():
    """T7: 40 against 20 + 20: one request is fewer."""
    asked = trtllm(*[sent(isl, 9, at) for at, isl in enumerate([40, 20, 20, 10])])
    assert column(asked, "engine") == [0, 1, 1, 0]


def test_who_has_its_last_token_is_not_active():
    """T7: the 90 tokens are done at 10; until then they count, though computed."""
    requests = [sent(90, 1), sent(20, 9), sent(30, 1, 9.5), sent(10, 1, 10)]
    assert column(trtllm(*requests), "engine") == [0, 1, 1, 0]


def test_the_router_chooses_the_worker():
    """T7: requests in turn, whatever their tokens; or the worker with the fewest requests on all its ranks."""
    requests = [sent(isl, 9, at) for at, isl in enumerate([10, 90, 20, 10, 40])]
    assert column(deployed(trtllm(*requests), 2), "engine") == [0, 2, 1, 3, 0]
    requests = [sent(90, 9), sent(90, 1), sent(10, 9, 1), sent(10, 9, 20), sent(10, 9, 20)]
    assert column(deployed(trtllm(*requests), 2, "least_loaded"), "engine") == [0, 2, 1, 2, 3]


def test_prompts_wait_for_those_of_all_ranks():
    """T7: both ranks decode; rank 0's next prompt waits until the third turn, and goes alone."""
    requests = [sent(40, 30), sent(50, 30), sent(10, 1, 15)]
    for timeout, start_ms in ((0, 20), (1, 20), (2, 30), (3, 40)):
        assert column(balanced(*requests, timeout=timeout, batching=9), "admitted_ms")[2] == start_ms
    assert column(trtllm(*requests), "admitted_ms")[2] == 20


def test_with_prompts_everywhere_they_wait_for_more():
    """T7: rank 1's prompt comes at 35: then both wait two turns more, 40 and 50, and what comes meanwhile goes along."""
    requests = [sent(40, 30), sent(50, 30), sent(20, 1, 15), sent(5, 1, 35), sent(1, 1, 45)]
    asked = balanced(*requests, timeout=9, batching=2)
    assert column(asked, "engine") == [0, 1, 0, 1, 1]
    assert column(asked, "admitted_ms") == [0, 0, 60, 60, 60]


def test_both_counts_start_over():
    """T7: having gone at 40, prompts wait for the other rank again; having gone at 60, for more of them again."""
    requests = [sent(40, 30), sent(50, 30), sent(10, 1, 15), sent(10, 1, 45)]
    assert column(balanced(*requests, timeout=3, batching=9), "admitted_ms") == [0, 0, 40, 70]
    requests = [sent(40, 30), sent(40, 30), *[sent(5, 1, 15)] * 2, *[sent(5, 1, 55)] * 2]
    assert column(balanced(*requests, timeout=9, batching=2), "admitted_ms") == [0, 0, 40, 40, 80, 80]


def test_a_rank_that_does_not_decode_lets_all_prompts_go():
    """T7: rank 1 is idle from 20 on."""
    requests = [sent(40, 30), sent(50, 2), sent(10, 1, 25), sent(10, 1, 25)]
    assert column(balanced(*requests, timeout=9, batching=9), "admitted_ms") == [0, 0, 30, 30]


def test_with_one_that_does_not_decode_batching_is_not_counted():
    """T7: at 30 both have prompts, and go since rank 1 has no row; so the turn at 80 is the first that counts."""
    requests = [sent(5, 30), sent(50, 2), *[sent(10, 12, 25)] * 2, *[sent(5, 1, 75)] * 2]
    asked = balanced(*requests, timeout=9, batching=1)
    assert column(asked, "engine") == [0, 1, 1, 0, 1, 0]
    assert column(asked, "admitted_ms") == [0, 0, 30, 30, 90, 90]


REFUSALS = [
    ({"batch_wait_timeout_iters": 2}, "batch_wait_\\* is not modelled with attention_dp above 1"),
    ({"batch_wait_max_tokens_ratio": 0.5}, "batch_wait_\\* is not modelled with attention_dp above 1"),
    ({"attention_dp": 1, "attention_dp_balance": {"timeout_iters": 1, "batching_wait_iters": 1}}, "needs attention_dp"),
    ({"attention_dp_balance": {"timeout_iters": 1}}, "attention_dp_balance lacks 'batching_wait_iters'"),
    ({"attention_dp_balance": {"timeout_iters": -1, "batching_wait_iters": 1}}, "timeout_iters must be an integer"),
]


@pytest.mark.parametrize(("engine", "message"), REFUSALS, ids=[case[1][:40] for case in REFUSALS])
def test_what_is_not_modelled_is_refused(engine: dict, message: str):
    """By name."""
    with pytest.raises(ScenarioError, match=message):
        simulate(trtllm(sent(9, 8), **engine))


MIXED_LOAD = [sent(isl, osl, at) for isl, osl, at in [(90, 5, 0), (300, 9, 3), (40, 1, 12), (700, 4, 50), (60, 30, 55)]]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_rank_that_has_everything_is_an_engine(overlap: bool):
    """T7: where a dummy costs no more than any pass, the others do not matter; nor does a balance that waits for nothing."""
    pinned = [{**request, "data_parallel_rank": 1} for request in MIXED_LOAD]
    alone = simulate(trtllm(*MIXED_LOAD, overlap=overlap, attention_dp=1, max_num_tokens=256))
    for asked in (trtllm, lambda *requests, **engine: balanced(*requests, timeout=9, batching=9, **engine)):
        group = simulate(asked(*pinned, overlap=overlap, attention_dp=2, max_num_tokens=256))
        assert [request["token_ms"] for request in group["requests"]] == [r["token_ms"] for r in alone["requests"]]


@pytest.mark.parametrize("timeout", [0, 1])
def test_a_balance_that_never_waits_is_none(timeout: int):
    """T7: the first turn is over the timeout already."""
    requests = [sent(40, 30), sent(50, 30), *[sent(20, 3, 15 + 8 * i) for i in range(9)]]
    assert simulate(balanced(*requests, timeout=timeout, batching=0)) == simulate(trtllm(*requests))
