"""Each clause is a method, and the battery notices when one is broken: (what replaces the method, where it shows)."""

import pytest

from tools.oracle.kv import BlockPool
from tools.oracle.requests import State
from tools.oracle.vllm import Plan, VllmScheduler

from .breaking import shows


class NewestCopy(BlockPool):
    """V9 broken: lookup takes the newest of several copies."""

    def find(self, content):
        return next(reversed(self.known.get(content, {})), None)


def waiting_first(self):
    """V1 broken: newcomers before the running."""
    plan, old = Plan(self.budget()), list(self.running)
    self.plan_waiting(plan)
    new, self.running = [request for request in self.running if request not in old], old
    self.plan_running(plan)
    self.running += new
    return plan.rows


def to_the_tail(self, victim, plan):
    """V8 broken: a victim queues behind everybody."""
    VllmScheduler.preempt(self, victim, plan)
    self.waiting.rotate(-1)


def first_one_first(self, request):
    """V9 broken: blocks return in their own order."""
    self.pool.release(request.blocks)
    request.blocks, request.registered = [], 0


def unknown_too(self, request, stored):
    """V9 broken: a token in flight is registered as if known."""
    full = min(stored, request.known + request.in_flight) // self.options.block_size
    for index in range(request.registered, full):
        self.pool.register(request.blocks[index], self.content(request, index))
    request.registered = max(request.registered, full)


BREAKS = {
    "V1 order": ({"plan": waiting_first}, "4096_128_c16_b2048_sync"),
    "V2 budget": ({"budget": lambda self: self.options.max_num_batched_tokens - 1}, "4096_128_c16_b2048_async"),
    "V2 cost": ({"cost": lambda self, new: new if new > 1 else 0}, "4096_128_c16_b2048_async"),
    "V3 seats": ({"has_seat": lambda self: len(self.running) <= self.options.max_num_seqs}, "few_seats_mixed_sync"),
    "V6 reserve": ({"reserved_length": lambda self, request, end: end}, "reserve_on_sync"),
    "V6 no reserve": ({"reserved_length": lambda self, request, end: request.known}, "reserve_off_sync"),
    "V6 hits are free": ({"blocks_to_take": lambda self, hits, n: self.cover(n) - len(hits)}, "groups_thrash_sync"),
    "V7 null block": ({"usable_blocks": lambda self: self.options.num_gpu_blocks}, "kv_tight_sync"),
    "V7 watermark": ({"margin": lambda self: 0}, "watermark_sync"),
    "V7 always": ({"margin": lambda self: self.options.num_gpu_blocks // 4}, "watermark_whole_memory_sync"),
    "V8 victim": ({"victim": lambda self: self.running[0]}, "kv_thrash_sync"),
    "V8 head": ({"preempt": to_the_tail}, "kv_thrash_sync"),
    "V8 admits": ({"may_admit": lambda self, plan: True}, "kv_nochunk_async"),
    "V9 whole hit": ({"hit_limit": lambda self, request: request.known // 16}, "groups_full_hit_sync"),
    "V9 no resume": ({"hit_limit": lambda self, r: (r.known - 1) // 16 * (r.state is State.WAITING)}, "kv_thrash_sync"),
    "V9 identity": ({"content": lambda self, request, index: (request.number, index)}, "groups_async"),
    "V9 return": ({"free": first_one_first}, "kv_thrash_sync"),
    "V9 oldest": ({"pool_class": NewestCopy}, "groups_equal_copies_sync"),
    "V9 in flight": ({"register": unknown_too}, "kv_thrash_async"),
    "V9 outputs": ({"register_output": lambda self, request: None}, "groups_thrash_async"),
    "V10 threshold": ({"long_prompt_cap": lambda self, todo: todo}, "threshold_sync"),
    "V11 blocks": ({"waits_for_budget": lambda self, todo, plan: False}, "2048_128_c16_b8192_nochunk_sync"),
    "V12 lookahead": ({"plans_ahead": False}, "few_seats_mixed_async"),
    "prefix": ({"constant_prefix": lambda self, request: 0}, "prefix_constant_kv_sync"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, f"vllm_{name}")
