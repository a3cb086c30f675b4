"""S18: ranks of SGLang that plan alone and pass together. Every pass takes 10 ms, unless told otherwise."""

import pytest

from tools.oracle import simulate
from tools.oracle.sglang import SglangScheduler

from .building import asked_of, column, sent, shapes

BY_TOKEN = {"kind": "linear", "prefill": [0, 1, 0, 0], "decode": [5, 0, 0], "combine": "sum"}


def sglang(*requests: dict, overlap: bool = False, timing: dict | None = None, **engine: object) -> dict:
    """A replay on two ranks without overlap, unless told otherwise."""
    engine = {"dp_size": 2, "disable_overlap_schedule": not overlap, **engine}
    return asked_of("sglang", *requests, **({"timing": timing} if timing else {}), **engine)


def test_the_ranks_share_the_chunk():
    """S18: each has 50 of 101 tokens."""
    assert shapes(sglang(sent(120, 1), chunked_prefill_size=101)) == [(50, 1, 0), (50, 1, 0), (20, 1, 0)]


def test_the_ranks_share_the_slots():
    """S18: one of three for each; the third and the fourth wait."""
    asked = sglang(*[sent(10, 3)] * 4, max_running_requests=3)
    assert column(asked, "engine") == [0, 1, 0, 1]
    assert column(asked, "admitted_ms") == [0, 0, 30, 30]


@pytest.mark.parametrize(("prefill", "chunks"), [(100, 1), (99, 1), (59, 2)])
def test_no_rank_shares_max_prefill_tokens(prefill: int, chunks: int):
    """S7, S18: 60 + 60 tokens go while the first leaves anything of it; with half of it, 50, never."""
    asked = sglang(*[sent(60, 1)] * 4, max_prefill_tokens=prefill)
    assert [each[1] for each in shapes(asked)] == [2 // chunks] * chunks


@pytest.mark.parametrize(("ranks", "ratio"), [(1, 0.7), (2, 0.7 * 0.3)])
def test_less_is_expected_of_the_outputs(ranks: int, ratio: float):
    """S18: conservativeness times 0.3."""
    assert SglangScheduler({"dp_size": ranks}).ratio == pytest.approx(ratio)


def test_the_slowest_rank_is_waited_for():
    """E1: ranks at 5 and 20 ms from 100 end at 120; arrivals at 101, on the rank that is idle too, run at 120."""
    asked = sglang(sent(5, 1, 100), sent(20, 1, 100), sent(1, 1, 101), sent(1, 1, 101), timing=BY_TOKEN, dp_size=3)
    assert column(asked, "token_ms") == [[120], [120], [121], [121]]


@pytest.mark.parametrize(("overlap", "start_ms"), [(False, 10), (True, 20)])
def test_an_empty_batch_counts_as_launched(overlap: bool, start_ms: float):
    """S1, S18: rank 1 is idle, and yet an arrival during the group's pass joins the second pass after it."""
    assert column(sglang(sent(10, 9), sent(10, 1, 3), overlap=overlap), "admitted_ms") == [0, start_ms]


def test_an_empty_batch_is_not_written_down():
    """S18: rank 1 has no pass."""
    assert {each["engine"] for each in simulate(sglang(sent(10, 4), overlap=True))["passes"]} == {0}


def test_an_idle_group_starts_at_once():
    """S1, S18: whichever rank the arrival is on."""
    asked = sglang(sent(10, 2), sent(10, 2, 100), sent(10, 2, 300), sent(10, 2, 307), overlap=True)
    assert column(asked, "admitted_ms") == [0, 100, 300, 320]


@pytest.mark.parametrize(("interval", "start_ms"), [(0, 10), (1, 20), (3, 40)])
def test_a_prefill_on_one_rank_defers_those_of_all(interval: int, start_ms: float):
    """S14, S18: rank 0's prompt keeps rank 1's waiting, though nothing decodes there."""
    asked = sglang(sent(10, 9), sent(10, 1, 3), prefill_decode_interval=interval)
    assert column(asked, "admitted_ms") == [0, start_ms]


def test_prefills_of_one_round_do_not_defer_each_other():
    """S14, S18: the counter is set for later rounds."""
    asked = sglang(*[sent(10, 9)] * 2, *[sent(10, 9, 3)] * 2, prefill_decode_interval=2)
    assert column(asked, "admitted_ms") == [0, 0, 30, 30]


def test_rounds_without_a_pass_lower_the_counter_of_all():
    """S14, S18: the round at 10 is idle, and so are those of the next two arrivals, on whichever rank they are."""
    asked = sglang(sent(10, 1), sent(10, 1, 100), sent(10, 1, 200), sent(10, 1, 300), prefill_decode_interval=3)
    assert column(asked, "admitted_ms") == [0, 300, 300, 300]


MIXED_LOAD = [sent(isl, osl, at) for isl, osl, at in [(90, 5, 0), (300, 9, 3), (40, 1, 12), (700, 4, 50), (60, 30, 55)]]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_rank_that_has_everything_is_an_engine(overlap: bool):
    """S18: with the others idle, and its share of the limits, it does what an engine without ranks does."""
    engine = {"disable_overlap_schedule": not overlap, "enable_mixed_chunk": True}
    alone = asked_of("sglang", *MIXED_LOAD, chunked_prefill_size=128, max_running_requests=3, **engine)
    pinned = [{**request, "data_parallel_rank": 0} for request in MIXED_LOAD]
    group = asked_of("sglang", *pinned, chunked_prefill_size=257, max_running_requests=7, dp_size=2, **engine)
    assert simulate(group) == simulate(alone)
