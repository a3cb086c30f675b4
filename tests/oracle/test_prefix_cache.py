"""V9: identities, hits, and the order in which blocks are lost."""

import pytest

from tools.oracle.kv import BlockPool

from .building import column, plans, replay, sent


def test_a_token_is_left_to_compute():
    """V9: 512 cached of 512 are a hit of 496."""
    asked = replay(sent(512, 1, 0, 0, 7, 512), sent(512, 1, 50, 0, 7, 512))
    assert column(asked, "cached") == [0, 496]
    assert plans(asked) == [{0: 512}, {1: 16}]


def test_equal_prompts_of_one_pass_share():
    """V9: registration is at planning, so the second finds the first's blocks."""
    asked = replay(sent(100, 1, 0, 0, 7, 100), sent(100, 1, 0, 0, 7, 100))
    assert plans(asked) == [{0: 100, 1: 4}]


def test_only_full_blocks_of_the_shared_prefix_hit():
    """V9: a block's identity is its whole prefix; 40 shared tokens are two full blocks, another group none."""
    asked = replay(sent(100, 1, 0, 0, 7, 40), sent(100, 1, 50, 0, 7, 90), sent(100, 1, 100, 0, 8, 90))
    assert column(asked, "cached") == [0, 32, 0]


def test_caching_can_be_off():
    """V9: then equal prompts are computed twice."""
    asked = replay(sent(100, 1, 0, 0, 7, 100), sent(100, 1, 50, 0, 7, 100), enable_prefix_caching=False)
    assert column(asked, "cached") == [0, 0]


def test_a_hit_that_nobody_holds_counts_as_needed():
    """V6, V9: two cached blocks and two free ones; with a decode holding three, four are still needed of four."""
    prompts = [sent(33, 1, 0, 0, 7, 33), sent(40, 4, 10), sent(60, 1, 20, 0, 7, 33)]
    assert column(replay(*prompts, num_gpu_blocks=8), "admitted_ms")[2] == 20
    assert column(replay(*prompts, num_gpu_blocks=7), "admitted_ms")[2] == 50


def test_a_resumed_sequence_finds_what_is_left_of_itself():
    """V9: preempted with 33 known tokens, it gets back the block that nobody took."""
    asked = replay(sent(16, 32), sent(16, 32), num_gpu_blocks=5)
    assert column(asked, "preemptions") == [0, 1]
    assert plans(asked)[32] == {1: 17}


@pytest.mark.parametrize(("prefix", "cached", "first"), [(40, 40, 60), (100, 99, 1), (0, 0, 100)])
def test_a_constant_prefix_needs_no_computing(prefix: int, cached: int, first: int):
    """The scenario's own prefix: at the first admission, and at least one token is computed."""
    asked = replay(sent(100, 2, 0, prefix))
    assert column(asked, "cached") == [cached]
    assert plans(asked) == [{0: first}, {0: 1}]


def test_a_constant_prefix_holds_blocks_and_is_lost_with_them():
    """Its blocks are taken like any; a preempted sequence starts over from nothing."""
    asked = replay(sent(16, 32, 0, 10), sent(16, 32, 0, 10), num_gpu_blocks=5, enable_prefix_caching=False)
    assert plans(asked)[0] == {0: 6, 1: 6}
    assert plans(asked)[32] == {1: 33}


def test_blocks_return_last_first_and_unknown_ones_are_taken_first():
    """V9: known blocks to the tail, last one first; unknown ones to the front."""
    pool = BlockPool(6)
    held = [pool.take() for _ in range(4)]
    for index in range(3):
        pool.register(held[index], index)
    pool.release(reversed(held))
    assert [pool.take().number for _ in range(6)] == [3, 4, 5, 2, 1, 0]
    assert all(pool.find(index) is None for index in range(3))


def test_the_oldest_copy_is_found_and_eviction_removes_one():
    """V9: several blocks may hold one content."""
    pool = BlockPool(2)
    old, new = pool.take(), pool.take()
    pool.register(old, "same")
    pool.register(new, "same")
    assert pool.find("same") is old
    pool.release([old])
    assert pool.take() is old
    assert pool.find("same") is new


def test_a_held_block_leaves_the_free_queue_until_the_last_holder_goes():
    """V9: what is shared is freed once."""
    pool = BlockPool(2)
    block = pool.take()
    pool.register(block, "x")
    pool.release([block])
    pool.hold(block)
    pool.hold(block)
    assert pool.free == 1
    pool.release([block])
    assert pool.free == 1
    pool.release([block])
    assert pool.free == 2
