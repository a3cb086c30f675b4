"""Sessions and a client's queue: their arrivals obey the law, and where they say no more than simpler traffic they are that traffic, bit for bit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES, Mode, sleeps_on
from tests.worlds import (
    World,
    everywhere,
    limited_worlds,
    planes,
    replay_worlds,
    session_worlds,
    shapes,
)

pytestmark = pytest.mark.slow

ALL = [
    "request",
    "dispatch_ms",
    "visible_ms",
    "admitted_ms",
    "first_ms",
    "done_ms",
    "isl",
    "prefix",
    "osl",
    "preemptions",
]


def alike(one: pc.Report, other: pc.Report) -> bool:
    """Whether two reports hold the same passes and requests, whatever else is told of these."""
    return one.requests()[ALL].equals(other.requests()[ALL]) and one.passes().equals(other.passes())


def sent_again(report: pc.Report, world: World) -> pc.Report:
    """A replay of what was dispatched."""
    sent = report.requests()[["dispatch_ms", "isl", "prefix", "osl"]]
    return pc.evaluate(pc.Workload.replay(sent, **world.plane), world.spec, world.timing)


@everywhere(session_worlds)
def test_a_replay_of_what_sessions_sent_is_those_sessions(world: World):
    assume(not sleeps_on(world.spec))
    report = world.ask()
    assert alike(report, sent_again(report, world))


@everywhere(session_worlds)
def test_turns_follow_answers(world: World):
    """A turn is sent when all of the one before is done and the think time is over, its calls with it; the first by the stagger."""
    report = world.ask()
    frame, lanes = report.requests().rename(columns={"session": "lane"}), world.traffic["lanes"]
    by_turn = frame.groupby(["lane", "turn"])
    first, last, done = by_turn["dispatch_ms"].min(), by_turn["dispatch_ms"].max(), by_turn["done_ms"].max()
    assert (first == last).all()
    for k, lane in enumerate(lanes):
        due = k * world.traffic.get("stagger_ms", 0.0) + lane[0]["think_ms"]
        for j, turn in enumerate(lane):
            assert first[k, j] == due
            asked = [(turn["isl"], turn["prefix"], turn["osl"]), *turn["calls"]]
            rows = frame[(frame["lane"] == k) & (frame["turn"] == j)]
            assert [*rows[["isl", "prefix", "osl"]].itertuples(index=False, name=None)] == asked
            due = done[k, j] + (lane[j + 1]["think_ms"] if j + 1 < len(lane) else 0.0)


@everywhere(session_worlds)
def test_requests_are_numbered_as_they_are_sent(world: World):
    """Ties by lane, and a turn's own request before its calls."""
    frame = world.ask().requests().assign(call=lambda f: f.get("call", 0))
    order = frame.sort_values(["dispatch_ms", "session", "call"], kind="stable")
    assert order["request"].is_monotonic_increasing


@everywhere(session_worlds)
def test_turns_are_their_requests(world: World):
    report = world.ask()
    frame, turns = report.requests(), report.turns()
    by_turn = frame.groupby(["session", "turn"])
    expected = pd.DataFrame(
        {
            "request": by_turn["request"].min(),
            "calls": by_turn.size() - 1,
            "dispatch_ms": by_turn["dispatch_ms"].first(),
            "first_ms": by_turn["first_ms"].first(),
            "done_ms": by_turn["done_ms"].max(),
        }
    ).reset_index()
    pd.testing.assert_frame_equal(turns, expected, check_dtype=False, check_exact=True)
    np.testing.assert_array_equal(report.turn_ms.values, turns["done_ms"] - turns["dispatch_ms"])


@everywhere(replay_worlds)
def test_sessions_of_one_turn_are_a_replay(world: World):
    lanes = [[pc.Turn(isl, osl, prefix=prefix, think_ms=at)] for at, isl, prefix, osl in world.traffic["rows"]]
    assert alike(world.ask(), pc.evaluate(pc.Workload.sessions(lanes, **world.plane), world.spec, world.timing))


@st.composite
def equal_turns(draw: st.DrawFn, mode: Mode) -> World:
    """Clients of one shape, each with as many requests as the others."""
    rows, clients = draw(shapes(1, mode.prefixes)), draw(st.integers(1, 12))
    traffic = {"shapes": rows, "concurrency": clients, "requests": clients * draw(st.integers(1, 6))} | draw(planes)
    traffic |= draw(st.sampled_from([{}, {}, {"stagger_ms": 13.0}]))
    return World(True, traffic, draw(mode.options(rows)), backend=mode.backend)


