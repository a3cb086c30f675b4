"""Ranks that share an engine, broken one rule at a time: (the part, what replaces its method, where it shows)."""

import pytest

from tools.oracle.sglang import SglangScheduler

from .breaking import shows
from .test_breaking_workers import only_who_works


def reset_alone(self):
    """S12 broken: a rank forgets the decay when it is idle, whatever the group does."""
    SglangScheduler.idle(self)
    return SglangScheduler.plan(self)


def whole_conservativeness(self):
    """S18 broken: as without DP attention."""
    return self.options.schedule_conservativeness


SGLANG_BREAKS = {
    "S18 chunk": ("scheduler", {"chunk_limit": lambda self: self.options.chunked_prefill_size}, "two_ranks_sync"),
    "S18 slots": ("scheduler", {"running_limit": lambda self: self.options.max_running_requests}, "groups_overlap"),
    "S18 slots rounded": (
        "scheduler",
        {"running_limit": lambda self: -(-self.options.max_running_requests // self.options.dp_size)},
        "two_ranks_overlap",
    ),
    "S18 input": (
        "scheduler",
        {"input_limit": lambda self: self.options.max_prefill_tokens // self.options.dp_size},
        "nochunk_sync",
    ),
    "S18 conservativeness": ("scheduler", {"conservativeness": whole_conservativeness}, "retract_overlap"),
    "S18 memory": (
        "scheduler",
        {"pool": lambda self: self.floor(self.options.max_total_tokens // self.options.dp_size)},
        "retract_sync",
    ),
    "S18 together": ("worker", {"may_start": lambda self, rank: True}, "idle_ranks_sync"),
    "S18 empty batch": ("worker", {"plan_ahead": only_who_works}, "idle_ranks_overlap"),
    "S18 slowest": ("worker", {"duration_ms": lambda self, prices: min(prices)}, "two_ranks_overlap"),
    "S12 group idle": ("scheduler", {"plan": reset_alone}, "ratio_overlap"),
    "S12 idle": ("scheduler", {"idle": lambda self: False}, "ratio_sync"),
    "S14 group": ("scheduler", {"lead": lambda self, ranks: None}, "interval_overlap"),
    "S14 group mixed": ("scheduler", {"lead": lambda self, ranks: None}, "interval_mixed_sync"),
    "E4 ranks": ("router", {"in_turn": lambda self, turn: (0, 0)}, "interval_sync"),
}


@pytest.mark.parametrize("clause", SGLANG_BREAKS)
def test_a_broken_clause_of_sglang_shows(clause: str):
    """Another answer, or none at all."""
    part, members, name = SGLANG_BREAKS[clause]
    assert shows(members, f"sglang_dp_{name}", part)
