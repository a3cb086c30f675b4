"""V14: the host launches passes and hands on outputs. A pass with prefill takes 100 ms, decode rows add 10 ms."""

import json

import pytest

from tools.oracle import ScenarioError, simulate

from .building import ROOT, closed, column, replay, sent

TIMING = {"kind": "linear", "prefill": [100, 0, 0, 0], "decode": [10, 0, 0], "combine": "sum"}
COSTS = {"decode_ms": 2, "piecewise_ms": 20, "eager_ms": 50, "max_cudagraph_capture_size": 16}
FREE = {"decode_ms": 0, "piecewise_ms": 0, "eager_ms": 0, "max_cudagraph_capture_size": 16}


def launched(*requests: dict, costs: dict | None = COSTS, **more: float) -> dict:
    """A replay on such a worker; without costs, on one whose host takes no time."""
    return replay(*requests, timing=TIMING, async_scheduling=True, launch=costs and {**costs, **more})


A_THEN_EAGER_B = (sent(10, 3), sent(40, 2, 105))


@pytest.mark.parametrize(
    ("more", "leaves_ms"),
    [({}, 160), ({"eager_queue_fraction": 0.8}, 200), ({"detokenizer_ms": 1}, 161)],
)
def test_an_output_leaves_once_the_next_pass_is_launched(more: dict, leaves_ms: float):
    """A decodes to 120, B's eager pass was decided at 110: its launch ends at 160, or with 0.8 of its pass."""
    answer = simulate(launched(*A_THEN_EAGER_B, **more))
    assert answer["requests"][0]["token_ms"][-1] == leaves_ms
    assert [(each["start_ms"], each["end_ms"]) for each in answer["passes"][2:4]] == [(110, 120), (120, 220)]


@pytest.mark.parametrize(("more", "leaves_ms"), [({}, 120), ({"detokenizer_ms": 1}, 121)])
def test_without_launch_times_it_leaves_at_the_end_of_its_pass(more: dict, leaves_ms: float):
    """Or a millisecond later, where the detokenizer takes one."""
    assert column(launched(*A_THEN_EAGER_B, costs=FREE, **more), "token_ms")[0][-1] == leaves_ms


@pytest.mark.parametrize(("costs", "admitted"), [(COSTS, [0, 100, 210]), (None, [0, 110, 110])])
def test_an_arrival_joins_the_first_pass_decided_after_it(costs: dict | None, admitted: list[float]):
    """A's prefill is launched at 20: B, at 10, is in the pass decided then, and C, at 30, in the one decided at 100."""
    assert column(launched(sent(10, 9), sent(3, 9, 10), sent(3, 9, 30), costs=costs), "admitted_ms") == admitted


def test_an_arrival_at_the_decision_is_in():
    """As one at the end of a pass is (V12)."""
    assert column(launched(sent(10, 9), sent(3, 9, 20), sent(3, 9, 20.5)), "admitted_ms") == [0, 100, 210]


def test_no_launch_outlasts_its_pass():
    """A launch of 500 ms ends with the pass of 100 ms; the next is decided then, and starts then."""
    answer = simulate(launched(sent(10, 3), sent(10, 1, 99), costs={**COSTS, "piecewise_ms": 500}))
    assert [(each["start_ms"], each["end_ms"]) for each in answer["passes"]] == [(0, 100), (100, 210), (210, 220)]
    assert answer["requests"][1]["admitted_ms"] == 100
    assert answer["requests"][0]["token_ms"] == [210, 212, 220]


def test_the_last_outputs_wait_for_no_launch():
    """With nothing to follow they leave at the end of the pass."""
    assert column(launched(sent(10, 2)), "token_ms") == [[100 + 0, 110]]


def test_the_detokenizer_is_serial():
    """Three outputs of one pass leave one by one, in row order, and those of the next queue behind them."""
    answer = simulate(launched(*[sent(5, 2)] * 3, costs={**FREE, "detokenizer_ms": 4}))
    assert [request["token_ms"] for request in answer["requests"]] == [[104, 116], [108, 120], [112, 124]]


def test_a_client_waits_for_the_text():
    """The seat is free at the end of the pass, but the successor is sent when the client has its last token."""
    asked = closed(1, 2, [5, 0, 1], async_scheduling=True, launch={**FREE, "detokenizer_ms": 4})
    assert column(asked, "dispatch_ms") == [0, 14]


@pytest.mark.parametrize("name", ["kv_turnaround", "few_seats_mixed", "replay_pass_ends", "groups_thrash", "kv_thrash"])
def test_no_costs_are_no_launch_times(name: str):
    """V14: with zero costs it equals V12, here down to the last digit."""
    path = ROOT / "tests" / "agreement" / "scenarios" / f"vllm_{name}_async.json"
    asked = json.loads(path.read_text(encoding="utf-8"))
    right = simulate(asked)
    assert simulate({**asked, "engine": {**asked["engine"], "launch": FREE}}) == right


@pytest.mark.parametrize("engine", [{"async_scheduling": False}, {"data_parallel_size": 2}])
def test_launch_times_need_lookahead_and_one_rank(engine: dict):
    """Anything else is refused."""
    with pytest.raises(ScenarioError, match="launch needs async_scheduling"):
        simulate(replay(sent(10, 2), **{"async_scheduling": True, "launch": COSTS, **engine}))
