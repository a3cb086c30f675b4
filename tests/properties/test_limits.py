"""What the engine may never exceed, read off the passes and the tokens."""

import numpy as np
import pytest
from hypothesis import given

import passcal as pc
from passcal.assemble import assemble
from tests.worlds import World, token_times, worlds

pytestmark = pytest.mark.slow


@given(worlds)
def test_no_pass_exceeds_the_budget_or_the_seats(world: World):
    passes = world.ask().passes()
    assert (passes["prefill_tokens"] + passes["decode_requests"]).max() <= world.spec.max_num_batched_tokens
    assert (passes["prefill_requests"] + passes["decode_requests"]).max() <= world.spec.max_num_seqs


@given(worlds)
def test_seats_are_held_from_admission_to_the_end(world: World):
    report = world.ask()
    if report.preemptions:  # a preempted sequence gives its seat back in between
        return
    frame = report.requests()
    opening, closing = np.sort(frame["admitted_ms"]), np.sort(frame["done_ms"])
    held = np.arange(1, len(frame) + 1) - np.searchsorted(closing, opening, side="right")
    assert held.max() <= world.spec.max_num_seqs


@given(worlds)
def test_chunks_keep_to_the_threshold(world: World):
    """With chunking on, nobody's chunk exceeds the cap while several requests are there."""
    cap, passes = world.spec.long_prefill_token_threshold, world.ask().passes()
    if cap:
        crowded = passes[passes["prefill_requests"] > 1]
        assert (crowded["prefill_tokens"] <= cap * crowded["prefill_requests"]).all()


@given(worlds)
def test_blocks_stay_within_the_pool(world: World):
    """The kernel's own count, and the least that the tokens stored must occupy."""
    if world.spec.num_gpu_blocks is None:
        return
    usable, size = world.spec.num_gpu_blocks - 1, world.spec.block_size
    machine = assemble(world.workload, pc.Aggregated(world.spec), world.timing)
    pc.Drained().measure(machine)
    assert 0 < machine.state.runs["blocks"][: int(machine.world["runs"])].max() <= usable
    report = world.ask()
    starts, stored = report.passes()["start_ms"].to_numpy(), 0
    for row, emitted in zip(report.requests().itertuples(), token_times(report), strict=True):
        if not row.preemptions:
            here = (row.first_ms <= starts) & (starts < row.done_ms)
            stored = stored + here * -(-(row.isl + np.searchsorted(emitted, starts, side="right")) // size)
    assert np.max(stored) <= usable


@given(worlds)
def test_first_visible_first_admitted(world: World):
    frame = world.ask().requests().sort_values(["visible_ms", "request"], kind="stable")
    assert frame["admitted_ms"].is_monotonic_increasing
