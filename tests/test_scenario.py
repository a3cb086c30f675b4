"""The gate's language for sessions and a client's limit: it means what Python's arguments mean."""

import copy
from typing import Any

import pytest

import passcal as pc
from passcal.errors import SpecError
from passcal.scenario import answer
from tests.worlds import CLOCK

Json = dict[str, Any]
TIMING = {"kind": "linear", "prefill": [*CLOCK.prefill], "decode": [*CLOCK.decode], "combine": "sum"}
GROUP = {"prefix_group": "a", "prefix_len": 48}
LANES = [
    [
        {"isl": 90, "osl": 5, "think_ms": 0.0, **GROUP},
        {"isl": 120, "prefix": 16, "osl": 3, "think_ms": 7, "calls": [{"isl": 30, "osl": 9, **GROUP}, [20, 20, 2]]},
    ],
    [{"isl": 64, "osl": 12, "think_ms": 1.5, **GROUP}, {"isl": 64, "osl": 1, "think_ms": 0, "prefix_len": 8}],
]
SENT = [{"dispatch_ms": 3.0 * k, "isl": 40 + 7 * k, "osl": 6} for k in range(9)]


def scenario(workload: Json) -> Json:
    """On a small engine."""
    return {"name": "n", "backend": "vllm", "engine": {"num_gpu_blocks": 90}, "workload": workload, "timing": TIMING}


def sessions(**more: Any) -> Json:
    """Two lanes."""
    return scenario(
        {"mode": "sessions", "lanes": copy.deepcopy(LANES), "stagger_ms": 2.0, "turnaround_ms": 0.5, **more}
    )


def told(report: pc.Report) -> list[tuple[Any, ...]]:
    """What the gate compares, of a report."""
    rows = report.requests()[["dispatch_ms", "visible_ms", "admitted_ms", "isl", "osl"]].itertuples(
        index=False, name=None
    )
    return [(*row, report.token_ms(i)) for i, row in enumerate(rows)]


def answered(asked: Json) -> list[tuple[Any, ...]]:
    """The same, of an answer."""
    names = ("dispatch_ms", "visible_ms", "admitted_ms", "isl", "osl", "token_ms")
    return [tuple(request[name] for name in names) for request in answer(asked)["requests"]]


def test_sessions():
    """Lengths are told as they are written: a prefix may reach isl, and a length of no group shares nothing."""
    lanes = [
        [pc.Turn(**{k: v for k, v in turn.items() if k != "prefix_len" or "prefix_group" in turn}) for turn in lane]
        for lane in edited()
    ]
    workload = pc.Workload.sessions(lanes, stagger_ms=2.0, turnaround_ms=0.5)
    assert answered(sessions()) == told(pc.evaluate(workload, pc.Vllm(num_gpu_blocks=90), CLOCK))
    written = sorted((request["isl"], request["prefix"], request["osl"]) for request in answer(sessions())["requests"])
    assert written == sorted([(90, 0, 5), (120, 16, 3), (30, 0, 9), (20, 20, 2), (64, 0, 12), (64, 0, 1)])


def edited() -> list[list[Json]]:
    """The lanes with a prefix below isl."""
    lanes = copy.deepcopy(LANES)
    lanes[0][1]["calls"][1] = [20, 19, 2]
    return lanes


def test_a_limit_of_the_client():
    asked = scenario({"mode": "replay", "requests": SENT, "max_concurrency": 2})
    rows = [(row["dispatch_ms"], row["isl"], row["osl"]) for row in SENT]
    report = pc.evaluate(pc.Workload.replay(rows, max_concurrency=2), pc.Vllm(num_gpu_blocks=90), CLOCK)
    assert answered(asked) == told(report)
    assert answered(scenario({"mode": "replay", "requests": SENT, "max_concurrency": None})) != answered(asked)


BROKEN = {
    "workload.lanes is missing": lambda w: w.pop("lanes"),
    "workload.lanes=": lambda w: w.update(lanes=[]),
    "workload.lanes.1=": lambda w: w["lanes"].append([]) or w["lanes"].pop(1),
    "workload.lanes.0.1=": lambda w: w["lanes"][0].__setitem__(1, [1, 0, 2]),
    "workload.lanes.0.1.colour": lambda w: w["lanes"][0][1].update(colour=1),
    "workload.lanes.0.1.osl is missing": lambda w: w["lanes"][0][1].pop("osl"),
    "workload.lanes.0.1.isl": lambda w: w["lanes"][0][1].update(isl=0),
    "workload.lanes.0.1.think_ms": lambda w: w["lanes"][0][1].update(think_ms="1"),
    "think_ms=-1": lambda w: w["lanes"][0][1].update(think_ms=-1),
    "workload.lanes.0.1.calls=": lambda w: w["lanes"][0][1].update(calls={"isl": 1, "osl": 1}),
    "workload.lanes.0.1.think_ms is missing": lambda w: w["lanes"][0][1].pop("think_ms"),
    "workload.lanes.0.1.calls.0": lambda w: w["lanes"][0][1].update(calls=[[1, 2]]),
    "workload.lanes.0.1.calls.1.osl": lambda w: w["lanes"][0][1].update(calls=[[1, 0, 2], [1, 0, 0]]),
    "workload.requests": lambda w: w.update(requests=3),
}


@pytest.mark.parametrize("words", BROKEN)
def test_malformed_sessions_are_refused_by_path(words: str):
    asked = sessions()
    BROKEN[words](asked["workload"])
    with pytest.raises(SpecError) as refusal:
        answer(asked)
    assert words in str(refusal.value) and len(str(refusal.value)) < 200


@pytest.mark.parametrize("most", [0, 1.5, "2", True])
def test_a_limit_is_a_count(most: Any):
    with pytest.raises(SpecError, match="max_concurrency"):
        answer(scenario({"mode": "replay", "requests": SENT, "max_concurrency": most}))
