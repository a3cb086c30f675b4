"""Ranks that share an engine, broken one rule at a time: (the part, what replaces its method, where it shows)."""

import pytest

from tools.oracle.sglang import SglangScheduler
from tools.oracle.timing import Shape
from tools.oracle.trtllm import TrtllmScheduler

from .breaking import shows


def only_who_works(self, flying):
    """E1 broken: a rank that sits a pass out does not look ahead."""
    at_work = [rank for rank, under_way in zip(self.ranks, flying, strict=True) if under_way]
    at_work[0].lead(at_work)
    return [rank.plan() if rank in at_work else [] for rank in self.ranks]


def reset_alone(self):
    """S12 broken: a rank forgets the decay when it is idle, whatever the group does."""
    SglangScheduler.idle(self)
    return SglangScheduler.plan(self)


def whole_conservativeness(self):
    """S18 broken: as without DP attention."""
    return self.options.schedule_conservativeness


def most_tokens(self, place):
    """T7 broken: the rank with the most active tokens."""
    return -self.tokens[place], -self.loads[place]


def never_done(self, request, place):
    """T7 broken: tokens stay active when their request is done."""
    self.loads[place] -= 1


def any_rank(self, ranks):
    """T7 broken: one rank with a prompt is every rank."""
    return TrtllmScheduler.holds(self, [(any(prompt for prompt, _ in ranks), row) for _, row in ranks])


def rows_anywhere(self, ranks):
    """T7 broken: one rank that decodes is every rank."""
    return TrtllmScheduler.holds(self, [(prompt, any(row for _, row in ranks)) for prompt, _ in ranks])


def each_for_itself(self, ranks):
    """T7 broken: a rank holds its own prompts only while the others have none."""
    for rank in ranks:
        rank.propose()
    held = self.holds([(bool(rank.prompts), bool(rank.rows)) for rank in ranks])
    if held and not all(rank.prompts for rank in ranks):
        ranks[0].prompts = []


def blocks_anyway(self, ranks):
    """T7 broken: held prompts take their blocks."""
    for rank in ranks:
        rank.propose()
    if self.holds([(bool(rank.prompts), bool(rank.rows)) for rank in ranks]):
        for rank in ranks:
            for request, _ in rank.prompts:
                rank.take(request, rank.first_chunk_blocks(request) - len(request.blocks))
            rank.prompts = []


def timeout_stays(self, all_decode):
    """T7 broken: prompts everywhere leave the first counter as it is."""
    waited = self.waited_for_ranks
    waits = TrtllmScheduler.waits_for_more(self, all_decode)
    self.waited_for_ranks = waited
    return waits


def batching_counts(self, all_decode):
    """T7 broken: prompts that go since some rank does not decode let the second count start over."""
    waits = TrtllmScheduler.waits_for_more(self, all_decode)
    self.batched *= waits
    return waits


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


TRTLLM_BREAKS = {
    "T7 dummy": ("scheduler", {"idle_shape": None}, "idle_ranks_sync"),
    "T7 dummy context": ("scheduler", {"idle_shape": Shape(rows=1, context=2)}, "idle_ranks_overlap"),
    "T7 together": ("worker", {"may_start": lambda self, rank: True}, "idle_ranks_sync"),
    "T7 turns": ("worker", {"plan_ahead": only_who_works}, "idle_ranks_overlap"),
    "T7 slowest": ("worker", {"duration_ms": lambda self, prices: min(prices)}, "two_ranks_sync"),
    "T7 tokens": ("scheduler", {"ranks_by_tokens": False}, "two_ranks_overlap"),
    "T7 fewest": ("router", {"activity": most_tokens}, "two_ranks_sync"),
    "T7 requests": ("router", {"activity": lambda self, place: (self.loads[place], 0)}, "placement_sync"),
    "T7 done": ("router", {"done": never_done}, "placement_overlap"),
    "T7 worker": ("router", {"load_of": lambda self, worker: self.loads[worker, 0]}, "placement_sync"),
    "T7 no balance": ("scheduler", {"holds": lambda self, ranks: False}, "balance_sync"),
    "T7 every prompt": ("scheduler", {"holds": any_rank}, "balance_overlap"),
    "T7 every row": ("scheduler", {"holds": rows_anywhere}, "balance_sparse_sync"),
    "T7 all are held": ("scheduler", {"lead": each_for_itself}, "balance_replicas_sync"),
    "T7 held blocks": ("scheduler", {"lead": blocks_anyway}, "balance_pauses_sync"),
    "T7 timeout": ("scheduler", {"waits_for_ranks": lambda self, all_decode: all_decode}, "balance_sparse_overlap"),
    "T7 timeout stays": ("scheduler", {"waits_for_more": timeout_stays}, "balance_sync"),
    "T7 batching": ("scheduler", {"waits_for_more": lambda self, all_decode: False}, "balance_overlap"),
    "T7 batching stays": ("scheduler", {"waits_for_more": batching_counts}, "balance_replicas_sync"),
}


@pytest.mark.parametrize("clause", TRTLLM_BREAKS)
def test_a_broken_clause_of_trtllm_shows(clause: str):
    """Another answer, or none at all."""
    part, members, name = TRTLLM_BREAKS[clause]
    assert shows(members, f"trtllm_dp_{name}", part)
