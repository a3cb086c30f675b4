"""V1 to V5, V10 and V11: who gets how many tokens in a pass."""

import pytest

from tools.oracle import simulate

from .building import closed, column, plans, replay, sent


def test_running_first_then_waiting_in_order_of_arrival():
    """V1: the partial prompt goes on before the newcomers, and those keep their order."""
    asked = replay(sent(150, 9), sent(30, 9, 5), sent(20, 9, 5), max_num_batched_tokens=100, max_num_seqs=9)
    assert [list(rows.items()) for rows in plans(asked)[:3]] == [
        [(0, 100)],
        [(0, 50), (1, 30), (2, 20)],
        [(0, 1), (1, 1), (2, 1)],
    ]


def test_a_tail_and_a_head_share_a_pass():
    """V2: budget 2048, two decodes, a tail of 811: the next prompt gets 1235."""
    asked = replay(sent(10, 9), sent(10, 9), sent(2028 + 811, 9), sent(5000, 9), max_num_batched_tokens=2048)
    assert plans(asked)[:2] == [{0: 10, 1: 10, 2: 2028}, {0: 1, 1: 1, 2: 811, 3: 1235}]


def test_partial_prompts_hold_seats():
    """V3: with one seat the second prompt waits although the budget has room."""
    asked = replay(sent(150, 1), sent(10, 1), max_num_batched_tokens=100, max_num_seqs=1)
    assert plans(asked) == [{0: 100}, {0: 50}, {1: 10}]


def test_the_last_chunk_emits_and_is_no_decode_row():
    """V4: the first token comes with the pass of the last chunk; with one output it ends there."""
    answer = simulate(replay(sent(150, 2), sent(60, 1), max_num_batched_tokens=100, max_num_seqs=4))
    assert [request["token_ms"] for request in answer["requests"]] == [[20, 30], [30]]
    shapes = [(each["prefill_requests"], each["decode_requests"]) for each in answer["passes"]]
    assert shapes == [(1, 0), (2, 0), (1, 1)]


def test_a_prompt_of_one_token_is_a_chunk_and_a_last_token_too():
    """V4: one token is a decode row only behind the whole prompt."""
    answer = simulate(replay(sent(1, 2), sent(101, 1), max_num_batched_tokens=101, max_num_seqs=4))
    assert [each["prefill_requests"] for each in answer["passes"]] == [2, 1]
    assert [each["prefill_tokens"] for each in answer["passes"]] == [101, 1]


def test_successors_queue_in_running_order():
    """V5: finishers leave in running order, so their clients' next requests are numbered and run in that order."""
    asked = closed(3, 6, [10, 0, 2], [20, 0, 2], [30, 0, 2], [40, 0, 1], [50, 0, 1], [60, 0, 1])
    assert plans(asked)[2] == {3: 40, 4: 50, 5: 60}


def test_a_finisher_frees_its_seat_for_the_next_pass():
    """V5: synchronous, the seat is free at the end of the pass."""
    asked = replay(sent(10, 2), sent(10, 9), sent(10, 1), max_num_seqs=2)
    assert column(asked, "admitted_ms") == [0, 0, 20]


@pytest.mark.parametrize(("others", "first"), [((), {0: 256}), ((sent(7, 1),), {0: 64, 1: 7})])
def test_the_threshold_caps_chunks_unless_alone(others: tuple, first: dict):
    """V10: off for the only request that the engine has."""
    asked = replay(sent(256, 2), *others, long_prefill_token_threshold=64)
    assert plans(asked)[0] == first


def test_the_threshold_caps_running_prompts_too():
    """V10: every chunk, not only the first."""
    asked = replay(sent(200, 2), sent(7, 9), long_prefill_token_threshold=64)
    assert [rows[0] for rows in plans(asked)[:5]] == [64, 64, 64, 8, 1]


def test_an_async_plan_counts_a_finisher_in_flight_for_the_threshold():
    """V10: the last row of request 0 is in flight when request 1 is admitted; only its second chunk finds it alone."""
    engine = {"long_prefill_token_threshold": 30, "async_scheduling": True}
    assert plans(replay(sent(10, 2), sent(100, 1, 5), **engine)) == [{0: 10}, {0: 1}, {1: 30}, {1: 70}]
    assert plans(replay(sent(10, 2), sent(100, 1, 30), **engine)) == [{0: 10}, {0: 1}, {1: 100}]


def test_without_chunking_a_large_prompt_blocks_the_queue():
    """V11: the second prompt does not fit what is left, and the third does not pass it; decodes still ride along."""
    asked = replay(sent(60, 3), sent(50, 1), sent(5, 1), enable_chunked_prefill=False, **small_budget())
    assert plans(asked) == [{0: 60}, {0: 1, 1: 50, 2: 5}, {0: 1}]


def small_budget() -> dict:
    """A budget of a hundred tokens."""
    return {"max_num_batched_tokens": 100, "max_num_seqs": 10}
