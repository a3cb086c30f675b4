"""Sessions: lanes, turns, think time and calls. Every pass takes 10 ms."""

import pytest

from tools.oracle import ScenarioError, simulate
from tools.oracle.events import Kind
from tools.oracle.sessions import Sessions

from .breaking import answered
from .building import TEN_MS, closed, column, replay, scenario, sent


def turn(isl: int, osl: int, think_ms: float = 0, calls: list | None = None, **more: object) -> dict:
    """A turn, and what is called beside it."""
    return {"isl": isl, "prefix": 0, "osl": osl, "think_ms": think_ms, **more, "calls": calls or []}


def sessions(*lanes: list[dict], plane: dict | None = None, **engine: object) -> dict:
    """Lanes at a synchronous engine of vLLM, unless told otherwise."""
    return scenario({"mode": "sessions", "lanes": list(lanes), **(plane or {})}, TEN_MS, engine)


def test_a_turn_is_thought_about_after_the_one_before():
    """Done at 32 and thought about for 7; done at 59, and for 1."""
    asked = sessions([turn(10, 3, 2), turn(10, 2, 7), turn(10, 1, 1)])
    assert column(asked, "dispatch_ms") == [2, 39, 60]
    assert column(asked, "token_ms") == [[12, 22, 32], [49, 59], [70]]


def test_lanes_start_a_stagger_apart():
    """Lane k at k times 100, and the time that its first turn is thought about."""
    asked = sessions([turn(10, 1, 5)], [turn(10, 1)], [turn(10, 1, 9)], plane={"stagger_ms": 100})
    assert column(asked, "dispatch_ms") == [5, 100, 209]


def test_a_turn_is_done_with_the_last_of_its_calls():
    """All are sent at once; the longer call ends at 60. A call is longer than its turn, or shorter."""
    asked = sessions([turn(10, 2, 0, [[20, 0, 6], [30, 0, 3]]), turn(11, 4, 5, [[21, 0, 1]]), turn(12, 1)])
    assert column(asked, "isl") == [10, 20, 30, 11, 21, 12]
    assert column(asked, "dispatch_ms") == [0, 0, 0, 65, 65, 105]


@pytest.mark.parametrize("think_ms", [0, 4])
def test_turns_of_one_instant_go_lane_by_lane(think_ms: float):
    """Both are done at 30, lane 1 in the row before; lane 0 sends its turn and calls first all the same."""
    lanes = [[turn(10, 1, 10), turn(11, 1, think_ms, [[12, 0, 1]])], [turn(20, 2), turn(21, 1, think_ms)]]
    asked = sessions(*lanes)
    assert column(asked, "isl") == [20, 10, 11, 12, 21]
    assert column(asked, "dispatch_ms") == [0, 10, *[20 + think_ms] * 3]


def test_the_plane_lies_between():
    """Visible after the turnaround and the intake, as ever."""
    asked = sessions([turn(1000, 1), turn(10, 1)], plane={"turnaround_ms": 3, "ingest_us_per_token": 2})
    assert column(asked, "visible_ms") == [5, 15 + 3.02]


def test_turns_share_the_prefix_of_their_group():
    """The whole of the prompt before; a call has a prefix of its own."""
    shared = {"prefix_group": 7, "prefix_len": 500}
    call = {"isl": 100, "prefix": 0, "osl": 1, "prefix_group": 8, "prefix_len": 64}
    asked = sessions([turn(160, 2, 0, [call], **shared), turn(320, 2, 0, [call], **shared)])
    assert column(asked, "cached") == [0, 0, 160, 64]


def test_a_turn_may_stop_and_insist_on_a_rank():
    """What a request of a replay may, a turn may too."""
    more = {"max_tokens": 9, "data_parallel_rank": 1}
    asked = sessions([turn(10, 2, **more), turn(10, 1)], async_scheduling=True, data_parallel_size=2)
    assert column(asked, "engine") == [1, 1]
    assert column(asked, "admitted_ms") == [0, 30]


