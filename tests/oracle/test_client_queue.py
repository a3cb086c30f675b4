"""A client that has a limited number of requests out. Every pass takes 10 ms."""

import pytest

from tools.oracle import ScenarioError, simulate
from tools.oracle.clients import Queueing
from tools.oracle.events import Kind

from .breaking import answered
from .building import closed, column, replay, sent


def queued(*requests: dict, limit: object, **plane: object) -> dict:
    """A replay with a limit at a synchronous engine of vLLM."""
    return replay(*requests, plane={"max_concurrency": limit, **plane})


def test_who_finds_the_limit_waits_at_the_client():
    """Two are out; the third is sent when the first is done, the fourth when the second is, the fifth when it comes."""
    asked = queued(sent(10, 2), sent(10, 3), sent(10, 1), sent(10, 4, 5), sent(10, 1, 90), limit=2)
    assert column(asked, "dispatch_ms") == [0, 0, 20, 30, 90]
    assert column(asked, "arrival_ms") == [0, 0, 0, 5, 90]
    assert column(asked, "admitted_ms") == [0, 0, 20, 30, 90]


def test_one_at_a_time():
    """In the order of their times, whatever the order in the file; ties keep that."""
    asked = queued(sent(13, 1, 40), sent(10, 3), sent(11, 2, 5), sent(12, 1, 5), limit=1)
    assert column(asked, "isl") == [10, 11, 12, 13]
    assert column(asked, "dispatch_ms") == [0, 30, 50, 60]


def test_an_arrival_at_the_instant_of_an_end_goes_at_once():
    """Both at 20."""
    assert column(queued(sent(10, 2), sent(10, 1, 20), limit=1), "dispatch_ms") == [0, 20]


def test_the_plane_begins_with_the_dispatch():
    """Visible 3 ms after the end of the first at 13."""
    asked = queued(sent(10, 1), sent(10, 1), limit=1, turnaround_ms=3)
    assert column(asked, "visible_ms") == [3, 16]


def test_a_limit_that_never_binds_is_none():
    """But for the key, which only a limit gives."""
    requests = [sent(10, 2), sent(10, 3), sent(10, 1, 5), sent(10, 4, 5)]
    answer = simulate(queued(*requests, limit=4))
    assert [request.pop("arrival_ms") for request in answer["requests"]] == [0, 0, 5, 5]
    assert answer == simulate(replay(*requests)) == simulate(queued(*requests, limit=None))


@pytest.mark.parametrize("limit", [0, -1, 1.5, True])
def test_a_limit_is_a_count(limit: object):
    """At least one."""
    with pytest.raises(ScenarioError, match="workload: max_concurrency must be an integer of at least 1"):
        simulate(queued(sent(10, 1), limit=limit))


def test_a_closed_loop_has_its_own():
    """By name."""
    with pytest.raises(ScenarioError, match="workload: 'max_concurrency' is not modelled"):
        simulate(closed(1, 1, [10, 0, 1], plane={"max_concurrency": 2}))


def last_come(self):
    """Broken: of those that wait, the one that came last goes first."""
    here = [pair for pair in self._left if pair[0] <= self._clock.now_ms]
    for pair in here:
        self._left.remove(pair)
    self._left.extendleft(here)
    Right.go_on(self)


def one_more(self):
    """Broken: the limit is off by one."""
    if not hasattr(self, "_widened"):
        self._free += 1
        self._widened = True
    Right.go_on(self)


def a_little_later(self, request):
    """Broken: who waits goes a millisecond after the end that lets it."""
    self._free += 1
    if self._free == 1 and self._left:
        self._clock.at(max(self._clock.now_ms + 1, self._left[0][0]), Kind.TURN, self._go_on)


class Right:
    """The rule, kept while it is replaced."""

    go_on = Queueing._go_on


BREAKS = {
    "first come": ({"_go_on": last_come}, "vllm_sync"),
    "limit": ({"_go_on": one_more}, "trtllm_dp_overlap"),
    "at the end": ({"done": a_little_later}, "ties_async"),
    "one": ({"_go_on": one_more}, "one_sync"),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_shows(rule: str, monkeypatch: pytest.MonkeyPatch):
    """Another answer."""
    members, name = BREAKS[rule]
    asked, right = answered(f"queue_{name}")
    for member, replacement in members.items():
        monkeypatch.setattr(Queueing, member, replacement)
    assert simulate(asked)["requests"] != right


@pytest.mark.parametrize("limit", [1, 3])
def test_all_that_waits_from_the_start_is_a_closed_loop(limit: int):
    """So many clients, each with its next request at once."""
    shapes = [[10, 0, 3], [200, 0, 1], [40, 0, 7], [90, 0, 2]]
    answer = simulate(queued(*[sent(isl, osl) for isl, _, osl in shapes * 3], limit=limit))
    assert [request.pop("arrival_ms") for request in answer["requests"]] == [0] * 12
    assert answer == simulate(closed(limit, 12, *shapes))
