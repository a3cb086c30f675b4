"""V15: prefills wait for every N-th pass of the group. Every pass takes 10 ms."""

import pytest

from .building import column, plans, replay, sent

LONG = sent(10, 30)


@pytest.mark.parametrize(("interval", "start_ms"), [(1, 10), (3, 30), (4, 40), (10, 100)])
def test_a_prompt_waits_for_the_step(interval: int, start_ms: float):
    """V15: passes 0, N, 2N, ... admit; an arrival during pass 0 waits for pass N."""
    assert column(replay(LONG, sent(10, 2, 5), prefill_schedule_interval=interval), "admitted_ms")[1] == start_ms


def test_lookahead_counts_the_same_passes():
    """V12, V15: pass 4 is decided when pass 3 starts, at 30: who comes at 31 waits for pass 8."""
    asked = replay(LONG, sent(10, 2, 30), sent(10, 2, 31), prefill_schedule_interval=4, async_scheduling=True)
    assert column(asked, "admitted_ms") == [0, 40, 80]


def test_without_a_decode_nothing_waits():
    """V15: when the first request is done, the next starts at once, whatever the step."""
    asked = replay(sent(10, 3), sent(10, 1, 15), sent(10, 1, 16), prefill_schedule_interval=8)
    assert column(asked, "admitted_ms") == [0, 30, 30]


def test_leavers_are_no_decodes():
    """V12, V15: with the last output in flight there is no row to take, so pass 3 need not wait."""
    asked = replay(sent(10, 3), sent(10, 1, 15), prefill_schedule_interval=8, async_scheduling=True)
    assert column(asked, "admitted_ms") == [0, 30]


def test_whom_capacity_kept_out_waits_for_no_step():
    """V15: pass 0 left the third request without a seat, so it starts when the first one leaves; the fourth, who came
    while nobody waited, waits for step 8."""
    asked = replay(sent(10, 3), LONG, sent(10, 3), sent(10, 1, 35), prefill_schedule_interval=8, max_num_seqs=2)
    assert column(asked, "admitted_ms") == [0, 0, 30, 80]


def test_unfinished_prompts_are_skipped():
    """V15: a prompt cut by the budget goes on at the next step; its blocks and seat stay."""
    asked = replay(sent(10, 9), sent(150, 2), prefill_schedule_interval=3, max_num_batched_tokens=100, max_num_seqs=4)
    assert plans(asked)[:5] == [{0: 10, 1: 90}, {0: 1}, {0: 1}, {0: 1, 1: 60}, {0: 1, 1: 1}]


def test_one_token_is_no_prefill():
    """V15: what needs one token may start, but not behind one that needs more."""
    asked = replay(LONG, sent(33, 1, 11, 32), sent(9, 1, 21), sent(1, 1, 22), prefill_schedule_interval=6)
    assert column(asked, "admitted_ms") == [0, 20, 60, 60]


def test_the_count_starts_over_when_the_group_drains():
    """V15: the pass at 100 is pass 0 again; so a prompt at 105 waits until 140."""
    asked = replay(sent(10, 3), sent(10, 9, 100), sent(10, 1, 105), prefill_schedule_interval=4)
    assert column(asked, "admitted_ms") == [0, 100, 140]


def test_a_successor_at_the_end_of_the_pass_keeps_the_group_going():
    """V15: all that ran is done, but there is something to run: the pass at 30 is pass 3, and pass 4 a step."""
    asked = replay(sent(10, 3), sent(10, 9, 30), sent(10, 1, 31), prefill_schedule_interval=4)
    assert column(asked, "admitted_ms") == [0, 30, 40]


def test_the_step_is_the_groups():
    """E1, V15: rank 1, busy since pass 2, has its next step at pass 4 as rank 0 does; idle, it admits at any time."""
    requests = [LONG, sent(10, 30, 15), sent(10, 1, 25), sent(10, 1, 25)]
    asked = replay(*requests, prefill_schedule_interval=4, data_parallel_size=2)
    assert column(asked, "admitted_ms") == [0, 20, 40, 40]
