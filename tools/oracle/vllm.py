"""vLLM's scheduler, one method a rule. The ids (V1, V2, ...) are those of the engine clauses."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.oracle.engine import Alone, Launch
from tools.oracle.errors import ScenarioError
from tools.oracle.kv import Block
from tools.oracle.requests import Lengths, Request, Row, State
from tools.oracle.vllm_staging import VllmStaging


@dataclass(slots=True)
class Plan:
    """A pass in the making."""

    budget: int
    deferred: bool = False
    rows: list[Row] = field(default_factory=list)
    preempted: bool = False
    blocked: bool = False


class VllmScheduler(VllmStaging, Alone):
    """Running requests in admission order, a waiting queue, and one token budget a pass.

    Every rule is a method, here or in the base class, so that a subclass can break one alone.
    """

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.step = 0
        self.flying: set[Request] = set()
        self.left_waiting = False  # by the last plan that was not deferred

    # What the worker asks of a scheduler.

    @property
    def ranks(self) -> int:
        """E1: every option holds for one rank."""
        return self.options.data_parallel_size

    @property
    def host_times(self) -> Launch | None:
        """V14: the host's times."""
        return self.options.launch

    @property
    def plans_ahead(self) -> bool:
        """V12: with async scheduling, pass k+1 is decided when pass k starts."""
        return self.options.async_scheduling

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """V4, V7, V11: refuse what could never run."""
        options, usable = self.options, self.usable_blocks()
        for each in lengths:
            if each.limit > each.osl and (options.speculation or options.launch or options.host_offload):
                raise ScenarioError("max_tokens above osl is not modelled with speculation, launch or host_offload")
            if not options.enable_chunked_prefill and each.isl > options.max_num_batched_tokens:
                raise ScenarioError(f"isl {each.isl} never fits max_num_batched_tokens with chunking off; raise it")
            need = self.cover(each.isl + each.osl - 1)
            if usable is not None and need > usable:
                raise ScenarioError(f"isl {each.isl}, osl {each.osl} need {need} blocks; {usable} are usable")

    def arrive(self, request: Request) -> None:
        """V1: the waiting queue is first come, first served."""
        request.state = State.WAITING
        (self.arrived if request.handed_over else self.waiting).append(request)

    def look(self, step: int, flying: list[Row]) -> None:
        """V13, V15: what a plan depends on outside of the rank."""
        self.step, self.flying = step, {row.request for row in flying}

    def plan(self) -> list[Row]:
        """V1: running requests first, then the waiting queue, from one budget; a partial prompt is last by that."""
        plan = Plan(self.budget(), self.defers())
        self.plan_running(plan)
        if self.may_admit(plan):
            self.plan_waiting(plan)
            self.plan_arrived(plan)
        self.note_capacity(plan)
        self.retries = plan.preempted
        return plan.rows

    def receive(self, request: Request, now_ms: float) -> bool:
        """V4: an output appears at the end of its pass, the first one with the last chunk; the last one ends it.

        V12: a row that flies while a stop token appears is wasted: its output comes for nobody.
        """
        if request.state is State.DONE:
            return False
        request.in_flight -= 1
        request.token_ms.append(now_ms)
        self.register_output(request)
        if len(request.token_ms) < request.lengths.osl:
            return False
        self.finish(request)
        return True

    def idle(self) -> bool:
        """Nothing changes by asking again."""
        return False

    # V1 to V5: order, budget, seats, tokens.

    def budget(self) -> int:
        """V1: what the rows of a pass share."""
        return self.options.max_num_batched_tokens

    def plan_running(self, plan: Plan) -> None:
        """V1: give every running request its share, in admission order, preempting where blocks lack."""
        position = 0
        while position < len(self.running) and plan.budget > 0:
            request = self.running[position]
            if not (self.is_leaving(request) or self.skips(request, plan)):
                new, drafts = self.share(request, request.todo, plan), self.drafts(request, plan)
                if not self.make_room(request, new + drafts, plan):
                    break
                self.give(request, new, plan, drafts)
            position += 1

    def plan_waiting(self, plan: Plan) -> None:
        """V1, V6: admit from the head of the queue; the first that cannot go blocks all behind it."""
        while self.waiting and plan.budget > 0 and self.has_seat():
            if not self.admit(self.waiting[0], plan):
                break

    def share(self, request: Request, todo: int, plan: Plan) -> int:
        """V1, V2: what there is to do, at most what the rows before it left of the budget."""
        return min(todo, self.long_prompt_cap(todo), plan.budget)

    def give(self, request: Request, new: int, plan: Plan, drafts: int = 0) -> None:
        """V2, V4: plan a row; it emits if nothing is left to do after it, which makes an output in flight.

        V16: rejected drafts take budget and blocks, but do not count as computed.
        """
        self.grow(request, request.computed + new + drafts)
        self.register(request, request.computed + new)
        emits = (new == request.todo) * (1 + self.accepted(request, drafts))
        plan.rows.append(Row(request, new + drafts, request.computed, emits, drafts))
        plan.budget -= self.cost(new + drafts)
        request.computed += new + max(emits - 1, 0)
        request.in_flight += emits
        request.decode_rows += request.decoding
        request.decoding = emits > 0

    def cost(self, new: int) -> int:
        """V2: tokens of a row come off the budget one by one."""
        return new

    def finish(self, request: Request) -> None:
        """V5: seat and blocks are free for the next plan; V13: a victim's last output may come while it waits."""
        (self.running if request.state is State.RUNNING else self.waiting).remove(request)
        request.state = State.DONE
        self.part(request)

    def is_leaving(self, request: Request) -> bool:
        """V12: an end by length is foreseen: no row for a request whose last output is in flight; a stop is not."""
        return request.promised >= request.lengths.limit

    # V6, V11: admission.

    def admit(self, request: Request, plan: Plan) -> bool:
        """V6: move the head of the queue to the tail of running, with its first chunk, if memory and budget allow."""
        hits = self.lookup(request)
        computed = max(len(hits) * self.options.block_size, self.constant_prefix(request))
        todo = request.known - computed
        if self.waits_for_budget(todo, plan) or self.waits_for_step(todo, plan):
            return False
        new = self.share(request, todo, plan)
        stored = self.reserved_length(request, computed + new)
        if self.blocks_to_take(hits, stored) > self.pool.free - self.margin():
            return False
        self.waiting.popleft()
        self.running.append(request)
        self.hold(request, hits)
        if request.state is State.WAITING:
            request.cached = computed
        request.state, request.computed = State.RUNNING, computed
        self.give(request, new, plan)
        return True

    def reserved_length(self, request: Request, first_chunk_end: int) -> int:
        """V6: the whole current length must fit; with scheduler_reserve_full_isl off, only the first chunk."""
        return request.known if self.options.scheduler_reserve_full_isl else first_chunk_end

    def blocks_to_take(self, hits: list[Block], stored: int) -> int:
        """V6, V9: blocks for `stored` tokens, less the hits; a hit that nobody holds comes off the free ones too."""
        return self.cover(stored) - sum(block.holders > 0 for block in hits)

    def constant_prefix(self, request: Request) -> int:
        """A scenario's `prefix` needs no computing at the first admission; at least one token always does."""
        return min(request.lengths.prefix, request.lengths.isl - 1) if request.state is State.WAITING else 0

    def waits_for_budget(self, todo: int, plan: Plan) -> bool:
        """V11: with chunking off, a prompt larger than what is left of the budget waits, and all behind it."""
        return not self.options.enable_chunked_prefill and min(todo, self.long_prompt_cap(todo)) > plan.budget

    def long_prompt_cap(self, todo: int) -> int:
        """V10: the threshold caps a chunk, unless the engine has one request in all, leavers counted."""
        threshold = self.options.long_prefill_token_threshold
        alone = len(self.running) + len(self.waiting) + len(self.arrived) == 1
        return todo if not threshold or alone else threshold

    # V7, V8: memory under pressure.

    def make_room(self, request: Request, new: int, plan: Plan) -> bool:
        """V8: preempt until the blocks for `new` more tokens are free; False if the request itself had to go.

        V13: or if it has to wait for a victim to land; with it wait those behind it, or they would fly, and it starve.
        """
        need = self.cover(request.computed + new) - len(request.blocks)
        while need > self.pool.free:
            victim = self.victim()
            if self.is_protected(victim):
                plan.blocked = True
                return False
            self.preempt(victim, plan)
            if victim is request:
                return False
        return True

    def victim(self) -> Request:
        """V8: the last of the running list."""
        return self.running[-1]

    def preempt(self, victim: Request, plan: Plan) -> None:
        """V8: it loses blocks and progress, waits at the head, and its tokens of this pass return to the budget.

        What the pass in flight still emits for it counts: that output is known before it can be admitted again.
        """
        self.running.remove(victim)
        self.waiting.appendleft(victim)
        self.free(victim)
        for row in [row for row in plan.rows if row.request is victim]:
            plan.rows.remove(row)
            plan.budget += self.cost(row.new)
            victim.in_flight -= row.emits
        victim.state, victim.computed, victim.decoding = State.PREEMPTED, 0, False
        victim.preemptions += 1
        plan.preempted = True

    def may_admit(self, plan: Plan) -> bool:
        """V8: a pass that preempted admits nobody; V13: nor does one in which a running request waits for blocks."""
        return not (plan.preempted or plan.blocked)

    def is_protected(self, victim: Request) -> bool:
        """V13: with an offload tier, a sequence of the pass in flight keeps its blocks."""
        return self.options.host_offload and victim in self.flying

    # V15: the prefill interval.

    def defers(self) -> bool:
        """V15: between the steps, while decodes run and capacity was not what kept anybody out."""
        off_step = self.step % self.options.prefill_schedule_interval != 0
        return off_step and self.runs_a_decode() and not self.left_waiting

    def runs_a_decode(self) -> bool:
        """V15: somebody has a decode row to take; those about to leave have none."""
        return any(request.decoding and not self.is_leaving(request) for request in self.running)

    def skips(self, request: Request, plan: Plan) -> bool:
        """V15: a deferred pass leaves unfinished prompts out."""
        return plan.deferred and not request.decoding

    def waits_for_step(self, todo: int, plan: Plan) -> bool:
        """V15: a deferred pass stops at a waiting request with more than one token to compute."""
        return plan.deferred and todo > 1

    def note_capacity(self, plan: Plan) -> None:
        """V15: whether a plan that could admit left anybody waiting."""
        if not plan.deferred:
            self.left_waiting = bool(self.waiting or self.arrived)

    # V16: speculation.

    def drafts(self, request: Request, plan: Plan) -> int:
        """V16: a decode row tries more tokens, as far as the budget and what is left of the output go."""
        speculation = self.options.speculation
        if speculation is None or not request.decoding:
            return 0
        return min(speculation.drafts, plan.budget - 1, request.lengths.osl - request.promised - 1)

    def accepted(self, request: Request, drafts: int) -> int:
        """V16: the drafts that hold, by the row's number in the life of the request."""
        speculation = self.options.speculation
        return min(drafts, speculation.accepted_by(request.decode_rows)) if speculation and request.decoding else 0
