"""Nothing is lost and nothing happens before its cause, whatever the traffic and the engine."""

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from tests.modes import sleeps_on
from tests.worlds import World, everywhere, replay_worlds, token_times, worlds

pytestmark = pytest.mark.slow


@everywhere(worlds)
def test_every_request_gets_its_tokens(world: World):
    report = world.ask()
    frame = report.requests()
    assert len(frame) == world.requests
    for row, tokens in zip(frame.itertuples(), token_times(report), strict=True):
        assert len(tokens) == row.osl
        assert (np.diff(tokens) > 0).all()
        assert tokens[0] == row.first_ms
        assert tokens[-1] == row.done_ms


@everywhere(worlds)
def test_work_is_conserved(world: World):
    """Prompt tokens are computed once and output tokens take a row each, except what preemption makes twice."""
    report = world.ask()
    frame, passes = report.requests(), report.passes()
    due = int((frame["isl"] - world.cached(frame["prefix"])).sum())
    assert passes["prefill_tokens"].sum() >= due
    assert report.preemptions == frame["preemptions"].sum()
    if not report.preemptions:
        assert passes["prefill_tokens"].sum() == due
        assert passes["decode_requests"].sum() == (frame["osl"] - 1).sum()
    contexts = sum(int(row.isl * (row.osl - 1) + (row.osl - 1) * row.osl // 2) for row in frame.itertuples())
    if not report.preemptions:
        assert passes["decode_kv_tokens"].sum() == contexts


@everywhere(worlds)
def test_causes_come_first(world: World):
    frame = world.ask().requests()
    ingest = world.traffic.get("ingest_us_per_token", 0.0) / 1000
    assert (
        frame["visible_ms"] == frame["dispatch_ms"] + world.traffic.get("turnaround_ms", 0.0) + frame["isl"] * ingest
    ).all()
    assert (frame["visible_ms"] <= frame["admitted_ms"]).all()
    assert (frame["admitted_ms"] < frame["first_ms"]).all()
    assert (frame["first_ms"] <= frame["done_ms"]).all()
    assert ((frame["first_ms"] == frame["done_ms"]) == (frame["osl"] == 1)).all()
    assert frame["dispatch_ms"].is_monotonic_increasing


@everywhere(replay_worlds, st.integers(1, 29))
def test_the_future_changes_nothing(world: World, kept: int):
    """Without its last requests a replay is the same until the first of them is sent."""
    rows = world.traffic["rows"]
    assume(kept < len(rows) and not sleeps_on(world.spec))
    whole, part = token_times(world.ask()), token_times(world.but({"rows": rows[:kept]}).ask())
    for tokens, others in zip(whole, part, strict=False):
        np.testing.assert_array_equal(tokens[tokens < rows[kept][0]], others[others < rows[kept][0]])


@everywhere(worlds)
def test_passes_do_not_overlap_and_carry_something(world: World):
    passes = world.ask().passes()
    assert (passes["end_ms"] > passes["start_ms"]).all()
    assert (passes["start_ms"].to_numpy()[1:] >= passes["end_ms"].to_numpy()[:-1]).all()
    assert (passes["prefill_requests"] + passes["decode_requests"] > 0).all()
    assert (passes["prefill_tokens"] >= passes["prefill_requests"]).all()


@everywhere(worlds)
def test_latencies_are_those_of_the_tokens(world: World):
    """The report's distributions, made from passes and stalls, against a plain count over all tokens."""
    report = world.ask()
    frame, tokens = report.requests(), token_times(report)
    gaps = np.sort(np.concatenate([np.diff(row) for row in tokens]))
    pooled = np.sort(np.repeat(report.itl_ms.values, report.itl_ms.weights))
    np.testing.assert_allclose(pooled, gaps, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(report.ttft_ms.values, frame["first_ms"] - frame["dispatch_ms"])
    np.testing.assert_array_equal(report.e2e_ms.values, frame["done_ms"] - frame["dispatch_ms"])
    np.testing.assert_array_equal(report.queue_ms.values, frame["admitted_ms"] - frame["visible_ms"])
    many = [row for row in tokens if len(row) > 1]
    np.testing.assert_allclose(report.tpot_ms.values, [(row[-1] - row[0]) / (len(row) - 1) for row in many], rtol=1e-12)
    busy = (report.passes()["end_ms"] - report.passes()["start_ms"]).sum()
    span = frame["done_ms"].max() - frame["dispatch_ms"].min()
    np.testing.assert_allclose(report.utilisation, busy / span, rtol=1e-9)
    np.testing.assert_allclose(report.throughput_per_s, 1000 * len(frame) / span, rtol=1e-9)
    np.testing.assert_allclose(report.output_tokens_per_s, 1000 * frame["osl"].sum() / span, rtol=1e-9)
