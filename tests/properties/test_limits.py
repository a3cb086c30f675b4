"""What the engine may never exceed, read off the passes and the tokens."""

import numpy as np
import pytest

import passcal as pc
from passcal.evaluate import measure
from tests.modes import evicts_the_newest, in_order, never_pauses
from tests.worlds import World, everywhere, token_times, worlds

pytestmark = pytest.mark.slow


@everywhere(worlds)
def test_no_pass_exceeds_the_budget_or_the_seats(world: World):
    """SGLang's budget is of passes with prompts, and without chunks it is of the prompts behind the first (S7, S8)."""
    passes = world.ask().passes()
    tokens, rows = passes["prefill_tokens"] + passes["decode_requests"], passes["prefill_requests"]
    assert (rows + passes["decode_requests"]).max() <= world.limits.seats
    if world.limits.budget is None:
        assert (tokens[rows > 1] < world.spec.max_prefill_tokens).all()
    elif world.backend == "sglang":
        assert (tokens[rows > 0] <= world.limits.budget).all()
    else:
        assert tokens.max() <= world.limits.budget


@everywhere(worlds)
def test_prefills_pause_decodes_only_where_the_engine_says_so(world: World):
    """SGLang without mixed chunks has passes of either kind; nobody else keeps them apart (S2)."""
    passes = world.ask().passes()
    if world.backend == "sglang" and not world.spec.enable_mixed_chunk:
        assert (passes["prefill_requests"] * passes["decode_requests"]).max() == 0


@everywhere(worlds)
def test_seats_are_held_from_admission_to_the_end(world: World):
    report = world.ask()
    if report.preemptions:  # a preempted sequence gives its seat back in between
        return
    frame = report.requests()
    opening, closing = np.sort(frame["admitted_ms"]), np.sort(frame["done_ms"])
    held = np.arange(1, len(frame) + 1) - np.searchsorted(closing, opening, side="right")
    assert held.max() <= world.limits.seats


@everywhere(worlds)
def test_chunks_keep_to_the_threshold(world: World):
    """vLLM: with chunking on, nobody's chunk exceeds the cap while several requests are there."""
    cap = getattr(world.spec, "long_prefill_token_threshold", 0)
    if cap:
        passes = world.ask().passes()
        crowded = passes[passes["prefill_requests"] > 1]
        assert (crowded["prefill_tokens"] <= cap * crowded["prefill_requests"]).all()


@everywhere(worlds)
def test_blocks_stay_within_the_pool(world: World):
    """The kernel's own count, and the least that the tokens stored must occupy.

    A row that a pass carries stores its newest token, too; in SGLang's it may sit out.
    """
    if world.limits.blocks is None:
        return
    usable, size = world.limits.blocks, world.limits.block
    measured = measure(world.workload, pc.Aggregated(world.spec), world.timing, pc.Drained())
    counted = usable * size if world.backend == "sglang" else usable  # SGLang's is in tokens
    assert 0 < measured.state.runs["blocks"][measured.runs].max() <= counted == measured.state.ranks["usable"][0]
    report = world.ask()
    starts, stored = report.passes()["start_ms"].to_numpy(), 0
    for row, emitted in zip(report.requests().itertuples(), token_times(report), strict=True):
        if not row.preemptions:
            here = (row.first_ms <= starts) & (starts < row.done_ms)
            tokens = row.isl + np.searchsorted(emitted, starts, side="right") - (not never_pauses(world.spec))
            stored = stored + here * -(-tokens // size)
    assert np.max(stored) <= usable


@everywhere(worlds)
def test_first_visible_first_admitted(world: World):
    if in_order(world.spec):
        frame = world.ask().requests().sort_values(["visible_ms", "request"], kind="stable")
        assert frame["admitted_ms"].is_monotonic_increasing


@everywhere(worlds)
def test_rows_do_not_starve(world: World):
    """Who decodes gets a token in every pass; in SGLang in every pass that has rows at all. Evicted ones aside."""
    if world.backend == "trtllm" and not never_pauses(world.spec):
        return
    report = world.ask()
    passes, frame = report.passes(), report.requests()
    ends = passes["end_ms"].to_numpy()
    if not never_pauses(world.spec):
        ends = ends[passes["decode_requests"] > 0]
    chances = np.searchsorted(ends, frame["done_ms"], "right") - np.searchsorted(ends, frame["first_ms"], "right")
    undisturbed = frame["preemptions"] == 0
    assert (chances[undisturbed] == frame["osl"][undisturbed] - 1).all()


@everywhere(worlds)
def test_the_oldest_is_never_evicted(world: World):
    if evicts_the_newest(world.spec):
        frame = world.ask().requests()
        assert frame.sort_values(["admitted_ms", "visible_ms", "request"], kind="stable")["preemptions"].iloc[0] == 0
