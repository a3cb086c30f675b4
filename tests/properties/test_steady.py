"""A limit cycle is a piece of the run itself, and exact identities hold over it."""

import numpy as np
import pytest
from hypothesis import assume

import passcal as pc
from tests.worlds import CLOCK, World, endless_worlds, everywhere

pytestmark = pytest.mark.slow

SEARCH = pc.LimitCycle(max_passes=20_000, jump_after=None)


def cycle_of(world: World) -> pc.Report:
    """The report over a limit cycle; examples that find none do not count."""
    report = world.ask(stop=SEARCH)
    assume(report.window.kind == "cycle")
    return report


@everywhere(endless_worlds)
def test_littles_law(world: World):
    """Clients are always somewhere: C = X * E2E, exactly. E2E counts from dispatch, so the turnaround is inside."""
    report = cycle_of(world)
    clients = world.traffic["concurrency"]
    assert report.throughput_per_s * report.e2e_ms.mean / 1000 == pytest.approx(clients, rel=1e-9)
    assert report.window.requests == len(report.requests()) == report.e2e_ms.count
    assert report.window.passes == len(report.passes())
    assert report.itl_ms.count == (report.requests()["osl"] - 1).sum()


@everywhere(endless_worlds)
def test_a_cycle_balances(world: World):
    """What a cycle takes in it gives out: prompts, tokens, requests of every shape alike."""
    report = cycle_of(world)
    frame, passes = report.requests(), report.passes()
    if not report.preemptions:
        assert passes["prefill_tokens"].sum() == (frame["isl"] - world.cached(frame["prefix"])).sum()
        assert passes["decode_requests"].sum() == (frame["osl"] - 1).sum()
    assert len(frame) % len(world.workload.shapes) == 0
    assert frame["dispatch_ms"].iloc[-1] - frame["dispatch_ms"].iloc[0] <= report.window.length_ms * (1 + 1e-9)
    assert report.output_tokens_per_s == pytest.approx(1000 * frame["osl"].sum() / report.window.length_ms, rel=1e-9)
    assert 0 < report.utilisation <= 1 + 1e-9


@everywhere(endless_worlds)
def test_a_cycle_is_a_piece_of_the_run(world: World):
    """The search keeps no log and uses rows again; a run that logs everything shows the same requests."""
    cycle = cycle_of(world).requests()
    assume(cycle["request"].max() < 4000)
    more = int(cycle["request"].max()) + 200
    run = world.but({"requests": more}).ask().requests()
    piece = run.iloc[cycle["request"].iloc[0] : cycle["request"].iloc[-1] + 1].reset_index(drop=True)
    np.testing.assert_allclose(piece, cycle, rtol=1e-12)


@everywhere(endless_worlds, share=0.5)
def test_the_next_turn_is_the_same(world: World):
    """Latencies repeat with the period that was found."""
    cycle = cycle_of(world).requests()
    period = len(cycle)
    assume(cycle["request"].max() + 2 * period < 4000)
    run = world.but({"requests": int(cycle["request"].max()) + 2 * period + 200}).ask().requests()
    since = run[["visible_ms", "admitted_ms", "first_ms", "done_ms"]].sub(run["dispatch_ms"], axis=0).to_numpy()
    first = int(cycle["request"].iloc[0])
    np.testing.assert_allclose(
        since[first : first + period], since[first + period : first + 2 * period], rtol=1e-7, atol=1e-6
    )


def test_the_start_up_can_outlast_sixty_generations():
    """The house's example: 184 ms after four generations, 94 ms in the cycle that follows."""
    report = pc.evaluate_closed_loop(
        pc.Workload.closed_loop(4096, 64, 16), pc.Vllm(), pc.LinearTiming((5.0, 0.02, 1e-6), (8.0, 0.05, 2e-6))
    )
    assert report.window.kind == "cycle"
    frame = report.benchmark(16 * 70).requests()
    generation = (frame["first_ms"] - frame["dispatch_ms"]).to_numpy().reshape(70, 16).mean(axis=1)
    assert generation[3] > 1.5 * report.ttft_ms.mean
    assert generation[-1] == pytest.approx(report.ttft_ms.mean, rel=0.05)


def test_the_initial_phase_chooses_the_cycle():
    """The house's example: cohorts of four when clients start together, one by one when they start spread."""
    loop, engine = pc.Workload.closed_loop(512, 128, 32), pc.Vllm(max_num_batched_tokens=2048, async_scheduling=False)
    ask = pc.evaluate_closed_loop
    timing = pc.LinearTiming((5.0, 0.02, 1e-6), (8.0, 0.05, 2e-6))
    burst, spread = (ask(loop, engine, timing, start=start) for start in ("burst", "spread"))
    assert [(a.start, a.ttft_mean_ms) for a in burst.attractors] == [
        ("burst", burst.ttft_ms.mean),
        ("spread", spread.ttft_ms.mean),
    ]
    assert burst.ttft_ms.mean == pytest.approx(44.6, abs=0.1)
    assert spread.ttft_ms.mean == pytest.approx(24.8, abs=0.1)
    assert burst.throughput_per_s == pytest.approx(19.8, abs=0.1)
    assert spread.throughput_per_s == pytest.approx(18.6, abs=0.1)


@pytest.mark.parametrize("phases", [2, 5])
def test_phases_mix_equally(phases: int):
    loop = pc.Workload.closed_loop(512, 128, 32)
    report = pc.evaluate_closed_loop(loop, pc.Vllm(max_num_batched_tokens=2048), CLOCK, phases=phases)
    assert len(report.phases) == phases
    assert report.ttft_ms.mean == pytest.approx(np.mean([part.ttft_ms.mean for part in report.phases]), rel=1e-12)
    assert report.throughput_per_s == pytest.approx(
        np.mean([part.throughput_per_s for part in report.phases]), rel=1e-12
    )
    assert sorted(report.requests()["phase"].unique()) == list(range(phases))
