"""Two ways to say one thing give one answer, bit for bit."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import passcal as pc
from passcal.assemble import assemble
from passcal.machine import IdentitiesNeeded, Machine
from passcal.window import Measured
from tests.modes import MODES, Mode, sleeps_on
from tests.worlds import CLOCK, World, closed_worlds, everywhere, replay_worlds, same, times, worlds

pytestmark = pytest.mark.slow

HUGE = 32_000_000  # tokens of KV


@everywhere(worlds, st.sampled_from([0.25, 2.0, 8.0]))
def test_time_has_no_scale(world: World, k: float):
    """All durations times k (a power of two, so that rounding is the same) give all times by k."""
    slower = pc.LinearTiming(*(tuple(k * c for c in part) for part in (CLOCK.prefill, CLOCK.decode)))
    names = ("turnaround_ms", "ingest_us_per_token", "stagger_ms")
    traffic = {name: k * world.traffic[name] for name in names if name in world.traffic}
    if "rows" in world.traffic:
        traffic["rows"] = [(k * row[0], *row[1:]) for row in world.traffic["rows"]]
    if "lanes" in world.traffic:
        slow = [[turn | {"think_ms": k * turn["think_ms"]} for turn in lane] for lane in world.traffic["lanes"]]
        traffic["lanes"] = slow
    scaled, once = times(world.but(traffic, timing=slower).ask()), times(world.ask())
    for name in scaled:
        assert (scaled[name] == once[name] * (1 if name == "preemptions" else k)).all(), name


@everywhere(worlds)
def test_memory_that_never_binds_is_no_memory(world: World):
    assert same(world.with_kv(None).ask(), world.with_kv(HUGE).ask())


@everywhere(closed_worlds)
def test_a_replay_of_what_a_closed_loop_sent_is_that_closed_loop(world: World):
    assume(not sleeps_on(world.spec))
    loop = world.ask()
    sent = loop.requests()[["dispatch_ms", "isl", "prefix", "osl"]]
    assert same(loop, pc.evaluate(pc.Workload.replay(sent, **world.plane), world.spec, world.timing))


@given(st.integers(1, 900), st.integers(1, 60), st.integers(1, 20), st.booleans())
def test_one_shape_is_fixed_lengths(isl: int, osl: int, clients: int, lookahead: bool):
    engine = pc.Vllm(async_scheduling=lookahead, max_num_batched_tokens=512, max_num_seqs=8)
    plain = pc.Workload.closed_loop(isl, osl, clients)
    assert (
        plain
        == pc.Workload.closed_loop(isl, osl, clients, prefix=0)
        == pc.Workload.closed_loop(shapes=[(isl, osl)], concurrency=clients)
    )
    doubled = pc.Workload.closed_loop(shapes=[(isl, 0, osl)] * 2, concurrency=clients)
    ask = pc.evaluate_closed_loop
    one, other = (ask(w, engine, CLOCK, stop=pc.Window(requests=60, warmup=5)) for w in (plain, doubled))
    assert same(one, other)


@given(replay_worlds(MODES["vllm async"]))
def test_rows_are_read_in_every_form(world: World):
    rows = world.traffic["rows"]
    columns = dict(zip(("dispatch_ms", "isl", "prefix", "osl"), zip(*rows, strict=True), strict=True))
    expected = pc.Workload.replay(rows)
    kinds = [("dispatch_ms", "f8"), ("isl", "i8"), ("prefix", "i8"), ("osl", "i8")]
    for form in (columns, np.array(rows, kinds), [dict(zip(columns, row, strict=True)) for row in rows]):
        assert pc.Workload.replay(form) == expected


@everywhere(worlds)
def test_callbacks_that_state_the_formula_are_the_formula(world: World):
    a0, a1, d0, d1, d2 = 5.0, 0.0203, 8.0, 0.0517, 2.3e-6
    linear = world.but(timing=pc.LinearTiming((a0, a1), (d0, d1, d2))).ask()
    calls = pc.PhaseTiming(
        lambda batch, isl, prefix: a0 + a1 * batch * (isl - prefix),
        lambda batch, context: d0 + d1 * batch + d2 * batch * context,
    )
    asked = pc.evaluate(world.workload, world.spec, calls)
    np.testing.assert_allclose(times(asked), times(linear), rtol=1e-12)
    np.testing.assert_allclose(asked.passes(), linear.passes(), rtol=1e-12)


@everywhere(worlds, st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"]))
def test_one_replica_is_the_engine(world: World, routing: str):
    deployed = pc.Aggregated(world.spec, replicas=1, routing=routing)
    assert same(world.ask(), pc.evaluate(world.workload, deployed, world.timing))


@everywhere(replay_worlds, st.integers(2, 3))
def test_replicas_that_are_dealt_in_turn_are_so_many_engines(world: World, replicas: int):
    """A round robin deals by visibility, ties in dispatch order; each replica then runs as if it were alone."""
    assume(not sleeps_on(world.spec))
    deployed = pc.Aggregated(world.spec, replicas=replicas)
    try:
        together = pc.evaluate(world.workload, deployed, world.timing).requests()
    except pc.Unsupported:  # SGLang's prefix tree, which a retracted request needs
        reject()
    together = together.sort_values(["visible_ms", "request"], kind="stable")
    sent = pd.DataFrame(world.traffic["rows"], columns=["dispatch_ms", "isl", "prefix", "osl"])
    for k in range(min(replicas, len(sent))):
        here = together.iloc[k::replicas].sort_values("request")
        assert (here["worker"] == k).all()
        alone = world.but({"rows": sent.iloc[here["request"]]}).ask().requests()
        ours = here.drop(columns=["request", "worker"]).reset_index(drop=True)
        pd.testing.assert_frame_equal(ours, alone.drop(columns="request"), check_exact=True)


@everywhere(worlds, st.integers(1, 7), share=0.5)
def test_slices_of_a_run_are_the_run(world: World, passes: int):
    """The kernel keeps everything that it knows in the tables, so it may stop between any two passes."""
    whole, sliced = twins(world)
    while sliced.advance(passes):
        assert sliced.world["passes"] <= whole.world["passes"]
    n = len(whole.state.requests)
    assert sliced.world["now"] == whole.world["now"]
    assert sliced.world["passes"] == whole.world["passes"]
    assert (sliced.state.requests[:n] == whole.state.requests[:n]).all()
    assert same(drained(sliced, world), drained(whole, world))


def twins(world: World) -> tuple[Machine, Machine]:
    """Two machines of one world, the first of which has run to its end."""
    for identities in (False, True):
        one, other = (
            assemble(world.workload, pc.Aggregated(world.spec), world.timing, identities=identities) for _ in range(2)
        )
        try:
            pc.Drained().measure(one)
        except IdentitiesNeeded:
            continue
        return one, other
    raise AssertionError("identities are never asked for twice")


def drained(machine: Machine, world: World) -> pc.Report:
    """The report of a machine that has run to its end."""
    measured: Measured = pc.Drained().measure(machine)
    return pc.Report((measured,), world.timing, closed=world.closed, fidelity="", again=lambda *_: None)  # type: ignore[arg-type,return-value]


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_tables_grow_without_a_trace(mode: Mode):
    """A closed loop outgrows its tables, a replay of the same dispatches starts with room for all its requests."""
    rows = [(40 + 17 * k % 90, 0, 1 + 5 * k % 23) for k in range(31)]
    traffic = {"shapes": rows, "concurrency": 24, "requests": 6000}
    world = World(True, traffic, mode.pressed(seats=16, budget=256, kv_tokens=960), backend=mode.backend)
    kept = mode.backend == "sglang"  # a retracted request can hit its own pages
    machine = assemble(world.workload, pc.Aggregated(world.spec), world.timing, identities=kept)
    before = len(machine.state.requests), len(machine.state.runs)
    loop = drained(machine, world)
    assert before[0] < len(machine.state.requests)
    assert before[1] < len(machine.state.runs)
    sent = loop.requests()[["dispatch_ms", "isl", "prefix", "osl"]]
    assert same(loop, pc.evaluate(pc.Workload.replay(sent), world.spec, world.timing))
