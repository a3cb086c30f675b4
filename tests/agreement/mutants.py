"""Wrong engines: the oracle with one clause broken, each with a scenario of the battery that must tell.

Most break a method of the oracle's scheduler; what lies outside the scheduler is broken in the scenario that the oracle is asked.
With prefill and decode apart, many classes have clauses; those breaks are the ones that the oracle's own tests use.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.oracle.wrong import Break
from tests.oracle.wrong_tandem import TANDEM
from tools.oracle import simulate
from tools.oracle.requests import Row, State
from tools.oracle.vllm import Plan, VllmScheduler

Json = dict[str, Any]


class WaitingFirst(VllmScheduler):
    """V1: newcomers take their share before the running."""

    def plan(self):
        plan, seated = Plan(self.budget()), list(self.running)
        self.plan_waiting(plan)
        admitted = [request for request in self.running if request not in seated]
        self.running = seated
        self.plan_running(plan)
        self.running += admitted
        return plan.rows


class SkipsTheHead(VllmScheduler):
    """V6: a head that does not fit is passed over."""

    def plan_waiting(self, plan):
        passed = []
        while self.waiting and plan.budget > 0 and self.has_seat():
            if not self.admit(self.waiting[0], plan):
                passed.append(self.waiting.popleft())
        self.waiting.extendleft(reversed(passed))


class BudgetOffByOne(VllmScheduler):
    """V2: one token too few."""

    def budget(self):
        return self.options.max_num_batched_tokens - 1


class DecodesAreFree(VllmScheduler):
    """V2: decode rows do not count."""

    def cost(self, new):
        return new if new > 1 else 0


class OneSeatMore(VllmScheduler):
    """V3: seats off by one."""

    def has_seat(self):
        return len(self.running) <= self.options.max_num_seqs


class PartialPromptsStand(VllmScheduler):
    """V3: a partial prompt holds no seat."""

    def has_seat(self):
        return sum(request.todo <= 1 for request in self.running) < self.options.max_num_seqs


class LeaversStand(VllmScheduler):
    """V12: the seat of a sequence whose last token is in flight is free already."""

    def has_seat(self):
        return sum(not self.is_leaving(request) for request in self.running) < self.options.max_num_seqs


class FirstTokenIsADecodeRow(VllmScheduler):
    """V4: the chunk that completes a prompt is priced as a decode row."""

    class Mistaken(Row):
        __slots__ = ()

        @property
        def is_decode(self):
            return self.emits

    def plan(self):
        return [self.Mistaken(row.request, row.new, row.past, row.emits) for row in super().plan()]


class ContextOffByOne(VllmScheduler):
    """Timing: contexts count one token too many."""

    def plan(self):
        rows = super().plan()
        for row in rows:
            row.past += row.is_decode
        return rows


class ReserveIgnored(VllmScheduler):
    """V6: only the first chunk must fit."""

    def reserved_length(self, request, first_chunk_end):
        return first_chunk_end


class ReserveAlways(VllmScheduler):
    """V6: the whole prompt must fit though the option is off."""

    def reserved_length(self, request, first_chunk_end):
        return request.known


class NullBlockUsed(VllmScheduler):
    """V7: all blocks are usable."""

    def usable_blocks(self):
        return self.options.num_gpu_blocks


class NoWatermark(VllmScheduler):
    """V7: nothing is kept free."""

    def margin(self):
        return 0


class WatermarkAlways(VllmScheduler):
    """V7: kept free even while nothing runs."""

    def margin(self):
        return int(self.options.watermark * (self.options.num_gpu_blocks or 0))


class PreemptsTheOldest(VllmScheduler):
    """V8: the first of the running list goes."""

    def victim(self):
        return self.running[0]


class VictimToTheTail(VllmScheduler):
    """V8: a victim queues behind everybody."""

    def preempt(self, victim, plan):
        super().preempt(victim, plan)
        self.waiting.rotate(-1)


class AdmitsAfterPreempting(VllmScheduler):
    """V8: a pass that preempted admits too."""

    def may_admit(self, plan):
        return True


class ThresholdIgnored(VllmScheduler):
    """V10: chunks are not capped."""

    def long_prompt_cap(self, todo):
        return todo


class ThresholdWhenAlone(VllmScheduler):
    """V10: a lone request is capped too."""

    def long_prompt_cap(self, todo):
        return self.options.long_prefill_token_threshold or todo


class ChunksAnyway(VllmScheduler):
    """V11: a prompt is cut though chunking is off."""

    def waits_for_budget(self, todo, plan):
        return False


class LookaheadDropped(VllmScheduler):
    """V12: async plans when the pass before is over."""

    plans_ahead = False


class PrefixIgnored(VllmScheduler):
    """Prefix: every token is computed."""

    def constant_prefix(self, request):
        return 0


class PrefixOnResume(VllmScheduler):
    """Prefix: a preempted sequence finds it again."""

    def constant_prefix(self, request):
        was, request.state = request.state, State.WAITING
        try:
            return super().constant_prefix(request)
        finally:
            request.state = was


def without(key: str) -> Callable[[Json], Json]:
    """The scenario as if this key of its workload were zero."""
    return lambda asked: {**asked, "workload": {**asked["workload"], key: 0}}


def combined(how: str) -> Callable[[Json], Json]:
    """The scenario with another way to combine the parts of a pass."""
    return lambda asked: {**asked, "timing": {**asked["timing"], "combine": how}}


@dataclass(frozen=True)
class Mutant:
    """A wrong oracle and the scenario that must tell."""

    witness: str
    scheduler: type[VllmScheduler] | None = None
    asked: Callable[[Json], Json] = dict

    def answer(self, scenario: Json) -> Json:
        """The wrong answer."""
        return simulate(self.asked(scenario), scheduler=self.scheduler)


MUTANTS: dict[str, Mutant | Break] = {
    "V1 waiting before running": Mutant("vllm_osl1_sync", WaitingFirst),
    "V2 budget off by one": Mutant("vllm_osl1_sync", BudgetOffByOne),
    "V2 decodes are free": Mutant("vllm_budget_is_seats_sync", DecodesAreFree),
    "V3 seats off by one": Mutant("vllm_one_seat_sync", OneSeatMore),
    "V3 partial prompts stand": Mutant("vllm_threshold_seats_sync", PartialPromptsStand),
    "V4 first token a decode row": Mutant("vllm_ingest_overtakes_sync", FirstTokenIsADecodeRow),
    "V6 blocked head passed over": Mutant("vllm_watermark_whole_memory_sync", SkipsTheHead),
    "V6 reserve ignored": Mutant("vllm_threshold_overadmits_sync", ReserveIgnored),
    "V6 reserve always": Mutant("vllm_reserve_off_cached_off_sync", ReserveAlways),
    "V7 null block used": Mutant("vllm_kv_tight_sync", NullBlockUsed),
    "V7 no watermark": Mutant("vllm_watermark_async", NoWatermark),
    "V7 watermark always": Mutant("vllm_watermark_whole_memory_sync", WatermarkAlways),
    "V8 oldest preempted": Mutant("vllm_kv_tight_sync", PreemptsTheOldest),
    "V8 victim to the tail": Mutant("vllm_kv_tight_sync", VictimToTheTail),
    "V8 admits after preempting": Mutant("vllm_kv_tight_async", AdmitsAfterPreempting),
    "V10 threshold ignored": Mutant("vllm_threshold_two_sync", ThresholdIgnored),
    "V10 threshold when alone": Mutant("vllm_threshold_alone_sync", ThresholdWhenAlone),
    "V11 chunks anyway": Mutant("vllm_nochunk_mixed_sync", ChunksAnyway),
    "V12 lookahead dropped": Mutant("vllm_replay_pass_ends_async", LookaheadDropped),
    "V12 leavers stand": Mutant("vllm_one_seat_async", LeaversStand),
    "prefix ignored": Mutant("vllm_linear_sum_sync", PrefixIgnored),
    "prefix on resume": Mutant("vllm_prefix_resumed_sync", PrefixOnResume),
    "context off by one": Mutant("vllm_replay_pass_ends_sync", ContextOffByOne),
    "turnaround ignored": Mutant("vllm_threshold_alone_sync", asked=without("turnaround_ms")),
    "stagger ignored": Mutant("vllm_stagger_sync", asked=without("stagger_ms")),
    "ingest ignored": Mutant("vllm_ingest_overtakes_sync", asked=without("ingest_us_per_token")),
    "max adds": Mutant("vllm_linear_max_sync", asked=combined("sum")),
    "sum overlaps": Mutant("vllm_linear_sum_sync", asked=combined("max")),
    "sum shares": Mutant("vllm_linear_sum_sync", asked=combined("shared")),
    **TANDEM,
}