REFUSALS = [
    ([], "lanes must be a list with at least one entry"),
    ([[]], "lane 0 must be a list with at least one turn"),
    ([[{"isl": 1, "prefix": 0, "osl": 1}]], "lane 0, turn 0 lacks 'think_ms'"),
    ([[turn(1, 1)], [turn(1, 1), turn(0, 1)]], "lane 1, turn 1: isl must be an integer of at least 1"),
    ([[turn(1, 1, 0, [[1, 0]])]], r"lane 0, turn 0, call 0 must be \[isl, prefix, osl\]"),
    ([[{**turn(1, 1), "calls": 2}]], "lane 0, turn 0: calls must be a list"),
    ([[turn(1, 1, -1)]], "think_ms must lie in"),
    ([[turn(1, 1, wait_ms=1)]], "'wait_ms' is not modelled"),
]


@pytest.mark.parametrize(("lanes", "message"), REFUSALS, ids=[case[1][:40] for case in REFUSALS])
def test_what_is_not_modelled_is_refused(lanes: list, message: str):
    """By name and place."""
    with pytest.raises(ScenarioError, match=message):
        simulate(sessions(*lanes))


def test_whom_no_turn_could_hold_is_refused():
    """V7: calls of later turns too."""
    with pytest.raises(ScenarioError, match="need 7 blocks"):
        simulate(sessions([turn(10, 1), turn(10, 1, 0, [[100, 0, 1]])], num_gpu_blocks=5))


def without_calls(self, request):
    """Broken: a turn is done when its own request is, whatever it called."""
    lane = self._lane_of.pop(request)
    if request.number in self._own:
        self._think(lane, self._clock.now_ms)


def take_noting_own(self, lane, turn):
    """For the above."""
    self._own = getattr(self, "_own", set())
    for lengths in turn.requests:
        request = self._send(lengths)
        self._lane_of[request] = lane
        if lengths is turn.requests[0]:
            self._own.add(request.number)


def calls_first(self, lane, turn):
    """Broken: calls are sent before their turn's own request."""
    for lengths in reversed(turn.requests):
        self._lane_of[self._send(lengths)] = lane
    self._out[lane] = len(turn.requests)


def as_they_end(self, lane, from_ms):
    """Broken: turns of one instant go in the order in which those before them ended."""
    turn = next(self._turns[lane], None)
    if turn is not None:
        self._clock.at(from_ms + turn.think_ms, Kind.THOUGHT, self._take, lane, turn)


def no_thinking(self, lane, from_ms):
    """Broken: the next turn comes at once."""
    turn = next(self._turns[lane], None)
    if turn is not None:
        self._clock.at(from_ms, Kind.THOUGHT, self._take, lane, turn, place=lane)


def together(self):
    """Broken: no lane starts later than another."""
    for lane in range(len(self._turns)):
        self._think(lane, 0.0)


BREAKS = {
    "calls count": ({"done": without_calls, "_take": take_noting_own}, "vllm_sync"),
    "own first": ({"_take": calls_first}, "trtllm_sync"),
    "lane by lane": ({"_think": as_they_end}, "vllm_ties_sync"),
    "think": ({"_think": no_thinking}, "sglang_overlap"),
    "stagger": ({"start": together}, "detokenizer_async"),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_shows(rule: str, monkeypatch: pytest.MonkeyPatch):
    """Another answer."""
    members, name = BREAKS[rule]
    asked, right = answered(f"sessions_{name}")
    for member, replacement in members.items():
        monkeypatch.setattr(Sessions, member, replacement)
    assert simulate(asked)["requests"] != right


def test_a_lane_that_does_not_think_is_a_client():
    """One lane of five turns is a closed loop of one client; lanes of one turn are a replay at their staggers."""
    shapes = [[10, 0, 3], [200, 0, 1], [40, 0, 7]]
    turns = [turn(isl, osl) for isl, _, osl in (shapes * 2)[:5]]
    assert simulate(sessions(turns)) == simulate(closed(1, 5, *shapes))
    lanes = sessions(*[[each] for each in turns], plane={"stagger_ms": 7})
    at = [sent(each["isl"], each["osl"], 7 * k) for k, each in enumerate(turns)]
    assert simulate(lanes) == simulate(replay(*at))
