"""Ends by a stop token, broken one rule at a time: (what replaces the method, where it shows)."""

import pytest

from tools.oracle.requests import State
from tools.oracle.sglang import SglangScheduler
from tools.oracle.trtllm import TrtllmScheduler
from tools.oracle.vllm import VllmScheduler

from .breaking import answered, shows


def foreseen(self, request):
    """S4, T5, V12 broken: a stop is known beforehand."""
    return request.promised >= request.lengths.osl


def leaves_late(right, is_leaver):
    """S4, T5, V12 broken: seat and memory come back when the wasted row lands."""

    def stopped(self, request):
        return len(request.token_ms) >= request.lengths.osl

    def receive(self, request, now_ms):
        if request.state is State.RUNNING and stopped(self, request):
            self.finish(request)
            return False
        if request.state is not State.RUNNING or request.in_flight < 2 or request.promised <= request.lengths.osl:
            return right.receive(self, request, now_ms)
        request.in_flight -= 1
        request.token_ms.append(now_ms)
        return True

    def leaves(self, request):
        return stopped(self, request) or getattr(right, is_leaver)(self, request)

    return {"receive": receive, is_leaver: leaves}


def cover_outputs(self, request):
    """T1 broken: what will come is reserved, not what may come."""
    return self.cover(request.lengths.isl + request.lengths.osl)


def row_for_nothing(self, request):
    """T11 broken: a wasted row takes no block."""
    return 0 if request.promised >= request.lengths.osl else TrtllmScheduler.row_blocks(self, request)


def no_block_to_waste(self, request, new, plan):
    """V8 broken: a wasted row preempts nobody."""
    return request.promised >= request.lengths.osl or VllmScheduler.make_room(self, request, new, plan)


def real_outputs(self, lengths):
    """S6 to S9, S13 broken: the outputs that will come count."""
    return min(lengths.osl, SglangScheduler.max_new_of(self, lengths))


def never_cut(self, request):
    """S17 broken: the stop comes, whatever the pool holds."""
    return request.lengths.osl


BREAKS = {
    "V12 foreseen": ({"is_leaving": foreseen}, "vllm_async"),
    "V12 foreseen drains": ({"is_leaving": foreseen}, "vllm_dp_interval_async"),
    "V12 late": (leaves_late(VllmScheduler, "is_leaving"), "vllm_async"),
    "V12 late blocks": (leaves_late(VllmScheduler, "is_leaving"), "vllm_kv_tight_async"),
    "V8 wasted": ({"make_room": no_block_to_waste}, "vllm_kv_tight_async"),
    "V9 wasted": ({"is_leaving": foreseen}, "vllm_groups_async"),
    "S4 foreseen": ({"is_leaver": foreseen}, "sglang_overlap"),
    "S4 foreseen selection": ({"is_leaver": foreseen}, "sglang_host_loop_overlap"),
    "S4 late": (leaves_late(SglangScheduler, "is_leaver"), "sglang_overlap"),
    "S6 what may come": ({"max_new_of": real_outputs}, "sglang_sync"),
    "S9 what may come": ({"max_new_of": real_outputs}, "sglang_noradix_sync"),
    "S13 what may come": ({"max_new_of": real_outputs}, "sglang_retract_sync"),
    "S17 cut": ({"outputs": never_cut}, "sglang_cut_sync"),
    "T1 what may come": ({"total_blocks": cover_outputs}, "trtllm_sync"),
    "T3 foreseen": ({"is_leaver": foreseen}, "trtllm_static_batch_overlap"),
    "T5 foreseen": ({"is_leaver": foreseen}, "trtllm_overlap"),
    "T5 late": (leaves_late(TrtllmScheduler, "is_leaver"), "trtllm_overlap"),
    "T7 foreseen": ({"is_leaver": foreseen}, "trtllm_dp_overlap"),
    "T11 wasted": ({"row_blocks": row_for_nothing}, "trtllm_utilization_overlap"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    members, name = BREAKS[clause]
    assert shows(members, f"stops_{name}")


def test_what_breaks_late_is_late_only_for_stops():
    """The replacement changes nothing where nobody stops."""
    for right, is_leaver, name in (
        (VllmScheduler, "is_leaving", "vllm_kv_tight_async"),
        (SglangScheduler, "is_leaver", "sglang_retract_overlap"),
        (TrtllmScheduler, "is_leaver", "trtllm_utilization_pauses_overlap"),
    ):
        assert answered(name)
        assert not shows(leaves_late(right, is_leaver), name)
