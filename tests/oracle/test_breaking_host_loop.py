"""S19 broken one rule at a time: (what replaces the worker's method, where it shows)."""

import pytest

from tools.oracle.selecting import SelectingWorker as Right

from .breaking import shows


def device_first(self, rows):
    """S19 broken: selecting begins when the device is free."""
    start_ms = max(self.clock.now_ms, self.flying_end_ms) + self.select_ms(rows[0])
    self.book(rows, start_ms)
    return start_ms


def start_at_once(self, rows):
    """S19 broken: the pass does not wait for its selection."""
    self.book(rows, max(self.clock.now_ms, self.flying_end_ms))
    return self.clock.now_ms + self.select_ms(rows[0])


def mixed_is_decode(self, rows):
    """S19 broken: rows make a pass a decode pass."""
    return self.costs.decode_select_ms if any(row.is_decode for row in rows) else self.costs.prefill_select_ms


def at_the_pass_end(self, launch_end_ms):
    """S19 broken: outputs are seen when their pass ends, whatever the host is at."""
    return max(self.flying_end_ms, self.clock.now_ms)


def at_the_end_of_all(self, launch_end_ms):
    """S19 broken: an iteration ends with its own pass."""
    return self.passes[-1].end_ms


def nothing_costs_too(self, at_ms):
    """S19 broken: an iteration that launches nothing selects all the same."""
    Right.next_decision(self, max(at_ms, self.clock.now_ms + self.costs.decode_select_ms))


BREAKS = {
    "S19 selection": ({"launch_next": start_at_once}, "slow"),
    "S19 device": ({"launch_next": device_first}, "closed"),
    "S19 decode": ({"select_ms": lambda self, rows: self.costs.prefill_select_ms}, "slow"),
    "S19 prefill": ({"select_ms": lambda self, rows: self.costs.decode_select_ms}, "prefill_only"),
    "S19 mixed": ({"select_ms": mixed_is_decode}, "mixed"),
    "S19 seen": ({"leave_ms": at_the_pass_end}, "retract"),
    "S19 iteration": ({"decision_ms": lambda self, launch_end_ms: launch_end_ms}, "interval"),
    "S19 two at once": ({"decision_ms": at_the_end_of_all}, "groups"),
    "S19 nothing": ({"next_decision": nothing_costs_too}, "prefill_only"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, f"sglang_host_loop_{name}_overlap", "worker")
