"""S19: the host loop by worked numbers. A pass with prefill takes 20 ms, a decode pass 10, unless told otherwise."""

import json

import pytest

from tools.oracle import simulate

from .building import ROOT, asked_of, column, sent

TIMING = {"kind": "linear", "prefill": [20, 0, 0, 0], "decode": [10, 0, 0], "combine": "max"}
OVERLAPS = sorted(
    path
    for path in (ROOT / "tests" / "agreement" / "scenarios").glob("sglang_*_overlap.json")
    if "dp_" not in path.stem and "host_loop" not in path.stem
)


def looped(*requests: dict, prefill: float = 0, decode: float = 5, timing: dict = TIMING, **engine: object) -> dict:
    """A replay with a host loop."""
    select = {"prefill_select_ms": prefill, "decode_select_ms": decode}
    return asked_of("sglang", *requests, timing=timing, host_loop=select, **engine)


def passes(asked: dict) -> list[tuple[float, float]]:
    """Start and end of each."""
    return [(each["start_ms"], each["end_ms"]) for each in simulate(asked)["passes"]]


def test_the_device_hides_the_selection():
    """S19: the device is busy to 20, and to 30 with the decode selected at 5; the iterations end at 0 and 20."""
    asked = looped(sent(10, 2))
    assert passes(asked) == [(0, 20), (20, 30)]
    assert column(asked, "token_ms") == [[20, 30]]


@pytest.mark.parametrize(("at_ms", "start_ms"), [(0, 20), (0.5, 30), (20, 30), (20.5, 40)])
def test_the_inbox_is_drained_when_an_iteration_begins(at_ms: float, start_ms: float):
    """S19: iterations begin at 0, 0, 20 and 30; each drains what has come, that instant included."""
    asked = looped(sent(10, 9), sent(10, 1, at_ms), chunked_prefill_size=10)
    assert column(asked, "admitted_ms")[1] == start_ms


def test_the_device_waits_for_a_slow_host():
    """S19: selecting takes 12 a decode of 10: selected at 12, 24, 36 and so on, the first hidden by the prefill.

    The first output is seen at 20, when the prefill is over; then at the end of the iteration after, which is later.
    """
    asked = looped(sent(10, 5), decode=12)
    assert passes(asked) == [(0, 20), (20, 30), (32, 42), (44, 54), (56, 66)]
    assert column(asked, "token_ms") == [[20, 32, 44, 56, 66]]


def test_the_last_outputs_wait_for_nothing():
    """S19: an iteration that launches nothing takes no time to select; the last output is seen when its pass ends."""
    assert column(looped(sent(10, 1), prefill=7, decode=50), "token_ms") == [[27]]


def test_an_idle_host_selects_when_something_comes():
    """S19: at 100 it takes 7; the pass runs from there."""
    asked = looped(sent(10, 1), sent(10, 1, 100), prefill=7)
    assert passes(asked) == [(7, 27), (107, 127)]


def test_a_pass_with_prefill_is_selected_as_such():
    """S19: mixed or not. Selected from 37 to 54, where a decode would be ready at 42."""
    requests = [sent(10, 9), sent(10, 1, 20)]
    for mixed in (False, True):
        asked = looped(*requests, prefill=17, enable_mixed_chunk=mixed)
        assert passes(asked)[:3] == [(17, 37), (37, 47), (54, 74)]


def test_slots_come_back_when_outputs_are_seen():
    """S19, S5: the first request is seen to be done at 32; then its slot is taken, and the device is free at 42."""
    asked = looped(sent(10, 2), sent(10, 9), sent(10, 1), decode=12, max_running_requests=2)
    assert column(asked, "token_ms")[0] == [20, 32]
    assert column(asked, "admitted_ms")[2] == 42


@pytest.mark.parametrize("path", OVERLAPS, ids=[path.stem for path in OVERLAPS])
def test_a_host_that_takes_no_time_is_no_host(path):
    """S19: with zeros it is S1, bit for bit."""
    asked = json.loads(path.read_text(encoding="utf-8"))
    looped = {**asked, "engine": {**asked["engine"], "host_loop": {"prefill_select_ms": 0, "decode_select_ms": 0}}}
    assert simulate(looped) == simulate(asked)


def test_there_are_scenarios_to_compare():
    """A sweep over nothing would prove nothing."""
    assert len(OVERLAPS) > 20