@everywhere(equal_turns)
def test_sessions_of_equal_turns_are_a_closed_loop(world: World):
    """Until a lane has no turn left, where a client of the loop may take one that another lane keeps."""
    ((isl, prefix, osl),), clients = world.traffic["shapes"], world.traffic["concurrency"]
    lane = [pc.Turn(isl, osl, prefix=prefix)] * (world.traffic["requests"] // clients)
    plane = world.plane | {"stagger_ms": world.traffic.get("stagger_ms", 0.0)}
    sessions = pc.evaluate(pc.Workload.sessions([lane] * clients, **plane), world.spec, world.timing)
    loop, last = world.ask(), sessions.turns().groupby("session")["done_ms"].max().min()
    ours, theirs = (report.requests()[ALL] for report in (sessions, loop))
    ours, theirs = (frame[frame["dispatch_ms"] < last] for frame in (ours, theirs))
    assert len(ours) >= clients or "stagger_ms" in world.traffic
    seen = ["admitted_ms", "first_ms", "done_ms"]
    assert ours[["request", "dispatch_ms", "visible_ms"]].equals(theirs[["request", "dispatch_ms", "visible_ms"]])
    assert ours[seen].where(ours[seen] <= last).equals(theirs[seen].where(theirs[seen] <= last))
    passes = [report.passes() for report in (sessions, loop)]
    assert passes[0][passes[0]["end_ms"] <= last].equals(passes[1][passes[1]["end_ms"] <= last])


@everywhere(limited_worlds)
def test_a_replay_of_what_a_limited_client_sent_is_that_replay(world: World):
    assume(not sleeps_on(world.spec))
    report = world.ask()
    assert alike(report, sent_again(report, world))


@everywhere(limited_worlds)
def test_a_limited_client_serves_in_order(world: World):
    """A request is sent at its time, but not before the one ahead of it, and with m under way not before one of these is done."""
    report, most = world.ask(), world.traffic["max_concurrency"]
    frame = report.requests()
    due, sent, done = (frame[name].to_numpy() for name in ("arrival_ms", "dispatch_ms", "done_ms"))
    np.testing.assert_array_equal(due, [row[0] for row in world.traffic["rows"]])
    assert [*frame[["isl", "prefix", "osl"]].itertuples(index=False, name=None)] == [
        r[1:] for r in world.traffic["rows"]
    ]
    for i in range(len(frame)):
        freed = np.sort(done[:i])[i - most] if i >= most else 0.0
        assert sent[i] == max(due[i], sent[i - 1] if i else 0.0, freed)
    np.testing.assert_array_equal(report.client_queue_ms.values, sent - due)


@everywhere(replay_worlds)
def test_a_limit_that_never_binds_is_none(world: World):
    limited = world.but({"max_concurrency": len(world.traffic["rows"])}).ask()
    assert alike(world.ask(), limited)
    assert limited.client_queue_ms.max == world.ask().client_queue_ms.max == 0.0


@everywhere(session_worlds, st.integers(2, 3), st.sampled_from(["round_robin", "least_loaded"]), share=0.5)
def test_several_workers_change_no_law(world: World, replicas: int, routing: str):
    """What sessions sent, replayed on the same workers, is routed and served the same."""
    assume(not sleeps_on(world.spec))
    deployed = pc.Aggregated(world.spec, replicas=replicas, routing=routing)
    report = pc.evaluate(world.workload, deployed, world.timing)
    sent = report.requests()[["dispatch_ms", "isl", "prefix", "osl"]]
    other = pc.evaluate(pc.Workload.replay(sent, **world.plane), deployed, world.timing)
    assert alike(report, other)
    assert report.requests()["worker"].equals(other.requests()["worker"])


@everywhere(limited_worlds, st.booleans(), share=0.5)
def test_a_benchmark_counts_the_clients_queue_or_not(world: World, include: bool):
    report = world.ask()
    run, frame = report.benchmark(include_client_queue=include), report.requests()
    begin = frame["arrival_ms"] if include else frame["dispatch_ms"]
    np.testing.assert_allclose(run.ttft_ms.values, frame["first_ms"] - begin, rtol=1e-12, atol=1e-9)
    assert run.requests().equals(frame)
    assert run.peak_concurrency <= world.traffic["max_concurrency"]


@everywhere(session_worlds, share=0.5)
def test_a_warm_up_leaves_its_turns_out(world: World):
    report = world.ask()
    run = report.benchmark(warmup=report.window.requests - 1)
    counted = report.turns()[report.turns()["request"] == report.window.requests - 1]
    assert run.turns().equals(counted.reset_index(drop=True))
    assert run.turn_ms.values.tolist() == (counted["done_ms"] - counted["dispatch_ms"]).tolist()
    assert run.requests()["session"].tolist() == report.requests()["session"].tolist()[-1:]


def test_many_lanes_take_turns():
    """A heap of hundreds, with ties; the order of the lanes is not that of their times."""
    starts = [17.0 * (k * 197 % 401 // 3) for k in range(400)]
    lanes = [[pc.Turn(isl=20 + k % 37, osl=1 + k % 5, think_ms=at)] for k, at in enumerate(starts)]
    rows = sorted(((at, 20 + k % 37, 0, 1 + k % 5) for k, at in enumerate(starts)), key=lambda row: row[0])
    timing = pc.LinearTiming((1.0, 0.001), (1.0, 0.01))
    sessions = pc.evaluate(pc.Workload.sessions(lanes), pc.Vllm(), timing)
    assert alike(sessions, pc.evaluate(pc.Workload.replay(rows), pc.Vllm(), timing))
    again = [[*lane, *(pc.Turn(isl=30, osl=2, think_ms=k * 89 % 53) for _ in range(4))] for k, lane in enumerate(lanes)]
    report = pc.evaluate(pc.Workload.sessions(again), pc.Vllm(), timing)
    sent = report.requests()[["dispatch_ms", "isl", "prefix", "osl"]]
    assert alike(report, pc.evaluate(pc.Workload.replay(sent), pc.Vllm(), timing))


DETOKENIZER = {
    "decode_ms": 3.0,
    "piecewise_ms": 4.0,
    "eager_ms": 6.0,
    "max_cudagraph_capture_size": 64,
    "detokenizer_ms": 0.7,
}


@given(session_worlds(MODES["vllm async"]), st.sampled_from([{"launch": DETOKENIZER}, {"data_parallel_size": 2}]))
def test_answers_are_what_the_client_has(world: World, engine: dict[str, Any]):
    """Behind a detokenizer a request is done later than for the scheduler, behind ranks in lockstep at the end of the slowest."""
    world = world.but(engine=engine)
    report = world.ask()
    again = sent_again(report, world)
    assert alike(report, again)
    assert [report.token_ms(i) for i in range(world.requests)] == [again.token_ms(i) for i in range(world.requests)]
    turns, lanes = report.turns(), world.traffic["lanes"]
    for k, lane in enumerate(lanes):
        here = turns[turns["session"] == k].reset_index(drop=True)
        thinks = np.array([turn["think_ms"] for turn in lane[1:]])
        np.testing.assert_array_equal(here["dispatch_ms"][1:], here["done_ms"][:-1].to_numpy() + thinks)


def columns_of(lanes: list[list[dict[str, Any]]]) -> pd.DataFrame:
    """Lanes as a frame with a row a request, sessions called by name."""
    rows = []
    for k, lane in enumerate(lanes):
        for j, turn in enumerate(lane):
            own = {name: turn[name] for name in ("isl", "prefix", "osl", "think_ms")}
            rows.append({"session": f"s{k}", "turn": j, "call": 0, **own})
            for c, (isl, prefix, osl) in enumerate(turn["calls"], 1):
                rows.append({"session": f"s{k}", "turn": j, "call": c, "isl": isl, "prefix": prefix, "osl": osl})
    return pd.DataFrame(rows).fillna({"think_ms": 0.0})


@given(session_worlds(MODES["vllm async"]), st.randoms(use_true_random=False))
def test_lanes_are_read_in_every_form(world: World, random: Any):
    lanes = world.traffic["lanes"]
    frame = columns_of(lanes)
    shuffled = [*range(len(frame))]
    random.shuffle(shuffled)
    expected = pc.Workload.sessions(lanes).rows
    turns = pc.Workload.sessions([[pc.Turn(**turn) for turn in lane] for lane in lanes])
    columns = {name: frame[name].tolist() for name in frame}
    for form in (frame, columns, frame.to_records(index=False)):
        workload = pc.Workload.sessions(form)
        assert (workload.rows == expected).all()
        assert [*workload.labels] == [f"s{k}" for k in range(len(lanes))]
    assert turns == pc.Workload.sessions(lanes)
    mixed = pc.Workload.sessions(frame.iloc[shuffled])
    back = [int(name[1:]) for name in mixed.labels]
    for k, name in enumerate(back):
        ours, theirs = mixed.rows[mixed.rows["session"] == k], expected[expected["session"] == name]
        assert (ours[[*expected.dtype.names[1:]]] == theirs[[*expected.dtype.names[1:]]]).all()
