"""vLLM with speculation (V16): what drafts cost, when accepted ones appear, what they hold."""

from math import floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES
from tests.worlds import World, endless_worlds, same, token_times, worlds

TEN_MS = pc.LinearTiming((10.0,), (10.0,), combine="max")
VLLM = st.sampled_from([mode for mode in MODES.values() if mode.backend == "vllm"])
WORLDS, ENDLESS = VLLM.flatmap(worlds), VLLM.flatmap(endless_worlds)
BY_TOKEN = pc.LinearTiming((0.0, 1.0), (0.0, 1.0, 0.001))


def run(rows: list[tuple[float, int, int]], drafts: int, accepted: float, timing: Any = TEN_MS, **engine: Any) -> Any:
    """Requests of a replay (dispatch_ms, isl, osl) on a synchronous engine unless told otherwise."""
    options = {
        "async_scheduling": False,
        "enable_prefix_caching": False,
        "speculation": {"drafts": drafts, "accepted": accepted},
    }
    return pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(**options | engine), timing)


def test_accepted_drafts_appear_with_the_token():
    """Mean 1.5: one, two, one, two; the last row has one token left and no draft."""
    assert run([(0, 5, 11)], 3, 1.5).token_ms(0) == [10, *[20] * 2, *[30] * 3, *[40] * 2, *[50] * 3]
    assert run([(0, 5, 12)], 3, 1.5).token_ms(0)[-2:] == [50, 60]


def test_tokens_of_a_pass_have_no_gap():
    report = run([(0, 5, 11)], 3, 1.5)
    gaps = np.diff(report.token_ms(0))
    assert report.itl_ms.mean == pytest.approx(gaps.mean())
    assert report.itl_ms.quantile(0.5) == 0
    assert report.tpot_ms.mean == pytest.approx(4.0)


def test_a_row_is_priced_by_its_query_tokens_and_their_contexts():
    """Three drafts, the third row cut to the two tokens that are left behind it: 4 on 9, 4 on 10, then 3 on 10 and none on 9."""
    report = run([(0, 5, 5)], 3, 0.0, BY_TOKEN)
    assert np.diff(report.token_ms(0)) == pytest.approx([4.009, 3.009, 2.009, 1.009])


def test_drafts_take_from_the_budget():
    """Of eight tokens two rows take four each, and the prompt waits until the first is done."""
    report = run([(0, 3, 9), (0, 3, 9), (1, 8, 1)], 3, 3.0, max_num_batched_tokens=8, max_num_seqs=8)
    passes = report.passes()
    assert passes["prefill_tokens"].tolist()[:2] == [6, 0]
    assert report.requests()["done_ms"].tolist() == [30, 30, 40]


def test_a_short_budget_cuts_drafts_and_then_rows():
    """Five tokens: the first row takes four, the second one without drafts."""
    report = run([(0, 2, 9), (0, 2, 9)], 3, 3.0, max_num_batched_tokens=5, max_num_seqs=5)
    assert report.token_ms(0) == [10, *[20] * 4, *[30] * 4]
    assert report.token_ms(1)[:3] == [10, 20, 30]
    report = run([(0, 1, 9), (0, 1, 9)], 3, 3.0, max_num_batched_tokens=2, max_num_seqs=2)
    assert report.token_ms(1)[:2] == [10, 60]


@pytest.mark.parametrize(("drafts", "second"), [(0, 30), (3, 90)])
def test_rejected_drafts_hold_blocks(drafts: int, second: float):
    """Two blocks of four, two prompts of two: with drafts the older row takes a second block at its first decode, and the newer starts over."""
    report = run([(0, 2, 7), (0, 2, 3)], drafts, 0.0, block_size=4, num_gpu_blocks=3)
    assert report.requests()["done_ms"].tolist() == [70, second]


@settings(max_examples=60)
@given(WORLDS)
def test_no_drafts_are_no_speculation(world: World):
    assert same(world.but(engine={"speculation": {"drafts": 0, "accepted": 0}}).ask(), world.ask())


@settings(max_examples=60)
@given(WORLDS, st.integers(1, 5), st.floats(0, 1))
def test_every_token_appears_once(world: World, drafts: int, share: float):
    """Each request gets its osl tokens, the pooled gaps are those of the tokens, and the window counts all of them."""
    report = world.but(engine={"speculation": {"drafts": drafts, "accepted": drafts * share}}).ask()
    frame, tokens = report.requests(), token_times(report)
    assert [len(times) for times in tokens] == frame["osl"].tolist()
    assert [times[-1] for times in tokens] == frame["done_ms"].tolist()
    gaps = np.concatenate([np.diff(times) for times in tokens])
    assert (gaps >= 0).all()
    if len(gaps):
        assert report.itl_ms.mean == pytest.approx(gaps.mean(), rel=1e-9, abs=1e-9)
        assert report.itl_ms.quantile(0.7) == pytest.approx(np.quantile(gaps, 0.7, method="inverted_cdf"))


@settings(max_examples=30)
@given(st.integers(1, 4), st.floats(0, 1), st.integers(2, 80))
def test_a_lone_request_follows_the_stream(drafts: int, share: float, osl: int):
    mean, counts, left, j = drafts * share, [1], osl - 1, 0
    while left > 0:
        counts.append(1 + min(floor((j + 1) * mean) - floor(j * mean), left - 1))
        left, j = left - counts[-1], j + 1
    times = run([(0, 5, osl)], drafts, mean).token_ms(0)
    assert np.unique(times, return_counts=True)[1].tolist() == counts


@settings(max_examples=10, deadline=None)
@given(ENDLESS, st.sampled_from([(1, 0.5), (3, 2.25), (2, 2.0)]))
def test_a_cycle_is_what_a_long_run_settles_in(world: World, how: tuple[int, float]):
    """Little's identity holds in the cycle, and tokens of a turn are counted once."""
    world = world.but(engine={"speculation": {"drafts": how[0], "accepted": how[1]}}, traffic={"stagger_ms": 0.0})
    report = world.ask(stop=pc.LimitCycle(max_passes=20_000))
    clients = world.traffic["concurrency"]
    if report.window.kind == "cycle":
        assert report.e2e_ms.mean * report.throughput_per_s / 1000 == pytest.approx(clients, rel=1e-9)


def test_a_spec_that_accepts_more_than_it_drafts_is_refused():
    with pytest.raises(pc.SpecError, match=r"accepted=3\.0"):
        pc.Vllm(speculation={"drafts": 2, "accepted": 3})


def test_speculation_leaves_async_scheduling_on():
    rows = [(0.0, 5, 20), (12.0, 5, 1)]
    spoken = {"drafts": 1, "accepted": 0.5}
    late = pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(speculation=spoken), TEN_MS)
    assert (
        late.requests()["first_ms"].tolist() == run(rows, 1, 0.5, async_scheduling=True).requests()["first_ms"].tolist()
    )
