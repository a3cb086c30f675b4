"""V13: with an offload tier, what flies is not preempted. Every pass takes 10 ms."""

import pytest

from .building import column, plans, replay, sent

TIGHT = {"num_gpu_blocks": 3, "enable_prefix_caching": False}
PAIR = (sent(14, 9), sent(10, 6))


@pytest.mark.parametrize(("ahead", "tier"), [(True, False), (False, True), (False, False)])
def test_without_a_tier_or_without_lookahead_the_last_goes_at_once(ahead: bool, tier: bool):
    """V8: request 0 wants its second block in pass 3, and gets it."""
    seen = plans(replay(*PAIR, **TIGHT, async_scheduling=ahead, host_offload=tier))
    assert [0 in rows for rows in seen[:5]] == [True] * 5
    assert [1 in rows for rows in seen[:5]] == [True, True, True, False, False]


def test_who_needs_the_blocks_of_what_flies_waits_a_pass():
    """V13: request 1 flies in pass 2 when pass 3 is decided: neither is in pass 3, so the pipeline drains, and then it goes."""
    asked = replay(*PAIR, **TIGHT, async_scheduling=True, host_offload=True)
    assert plans(asked)[:4] == [{0: 14, 1: 10}, {0: 1, 1: 1}, {0: 1, 1: 1}, {0: 1}]
    assert column(asked, "preemptions") == [0, 1]
    assert column(asked, "token_ms")[0][:5] == [10, 20, 30, 40, 50]


def test_those_before_it_go_on_and_those_behind_it_wait_too():
    """V13: request 1 needs a block that request 2 has: pass 3 is request 0's alone, and then request 2 goes."""
    asked = replay(
        sent(4, 20), *PAIR, num_gpu_blocks=4, enable_prefix_caching=False, async_scheduling=True, host_offload=True
    )
    assert [list(rows) for rows in plans(asked)[:5]] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0], [0, 1]]
    assert column(asked, "preemptions") == [0, 0, 1]


def test_nobody_is_admitted_past_who_waits():
    """V13: a newcomer for whom a block would do gets none while request 1 waits for two."""
    requests = [sent(4, 40), sent(14, 9), sent(10, 30), sent(5, 1, 15)]
    engine = {"enable_prefix_caching": False, "async_scheduling": True, "host_offload": True}
    for blocks, start_ms in ((5, 30), (4, 60)):
        assert column(replay(*requests, num_gpu_blocks=blocks, **engine), "admitted_ms")[3] >= start_ms
