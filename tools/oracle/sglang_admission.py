"""How SGLang fills a prefill batch: budgets, scan, admission, order (S5 to S10, S16), one method a rule."""

from dataclasses import dataclass, field
from enum import Enum, auto

from tools.oracle.radix import Node
from tools.oracle.requests import Request, State
from tools.oracle.sglang_staging import SglangStaging

CLIP = 4096
LPM_LIMIT = 128  # waiting requests up to which a queue is sorted or touched
LPM_THRESHOLD = 32
TOUCH_INTERVAL = 32


class Verdict(Enum):
    """Why a scan ends."""

    NO_TOKEN = auto()
    OTHER = auto()


@dataclass(slots=True)
class Prefill:
    """A prefill batch in the making, with the budgets of S6."""

    input: int
    chunk: int | None
    now: int
    promised: float
    batch: list[tuple[Request, int]] = field(default_factory=list)
    entries: list[tuple[int, int]] | None = None  # S9: outputs left and tokens held


class SglangAdmission(SglangStaging):
    """A queue, the running requests, one partial prompt, and a flag that blocks admission."""

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.running: list[Request] = []
        self.full = False
        self.ratio = self.initial_ratio()
        self.attempts = 0

    def initial_ratio(self) -> float:
        """S12: what the outputs are expected to use of what they may use."""
        return min(1.0, 0.7 * self.conservativeness())

    # S18: what the ranks of a group share.

    def conservativeness(self) -> float:
        """S18: with DP attention less of the outputs is expected."""
        return self.options.schedule_conservativeness * (0.3 if self.options.dp_size > 1 else 1)

    def chunk_limit(self) -> int | None:
        """S18: the ranks share the chunk; None with chunking off."""
        chunk = self.options.chunked_prefill_size
        return None if chunk is None else self.options.per_rank(chunk)

    def input_limit(self) -> int:
        """S18: max_prefill_tokens is every rank's own."""
        return self.options.max_prefill_tokens

    def running_limit(self) -> int:
        """S18: the ranks share the slots."""
        return self.options.per_rank(self.options.max_running_requests)

    # S6: budgets.

    def budgets(self) -> Prefill:
        """S6: what is left of everything before the first prompt."""
        debit = self.mixed_debit()
        chunk = self.chunk_limit()
        return Prefill(
            input=self.input_limit() - debit,
            chunk=None if chunk is None else chunk - debit,
            now=debit,
            promised=debit + sum(self.expected(request) for request in self.running),
        )

    def mixed_debit(self) -> int:
        """S6: rows ride along, so all that runs costs a token; leavers too (S4)."""
        return len(self.running) if self.options.enable_mixed_chunk else 0

    def expected(self, request: Request) -> float:
        """S6: the outputs still promised to a running request."""
        return self.clip(self.left(request)) * (1 if self.options.ignore_eos else self.ratio)

    def left(self, request: Request) -> int:
        """S4: outputs not seen yet, those in flight too."""
        return self.max_new(request) - len(request.token_ms)

    def clip(self, outputs: int) -> int:
        """S6: no promise exceeds CLIP."""
        return min(outputs, CLIP)

    def rest(self, plan: Prefill) -> float:
        """S6: tokens that are not promised; locking a hit lowers it."""
        return self.capacity() - plan.promised

    def rest_now(self, plan: Prefill) -> float:
        """S6: tokens that are not taken."""
        return self.capacity() - plan.now

    def charge(self, plan: Prefill, request: Request, new: int) -> None:
        """S6: whole pages and one more, and with the last chunk all of max_new, also for a resumed request."""
        cost = self.ceil(new) + self.options.page_size
        is_last = request.computed + new == self.prompt(request)
        plan.now += cost
        plan.promised += cost + (self.clip(self.max_new(request)) if is_last else 0)
        plan.input -= self.ceil(new)
        if plan.chunk is not None:
            plan.chunk -= self.ceil(new)
        plan.batch.append((request, new))

    def prompt(self, request: Request) -> int:
        """S13: tokens to compute before the next output; after a retraction, outputs so far too."""
        return request.lengths.isl + request.absorbed

    # S5, S7, S10: who is looked at.

    def continue_partial(self, plan: Prefill) -> None:
        """S10: the partial goes first, exempt from slots and from the memory test."""
        request = self.partial
        if request is not None:
            room = int(min(plan.chunk, self.rest(plan)))
            remaining = self.prompt(request) - request.computed
            new = min(remaining, room if room > 0 else plan.chunk)
            self.charge(plan, request, new)
            if new == remaining:
                self.partial = None

    def scan(self, plan: Prefill) -> None:
        """S7: candidates in queue order; nothing is skipped."""
        for request in list(self.queue):
            if self.is_exhausted(plan) and min(self.rest(plan), self.rest_now(plan)) > 0:
                break
            if len(plan.batch) >= self.slots():
                self.full = True
            if self.full:
                break
            verdict = self.consider(request, plan) or self.verdict(plan)
            if verdict is Verdict.NO_TOKEN:
                self.full = self.refusal_fills(plan)
            if verdict:
                break

    def slots(self) -> int:
        """S5: leavers still hold theirs (S4). D5, D7: held ones too, and there may be a cap."""
        return min(self.running_limit(), self.seat_cap) - len(self.running) - self.seats_held

    def is_exhausted(self, plan: Prefill) -> bool:
        """S7: max_prefill_tokens is soft: only exhaustion stops."""
        return plan.input <= 0 or (plan.chunk is not None and plan.chunk <= 0)

    def verdict(self, plan: Prefill) -> Verdict | None:
        """S7: after an admission."""
        if min(self.rest(plan), self.rest_now(plan)) <= 0:
            return Verdict.NO_TOKEN
        return Verdict.OTHER if self.is_exhausted(plan) else None

    def refusal_fills(self, plan: Prefill) -> bool:
        """S5: a refusal for memory blocks admission until somebody leaves, if there is anybody."""
        return bool(plan.batch or self.running)

    # S8, S9: admission.

    def consider(self, request: Request, plan: Prefill) -> Verdict | None:
        """S8, S9: admit a candidate, whole or cut, or say why not."""
        node, hit = self.lookup(request)
        new = self.length(request) - hit
        self.tree.lock(node)
        if self.options.disable_radix_cache and self.options.ignore_eos:
            refusal = self.refuse_by_entries(request, new, plan)
            cut = self.cut_exactly(new, plan)
        else:
            refusal = self.refuse_by_rest(request, new, plan)
            cut = self.cut_to_pages(new, plan)
        if not (refusal or cut):
            refusal = Verdict.OTHER
        if not refusal:
            self.admit(request, node, hit, cut, plan)
        self.tree.unlock(node)
        return refusal

    def refuse_by_rest(self, request: Request, new: int, plan: Prefill) -> Verdict | None:
        """S8: prompt, promised outputs and a page must be less than the rest; without chunking, input limits too."""
        if new + self.clip(self.left(request)) + self.options.page_size >= self.rest(plan):
            return Verdict.NO_TOKEN
        if plan.chunk is None and plan.batch and self.ceil(new) >= plan.input:
            return Verdict.OTHER
        return None

    def cut_to_pages(self, new: int, plan: Prefill) -> int:
        """S8: cut to whole pages of the chunk, also if only the rounding does not fit."""
        return new if plan.chunk is None or self.ceil(new) <= plan.chunk else self.floor(plan.chunk)

    def refuse_by_entries(self, request: Request, new: int, plan: Prefill) -> Verdict | None:
        """S9: simulate the ends of all, shortest first: at each, memory must suffice for what all have made by then."""
        cost = self.ceil(new) + self.options.page_size
        if cost > min(self.rest(plan), self.rest_now(plan)):
            return Verdict.NO_TOKEN
        self.add_entry(request, plan)
        free = self.rest_now(plan) - cost
        for position, (left, held) in enumerate(plan.entries):
            alive = len(plan.entries) - position
            if free - left * alive <= alive:
                return Verdict.NO_TOKEN
            free += held
        return None

    def add_entry(self, request: Request, plan: Prefill) -> None:
        """S9: sorted at the first candidate; a later one longer than all goes before the last entry."""
        if plan.entries is None:
            everybody = [request, *self.running, *(batched for batched, _ in plan.batch)]
            entries = [(self.left(each), self.length(each)) for each in everybody if self.left(each) > 0]
            plan.entries = sorted(entries, key=lambda entry: entry[0])
            return
        left = self.left(request)
        place = next((i for i, entry in enumerate(plan.entries) if entry[0] >= left), len(plan.entries) - 1)
        plan.entries.insert(max(0, place), (left, self.length(request)))

    def cut_exactly(self, new: int, plan: Prefill) -> int:
        """S9: cut to the chunk, in tokens."""
        return new if plan.chunk is None else min(new, plan.chunk)

    def admit(self, request: Request, node: Node, hit: int, new: int, plan: Prefill) -> None:
        """S8, S15: it leaves the queue and locks its hit; if cut, it is the partial."""
        self.queue.remove(request)
        self.hold(request, node, hit)
        request.state, request.computed, request.absorbed = State.RUNNING, hit, len(request.token_ms)
        if request.cached is None:
            request.cached = hit
        self.charge(plan, request, new)
        if hit + new < self.prompt(request):
            self.partial = request

    # S16: order.

    def order_queue(self) -> None:
        """S16: sort the queue by match, or leave it and touch the paths of its head now and then."""
        if self.options.disable_radix_cache:
            return
        if self.options.schedule_policy == "lpm" and len(self.queue) <= LPM_LIMIT:
            self.sort_by_match()
        else:
            self.touch_waiting()

    def sort_by_match(self) -> None:
        """S16: longest match first; who shares a prefix with an earlier one that has no match either goes last."""
        seen: set[tuple[int, ...]] = set()
        keys: dict[Request, float] = {}
        for request in self.queue:
            length = self.length(request)
            match = min(self.tree.match(self.tokens(request, length))[1], length - 1)
            keys[request] = -match
            head = tuple(self.tokens(request, min(length, LPM_THRESHOLD)))
            if match <= LPM_THRESHOLD and len(head) == LPM_THRESHOLD:
                if head in seen:
                    keys[request] = 1
                seen.add(head)
        self.queue.sort(key=keys.__getitem__)

    def touch_waiting(self) -> None:
        """S15: fcfs touches the first waiting ones, last to first, at the first and every 32nd attempt."""
        if self.attempts % TOUCH_INTERVAL == 0:
            for request in reversed(self.queue[:LPM_LIMIT]):
                self.tree.match(self.tokens(request, self.length(request)))
        self.attempts += 1
