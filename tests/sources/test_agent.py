"""Agent sessions: turns, sub-agents, think times, scopes of ids, and what is refused."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from passcal.errors import TraceError
from passcal.sources.readers import read_agent, read_trace, with_prefix


def turn(t: float, isl: int = 100, osl: int = 10, api: float | None = 1.0, **more: Any) -> dict[str, Any]:
    """A request."""
    return {"t": t, "in": isl, "out": osl, **({} if api is None else {"api_time": api}), **more}


def spawn(t: float, *requests: Any, **more: Any) -> dict[str, Any]:
    """A sub-agent."""
    return {"t": t, "type": "subagent", "requests": list(requests), **more}


def write(folder: Path, *sessions: list[Any] | dict[str, Any]) -> Path:
    """A file of these sessions."""
    path = folder / "sessions.jsonl"
    listed = [one if isinstance(one, dict) else {"requests": one} for one in sessions]
    lines = [{"id": f"s{k}", "block_size": 64, **one} for k, one in enumerate(listed)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def columns(frame: Any, *names: str) -> list[tuple[Any, ...]]:
    """Rows of these columns, missing as None."""
    return [tuple(None if pd.isna(v) else v for v in row) for row in frame[list(names)].astype(object).to_numpy()]


def test_a_session_is_a_chain_of_turns(tmp_path: Path):
    frame = read_agent(write(tmp_path, [turn(0.0, api=2.0), turn(3.5), turn(9.0)]))
    assert columns(frame, "dispatch_ms", "session", "agent", "turn", "think_ms", "api_ms") == [
        (0.0, "s0", "main", 0, 0.0, 2000.0),
        (3500.0, "s0", "main", 1, 1500.0, 1000.0),
        (9000.0, "s0", "main", 2, 4500.0, 1000.0),
    ]
    assert frame["parent"].isna().all() and (frame["parent_turn"] == -1).all()


def test_sub_agents_are_flattened_and_awaited(tmp_path: Path):
    """Two in parallel; the next turn of the parent thinks from the end of the later one."""
    first = spawn(1.5, turn(2.0, api=1.0), turn(4.0, api=2.0), agent_id="x")
    second = spawn(1.5, turn(2.5, api=1.0), agent_id="x")
    frame = read_agent(write(tmp_path, [turn(0.0), first, second, turn(8.0)]))
    assert columns(frame, "dispatch_ms", "agent", "turn", "parent", "parent_turn", "think_ms") == [
        (0.0, "main", 0, None, -1, 0.0),
        (2000.0, "x", 0, "main", 0, 1000.0),
        (2500.0, "x.2", 0, "main", 0, 1500.0),
        (4000.0, "x", 1, "main", 0, 1000.0),
        (8000.0, "main", 1, None, -1, 2000.0),
    ]


def test_a_sub_agent_that_runs_on_is_not_awaited(tmp_path: Path):
    """It ended after the parent went on, so the parent thought from its own turn's end."""
    frame = read_agent(write(tmp_path, [turn(0.0), spawn(1.5, turn(2.0, api=9.0)), turn(4.0)]))
    assert list(frame["think_ms"]) == [0.0, 1000.0, 3000.0]
    assert any("1 of 3 turns began before one that they come after had ended" in note for note in frame.attrs["notes"])


def test_times_from_the_spawn_are_put_on_the_sessions_clock(tmp_path: Path):
    """A first time before the spawn can only count from it; sub-agents may spawn more."""
    inner = spawn(0.5, turn(0.25), turn(0.75), agent_id="deep")
    frame = read_agent(write(tmp_path, [turn(10.0), spawn(20.0, turn(0.0), inner, turn(3.0)), turn(40.0)]))
    assert columns(frame, "dispatch_ms", "agent", "turn", "parent", "parent_turn") == [
        (10000.0, "main", 0, None, -1),
        (20000.0, "agent_1", 0, "main", 0),
        (20750.0, "deep", 0, "agent_1", 0),
        (21250.0, "deep", 1, "agent_1", 0),
        (23000.0, "agent_1", 1, "main", 0),
        (40000.0, "main", 1, None, -1),
    ]
    assert any("times of 2 sub-agents count from their spawn" in note for note in frame.attrs["notes"])


def test_rounding_is_no_overlap(tmp_path: Path):
    """0.1 + 0.2 is more than 0.3 to a float, but the turn at 0.3 follows at once."""
    frame = read_agent(write(tmp_path, [turn(0.0, api=0.05), turn(0.1, api=0.2), turn(0.3)]))
    assert list(frame["think_ms"]) == pytest.approx([0.0, 50.0, 0.0], abs=1e-9)
    assert not any("had ended" in note for note in frame.attrs["notes"])


def test_an_unknown_end_is_the_beginning(tmp_path: Path):
    frame = read_agent(write(tmp_path, [turn(0.0, api=None), turn(3.0, api_time=None, api=None), turn(5.0)]))
    assert list(frame["think_ms"]) == [0.0, 3000.0, 2000.0]
    assert np.isnan(frame["api_ms"][:2]).all() and frame["api_ms"][2] == 1000
    assert any("api_time is missing in 2 of 3 turns" in note for note in frame.attrs["notes"])


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), min_size=1, max_size=8))
def test_think_and_service_add_up(tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int]]):
    """Of a chain without overlaps: each turn starts at the end of the one before plus its think time."""
    now, requests = 0.0, []
    for think, api in steps:
        requests.append(turn(now + think, api=api))
        now += think + api
    frame = read_agent(write(tmp_path_factory.getbasetemp(), requests))
    assert list(frame["think_ms"][1:]) == [1000.0 * think for think, _ in steps[1:]]
    ends = frame["dispatch_ms"] + frame["api_ms"]
    assert list(ends[:-1] + frame["think_ms"][1:].to_numpy()) == list(frame["dispatch_ms"][1:])


