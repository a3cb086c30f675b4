"""vLLM's scheduler, one method a rule. The ids (V1, V2, ...) are those of the engine clauses."""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from tools.oracle.errors import ScenarioError
from tools.oracle.kv import Block, BlockPool
from tools.oracle.requests import Lengths, Request, Row, State
from tools.oracle.vllm_options import Options


@dataclass(slots=True)
class Plan:
    """A pass in the making."""

    budget: int
    rows: list[Row] = field(default_factory=list)
    preempted: bool = False


class VllmScheduler:
    """Running requests in admission order, a waiting queue, and one token budget a pass.

    Every rule is a method, so that a subclass can break one alone; `pool_class` does the same for the block queue.
    """

    pool_class: type[BlockPool] = BlockPool

    def __init__(self, engine: object) -> None:
        self.options = Options.read(engine)
        self.running: list[Request] = []
        self.waiting: deque[Request] = deque()
        self.pool = self.pool_class(self.usable_blocks())

    # What the engine asks of a scheduler.

    @property
    def plans_ahead(self) -> bool:
        """V12: with async scheduling, pass k+1 is decided when pass k starts."""
        return self.options.async_scheduling

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """V4, V7, V11: refuse what could never run."""
        options, usable = self.options, self.usable_blocks()
        for each in lengths:
            if not options.enable_chunked_prefill and each.isl > options.max_num_batched_tokens:
                raise ScenarioError(f"isl {each.isl} never fits max_num_batched_tokens with chunking off; raise it")
            need = self.cover(each.isl + each.osl - 1)
            if usable is not None and need > usable:
                raise ScenarioError(f"isl {each.isl}, osl {each.osl} need {need} blocks; {usable} are usable")

    def arrive(self, request: Request) -> None:
        """V1: the waiting queue is first come, first served."""
        request.state = State.WAITING
        self.waiting.append(request)

    def plan(self) -> list[Row]:
        """V1: running requests first, then the waiting queue, from one budget; a partial prompt is last by that."""
        plan = Plan(self.budget())
        self.plan_running(plan)
        if self.may_admit(plan):
            self.plan_waiting(plan)
        return plan.rows

    def receive(self, request: Request, now_ms: float) -> bool:
        """V4: an output appears at the end of its pass, the first one with the last chunk; the last one ends it."""
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
            new = 0 if self.is_leaving(request) else self.share(request, request.todo, plan)
            if new:
                if not self.make_room(request, new, plan):
                    break
                self.give(request, new, plan)
            position += 1

    def plan_waiting(self, plan: Plan) -> None:
        """V1, V6: admit from the head of the queue; the first that cannot go blocks all behind it."""
        while self.waiting and plan.budget > 0 and self.has_seat():
            if not self.admit(self.waiting[0], plan):
                break

    def share(self, request: Request, todo: int, plan: Plan) -> int:
        """V1, V2: what there is to do, at most what the rows before it left of the budget."""
        return min(todo, self.long_prompt_cap(todo), plan.budget)

    def give(self, request: Request, new: int, plan: Plan) -> None:
        """V2, V4: plan a row; it emits if nothing is left to do after it, which makes an output in flight."""
        self.grow(request, request.computed + new)
        self.register(request, request.computed + new)
        emits = new == request.todo
        plan.rows.append(Row(request, new, request.computed, emits))
        plan.budget -= self.cost(new)
        request.computed += new
        request.in_flight += emits

    def cost(self, new: int) -> int:
        """V2: tokens of a row come off the budget one by one."""
        return new

    def has_seat(self) -> bool:
        """V3: partial prompts and, in an async plan, those about to leave hold seats too."""
        return len(self.running) < self.options.max_num_seqs

    def finish(self, request: Request) -> None:
        """V5: seat and blocks are free for the next plan; V13: a victim's last output may come while it waits."""
        (self.running if request.state is State.RUNNING else self.waiting).remove(request)
        request.state = State.DONE
        self.free(request)

    def is_leaving(self, request: Request) -> bool:
        """V12: the end by length is foreseen; no row for a request whose last output is in flight."""
        return request.promised >= request.lengths.osl

    # V6, V11: admission.

    def admit(self, request: Request, plan: Plan) -> bool:
        """V6: move the head of the queue to the tail of running, with its first chunk, if memory and budget allow."""
        hits = self.lookup(request)
        computed = max(len(hits) * self.options.block_size, self.constant_prefix(request))
        todo = request.known - computed
        if self.waits_for_budget(todo, plan):
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
        alone = len(self.running) + len(self.waiting) == 1
        return todo if not threshold or alone else threshold

    # V7, V8: memory under pressure.

    def usable_blocks(self) -> int | None:
        """V7: one block is the null block; no limit, if the scenario has none."""
        total = self.options.num_gpu_blocks
        return None if total is None else total - 1

    def margin(self) -> int:
        """V7: blocks that an admission leaves free while anything runs."""
        total = self.options.num_gpu_blocks
        return int(self.options.watermark * total) if total is not None and self.running else 0

    def make_room(self, request: Request, new: int, plan: Plan) -> bool:
        """V8: preempt until the blocks for `new` more tokens are free; False if the request itself had to go."""
        need = self.cover(request.computed + new) - len(request.blocks)
        while need > self.pool.free:
            victim = self.victim()
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
        victim.state, victim.computed = State.PREEMPTED, 0
        victim.preemptions += 1
        plan.preempted = True

    def may_admit(self, plan: Plan) -> bool:
        """V8: a pass that preempted admits nobody."""
        return not plan.preempted

    # V9: blocks and the prefix cache.

    def cover(self, tokens: int) -> int:
        """Blocks that hold so many tokens."""
        return -(-tokens // self.options.block_size)

    def content(self, request: Request, index: int) -> Hashable:
        """V9: the identity of a block is its whole prefix: shared while all of it is the group's, else its own."""
        lengths, end = request.lengths, (index + 1) * self.options.block_size
        if lengths.prefix_group is not None and end <= min(lengths.prefix_len, lengths.isl):
            return "group", lengths.prefix_group, index
        return "request", request.number, index

    def hit_limit(self, request: Request) -> int:
        """V9: at most (length - 1) // block_size blocks, so that a token is left to compute."""
        return (request.known - 1) // self.options.block_size

    def lookup(self, request: Request) -> list[Block]:
        """V9: at admission only, resumed or not: the leading blocks that the cache knows."""
        hits: list[Block] = []
        if self.options.enable_prefix_caching:
            for index in range(self.hit_limit(request)):
                block = self.pool.find(self.content(request, index))
                if block is None:
                    break
                hits.append(block)
        return hits

    def hold(self, request: Request, hits: list[Block]) -> None:
        """V9: take the hits as the leading blocks."""
        for block in hits:
            self.pool.hold(block)
        request.blocks, request.registered = list(hits), len(hits)

    def grow(self, request: Request, stored: int) -> None:
        """V7: take blocks for all tokens stored by the end of the pass."""
        for _ in range(self.cover(stored) - len(request.blocks)):
            request.blocks.append(self.pool.take())

    def register(self, request: Request, stored: int) -> None:
        """V9: planning makes full blocks known, as far as their tokens are: one in flight is not."""
        if self.options.enable_prefix_caching:
            full = min(stored, request.known) // self.options.block_size
            for index in range(request.registered, full):
                self.pool.register(request.blocks[index], self.content(request, index))
            request.registered = max(request.registered, full)

    def register_output(self, request: Request) -> None:
        """V9: an output that appears makes known the full blocks before it; with async, planning could not do it all.

        An async plan does not know the token in flight, so what the last row of a request filled would stay unknown.
        """
        if request.state is State.RUNNING:
            self.register(request, request.computed - request.in_flight)

    def free(self, request: Request) -> None:
        """V9: blocks return last one first."""
        self.pool.release(reversed(request.blocks))
        request.blocks, request.registered = [], 0
