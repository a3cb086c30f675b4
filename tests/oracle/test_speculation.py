"""V16: decode rows carry drafts. Every pass takes 10 ms, unless told otherwise."""

import pytest

from tools.oracle import simulate

from .building import column, plans, replay, sent


def drafted(*requests: dict, drafts: int = 3, accepted: float = 1.5, **more: object) -> dict:
    """A replay with speculation."""
    return replay(*requests, speculation={"drafts": drafts, "accepted": accepted}, **more)


@pytest.mark.parametrize("ahead", [False, True])
@pytest.mark.parametrize(
    ("accepted", "times"),
    [
        (0, [10, 20, 30, 40, 50, 60, 70]),
        (0.5, [10, 20, 30, 30, 40, 50, 50]),
        (1.5, [10, 20, 20, 30, 30, 30, 40]),
        (3, [10, 20, 20, 20, 20, 30, 30]),
    ],
)
def test_the_stream_spreads_the_fraction(accepted: float, times: list[float], ahead: bool):
    """V16: the first token comes alone; row j brings 1 + floor((j + 1) mean) - floor(j mean), and no more than osl."""
    assert column(drafted(sent(10, 7), accepted=accepted, async_scheduling=ahead), "token_ms") == [times]


def test_drafts_are_cut_to_what_is_left_of_the_output():
    """V16: of seven and of five left three are drafts, of three left two, of one left none."""
    assert plans(drafted(sent(10, 8), accepted=1)) == [{0: 10}, {0: 4}, {0: 4}, {0: 3}, {0: 1}]


def test_drafts_are_cut_to_the_budget_and_accepted_ones_with_them():
    """V16: budget 6: the first row takes four, the second two, so that it gets one draft of three accepted."""
    asked = drafted(sent(3, 9), sent(3, 9), accepted=3, max_num_batched_tokens=6, max_num_seqs=2)
    assert plans(asked)[:2] == [{0: 3, 1: 3}, {0: 4, 1: 2}]
    assert [times[1:6] for times in column(asked, "token_ms")] == [[20, 20, 20, 20, 30], [20, 20, 30, 30, 40]]


def test_a_row_may_find_no_budget_left():
    """V16: then it waits, though V3 promises every row a token where there are no drafts."""
    asked = drafted(sent(2, 9), sent(2, 9), accepted=3, max_num_batched_tokens=4, max_num_seqs=2)
    assert plans(asked)[1] == {0: 4}


def test_a_row_counts_by_its_number_in_the_life_of_its_request():
    """V16: two rows of one pass may be at different places of the stream."""
    asked = drafted(sent(10, 9), sent(10, 9, 15), accepted=0.5)
    first, second = column(asked, "token_ms")
    assert first[:7] == [10, 20, 30, 30, 40, 50, 50]
    assert second[:7] == [30, 40, 50, 50, 60, 70, 70]


def test_drafts_are_priced():
    """V16: d1 counts query tokens, contexts all tokens being written: 1 + 2 x 4 + 0.5 x 14, then 2 x 4 + 0.5 x 16."""
    timing = {"kind": "linear", "prefill": [10, 0, 0, 0], "decode": [1, 2, 0.5], "combine": "sum"}
    answer = simulate(drafted(sent(10, 9), accepted=1, timing=timing))
    assert [each["end_ms"] for each in answer["passes"]][:3] == [10, 26, 43]
    assert [each["decode_requests"] for each in answer["passes"]][:3] == [0, 1, 1]
    assert [each["decode_kv_tokens"] for each in answer["passes"]][:3] == [0, 14, 16]


def test_phases_count_rows():
    """V16: b stays the number of rows; their mean context has the drafts."""
    timing = {"kind": "phase", "prefill": [10, 0, 0], "decode": [1, 2, 0.5], "floor": 0}
    answer = simulate(drafted(sent(10, 9), accepted=1, timing=timing))
    assert [each["end_ms"] for each in answer["passes"]][:3] == [10, 20, 31]


def test_blocks_are_held_for_drafts_and_stay_held():
    """V16: 14 + 1 + 3 tokens need a second block, though one token is computed; so the newcomer has to wait."""
    memory = {"num_gpu_blocks": 4, "enable_prefix_caching": False}
    asked = drafted(sent(14, 6), sent(17, 1, 25), accepted=0, **memory)
    assert column(asked, "admitted_ms") == [0, 60]
    assert column(replay(sent(14, 6), sent(17, 1, 5), **memory), "admitted_ms") == [0, 10]


def test_drafts_preempt():
    """V8, V16: a row needs its blocks with all drafts."""
    memory = {"num_gpu_blocks": 3, "enable_prefix_caching": False}
    assert column(drafted(sent(13, 5), sent(10, 3), accepted=0, **memory), "preemptions") == [0, 1]
    assert column(replay(sent(13, 4), sent(10, 3), **memory), "preemptions") == [0, 0]


def test_a_resumed_prompt_has_no_drafts_and_the_stream_goes_on():
    """V8, V16: resuming is a prefill that emits one token; the row after it has the next number."""
    memory = {"num_gpu_blocks": 4, "enable_prefix_caching": False}
    asked = drafted(sent(20, 12), sent(12, 12), accepted=0.5, **memory)
    assert column(asked, "preemptions") == [0, 4]
    assert [rows[1] for rows in plans(asked) if 1 in rows] == [12, 4, 14, 15, 16, 17, 4, 4, 3, 1]
    assert column(asked, "token_ms")[1] == [10, 20, 40, 60, 80, 100, 110, 110, 120, 130, 130, 140]


def test_lookahead_knows_what_the_pass_in_flight_brings():
    """V12, V16: the end is foreseen, so no row is wasted and the successor's seat comes a pass later."""
    asked = drafted(sent(10, 5), sent(10, 30), sent(10, 1), accepted=3, max_num_seqs=2, async_scheduling=True)
    assert plans(asked)[:4] == [{0: 10, 1: 10}, {0: 4, 1: 4}, {1: 4}, {1: 4, 2: 10}]
