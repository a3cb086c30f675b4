"""V12 and V13: passes decided one ahead. Every pass takes 10 ms."""

import pytest

from .building import closed, column, plans, replay, sent

RUNNING = sent(10, 9)


@pytest.mark.parametrize(("arrival_ms", "sync_ms", "async_ms"), [(5, 10, 20), (10, 10, 20), (10.5, 20, 30)])
def test_an_arrival_during_a_pass_joins_the_pass_after_the_next(arrival_ms: float, sync_ms: float, async_ms: float):
    """V12: pass k+1 is decided when k starts; the end of k still counts as during k."""
    for ahead, start_ms in ((False, sync_ms), (True, async_ms)):
        asked = replay(RUNNING, sent(10, 1, arrival_ms), async_scheduling=ahead)
        assert column(asked, "admitted_ms")[1] == start_ms


def test_an_idle_engine_takes_an_arrival_at_once():
    """V12: nothing is in flight, so nothing was decided without it."""
    assert column(replay(sent(10, 2, 3), sent(10, 2, 100), async_scheduling=True), "admitted_ms") == [3, 100]


@pytest.mark.parametrize(("ahead", "start_ms"), [(False, 20), (True, 30)])
def test_a_seat_comes_a_pass_later(ahead: bool, start_ms: float):
    """V12: the finisher of pass 2 still has its seat when pass 3 is decided."""
    asked = replay(sent(10, 2), RUNNING, sent(10, 1), max_num_seqs=2, async_scheduling=ahead)
    assert column(asked, "admitted_ms")[2] == start_ms


@pytest.mark.parametrize(("ahead", "start_ms"), [(False, 20), (True, 30)])
def test_blocks_come_a_pass_later(ahead: bool, start_ms: float):
    """V13: so do its blocks."""
    asked = replay(sent(30, 2), RUNNING, sent(10, 1), num_gpu_blocks=4, async_scheduling=ahead)
    assert column(asked, "admitted_ms")[2] == start_ms


@pytest.mark.parametrize(("ahead", "start_ms"), [(False, 20), (True, 30)])
def test_a_successor_comes_a_pass_later(ahead: bool, start_ms: float):
    """V12: an ideal client's next request is seen at the end of the pass, and joins what is decided then."""
    asked = closed(2, 3, [10, 0, 2], [10, 0, 9], [10, 0, 1], async_scheduling=ahead)
    assert column(asked, "admitted_ms")[2] == start_ms


def test_a_drained_pipeline_starts_over_at_once():
    """V12: everybody ends in pass 2, so the successors start at its end."""
    asked = closed(2, 4, [10, 0, 2], async_scheduling=True)
    assert column(asked, "admitted_ms") == [0, 0, 20, 20]


def test_length_ends_are_foreseen():
    """V12: no row is planned behind the last output."""
    assert plans(replay(sent(10, 3), async_scheduling=True)) == [{0: 10}, {0: 1}, {0: 1}]


def test_any_turnaround_misses_the_pass():
    """V12: an ideal client makes the boundary, a real one does not."""
    for turnaround_ms, start_ms in ((0, 20), (0.5, 30.5)):
        asked = closed(2, 3, [10, 0, 2], [10, 0, 9], [10, 0, 1], plane={"turnaround_ms": turnaround_ms})
        assert column(asked, "admitted_ms")[2] == start_ms