def test_a_replay_takes_its_part(tmp_path: Path):
    path = write(tmp_path, [turn(0.0), turn(3.5)], [turn(1.0)])
    frame = read_trace(path)
    assert list(frame.columns) == ["dispatch_ms", "isl", "prefix", "osl"]
    assert "not replayed, but in read_agent: session, agent, turn" in frame.attrs["notes"][-1]
    assert frame["dispatch_ms"].equals(read_agent(path)["dispatch_ms"])
    assert pc.evaluate_replay(pc.Workload.replay(frame), pc.Vllm(), pc.LinearTiming()).window.requests == 3


def test_scopes_of_ids(tmp_path: Path):
    """Ids of local scope mean nothing in another session; of global scope they do, unless the oracle shares by session."""
    ids = {"hash_ids": [1, 2], "isl": 128}
    local = {"hash_id_scope": "local", "requests": [turn(0.0, **ids), turn(2.0, **ids)]}
    shared = {"hash_id_scope": "global", "requests": [turn(4.0, **ids), turn(6.0, **ids)]}
    other = {"requests": [turn(8.0, **ids)]}
    frame = read_agent(write(tmp_path, local, shared, other))
    assert list(with_prefix(frame, pc.PrefixOracle())["prefix"]) == [0, 127, 0, 127, 127]
    assert list(with_prefix(frame, pc.PrefixOracle(sharing="session"))["prefix"]) == [0, 127, 0, 127, 0]
    replayed = with_prefix(read_trace(write(tmp_path, local, shared, other)), pc.PrefixOracle(sharing="session"))
    assert list(replayed["prefix"]) == [0, 127, 0, 127, 0]


def test_what_is_not_used_is_said(tmp_path: Path):
    session = {
        "models": ["m"],
        "requests": [turn(0.0, model="m", type="s", think_time=3.0), spawn(1.0, turn(2.0), status="completed")],
    }
    notes = read_agent(write(tmp_path, session)).attrs["notes"]
    assert "not used: model, models, status, think_time" in notes


def test_sessions_that_all_start_at_0_are_noted(tmp_path: Path):
    notes = read_agent(write(tmp_path, [turn(0.0), spawn(1.0, turn(1.5))], [turn(0.0)])).attrs["notes"]
    assert any("every session starts at 0" in note for note in notes)
    assert not any(
        "every session" in note for note in read_agent(write(tmp_path, [turn(0.0)], [turn(1.0)])).attrs["notes"]
    )


@pytest.mark.parametrize(
    ("session", "rule"),
    [
        ({"requests": [turn(0.0)], "id": None}, "line 2: id is None, must be a text"),
        ({"requests": [turn(0.0)], "id": "s0"}, "line 2: id 's0' is on line 1 too"),
        ({"requests": [turn(0.0)], "block_size": 32}, "line 2: block_size is 32, and 64 before"),
        ({"requests": [turn(0.0)], "block_size": 0}, "line 2: block_size is 0, must be a whole number"),
        ({"requests": [turn(0.0)], "block_size": "64"}, "line 2: block_size is '64', must be a whole number"),
        (
            {"requests": [turn(0.0)], "hash_id_scope": "trace"},
            "line 2: hash_id_scope is 'trace', must be local or global",
        ),
        ({"requests": [turn(0.0)], "colour": 1}, "line 2: unknown key 'colour'; known: id, block_size"),
        ({"requests": {}}, "line 2: requests is {}, must be a list"),
        ([turn(0.0), 7], "line 2: request 2: 7 is not a JSON object"),
        ([turn(0.0), turn(1.0, type="x")], "line 2: request 2: type is 'x', must be n, s or subagent"),
        ([turn(0.0, colour=1)], "line 2: unknown key 'colour'; known: t, in, out"),
        ([{"t": 0.0, "in": 5}], "line 2: key out is missing; needed: t, in, out"),
        ([turn(0.0), turn(-1.0)], "line 2: request 2: t is -1.0, must be >= 0"),
        ([turn(0.0), turn(1.0, osl=0)], "line 2: request 2: out is 0, osl must be >= 1"),
        ([turn(0.0), turn(1.0, api=-2.0)], "line 2: request 2: api_time is -2.0, must be >= 0"),
        (
            [turn(0.0), turn(1.0, api=None, api_time="2")],
            "line 2: request 2: api_time is '\"2\"', must be a finite number",
        ),
        (
            [turn(0.0), turn(1.0, hash_ids=[1, 2, 3])],
            "line 2: request 2: hash_ids has 3 ids, must be 1 pages of 64 for isl 100",
        ),
        ([spawn(0.0, turn(0.5), turn(1.0, isl=0))], "line 2: request 3: in is 0, isl must be >= 1"),
        ([{"t": "0", "type": "subagent", "requests": []}], "line 2: request 1: t is '\"0\"', must be a finite number"),
        ([{"t": 0, "type": "subagent"}], "line 2: key requests is missing"),
    ],
)
def test_refused_by_line_and_request(tmp_path: Path, session: Any, rule: str):
    with pytest.raises(TraceError) as caught:
        read_agent(write(tmp_path, [turn(0.0)], session))
    assert rule in str(caught.value), caught.value
    assert len(str(caught.value)) < 200


def test_sessions_without_requests(tmp_path: Path):
    assert len(read_agent(write(tmp_path, [], [turn(1.0)]))) == 1
    with pytest.raises(TraceError, match="no session has a request"):
        read_agent(write(tmp_path, [], [spawn(0.0)]))
