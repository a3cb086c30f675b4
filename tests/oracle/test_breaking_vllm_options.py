"""V13, V15 and V16 broken one rule at a time: (what replaces the method, where it shows)."""

from math import ceil

import pytest

from tools.oracle.vllm import VllmScheduler

from .breaking import shows


def off_step(self):
    """Not on a step of the interval."""
    return self.step % self.options.prefill_schedule_interval != 0


def leavers_too(self):
    """V15 broken: one about to leave counts as a decode."""
    return any(request.decoding for request in self.running)


def any_plan(self, plan):
    """V15 broken: a deferred plan says too who is left waiting."""
    self.left_waiting = bool(self.waiting)


def all_count(self, request, new, plan, drafts=0):
    """V16 broken: rejected drafts count as computed."""
    VllmScheduler.give(self, request, new, plan, drafts)
    request.computed += drafts - max(plan.rows[-1].emits - 1, 0)


def blocks_for_one(self, request, new, plan, drafts=0):
    """V16 broken: drafts need no blocks."""
    blocks = VllmScheduler.cover(self, request.computed + new)
    held = self.pool.free
    VllmScheduler.give(self, request, new, plan, drafts)
    assert held >= self.pool.free
    while len(request.blocks) > max(blocks, self.cover(request.computed)):
        self.pool.release([request.blocks.pop()])


def budget_for_one(self, new):
    """V16 broken: a row costs a token, however many drafts it has."""
    return 1 if new <= 6 else new


def anew(self, victim, plan):
    """V16 broken: a preempted request starts the stream anew."""
    VllmScheduler.preempt(self, victim, plan)
    victim.decode_rows = 0


def uncut(self, request, plan):
    """V16 broken: as many drafts as the budget allows, whatever the output wants."""
    return min(self.options.speculation.drafts, plan.budget - 1) if request.decoding else 0


def beyond_budget(self, request, plan):
    """V16 broken: drafts take budget that is not there."""
    left = request.lengths.osl - request.promised - 1
    return min(self.options.speculation.drafts, left) if request.decoding else 0


def rounded_up(self, request, drafts):
    """V16 broken: the fraction comes early."""
    mean, row = self.options.speculation.accepted, request.decode_rows
    return min(drafts, ceil((row + 1) * mean) - ceil(row * mean)) if request.decoding else 0


def no_fraction(self, request, drafts):
    """V16 broken: only what is always accepted."""
    return min(drafts, int(self.options.speculation.accepted)) if request.decoding else 0


def skip_it_alone(self, plan):
    """V13 broken: those behind who waits go on."""
    for request in list(self.running):
        if plan.budget > 0 and request in self.running and not self.is_leaving(request):
            new = self.share(request, request.todo, plan)
            if self.make_room(request, new, plan):
                self.give(request, new, plan)


BREAKS = {
    "V13 protection": ({"is_protected": lambda self, victim: False}, "offload_kv_tight_async"),
    "V13 any running": ({"is_protected": lambda self, victim: self.options.host_offload}, "offload_groups_async"),
    "V13 behind": ({"plan_running": skip_it_alone}, "offload_prompts_async"),
    "V13 admission": ({"may_admit": lambda self, plan: not plan.preempted}, "offload_admission_async"),
    "V13 sync": ({"look": lambda self, step, flying: self.flying.update(self.running)}, "offload_kv_tight_sync"),
    "V13 drafts": ({"is_protected": lambda self, victim: False}, "offload_dp_speculation_async"),
    "V13 launch": ({"is_protected": lambda self, victim: False}, "offload_launch_async"),
    "V15 interval": ({"defers": lambda self: False}, "interval_vllm_dp_sync"),
    "V15 decodes": ({"runs_a_decode": lambda self: True}, "interval_vllm_drains_sync"),
    "V15 leavers": ({"runs_a_decode": leavers_too}, "interval_vllm_drains_async"),
    "V15 capacity": ({"note_capacity": lambda self, plan: None}, "interval_vllm_capacity_sync"),
    "V15 capacity of any": ({"note_capacity": any_plan}, "interval_vllm_capacity_async"),
    "V15 unfinished": ({"skips": lambda self, request, plan: False}, "interval_vllm_alone_async"),
    "V15 waiting": ({"waits_for_step": lambda self, todo, plan: False}, "interval_vllm_dp_async"),
    "V15 one token": ({"waits_for_step": lambda self, todo, plan: plan.deferred}, "interval_vllm_one_token_sync"),
    "V15 one cached": ({"waits_for_step": lambda self, todo, plan: plan.deferred}, "interval_vllm_one_token_async"),
    "V15 memory": ({"defers": off_step}, "interval_vllm_kv_sync"),
    "V16 drafts": ({"drafts": lambda self, request, plan: 0}, "speculation_fraction_sync"),
    "V16 output": ({"drafts": uncut}, "speculation_fraction_sync"),
    "V16 budget": ({"drafts": beyond_budget}, "speculation_budget_sync"),
    "V16 cost": ({"cost": budget_for_one}, "speculation_budget_async"),
    "V16 fraction": ({"accepted": no_fraction}, "speculation_fraction_async"),
    "V16 early": ({"accepted": rounded_up}, "speculation_dp_interval_async"),
    "V16 life": ({"preempt": anew}, "speculation_kv_tight_async"),
    "V16 computed": ({"give": all_count}, "speculation_none_accepted_async"),
    "V16 blocks": ({"give": blocks_for_one}, "speculation_kv_tight_sync"),
    "V16 groups": ({"accepted": lambda self, request, drafts: drafts}, "speculation_groups_sync"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, name)
