"""SGLang's scheduler, one method a rule: rounds, joining, decoding, retraction. The ids are those of the clauses."""

from collections import deque
from collections.abc import Sequence

from tools.oracle.engine import Alone, HostLoop
from tools.oracle.requests import OutputRow, PromptRow, Request, Row, State
from tools.oracle.sglang_admission import SglangAdmission

RETRACT_STEPS = 20  # decode steps to prepare for after a retraction


class SglangScheduler(SglangAdmission, Alone):
    """A round plans a prefill if anything is admissible, else a decode; `computed` counts stored tokens.

    Every rule is a method, here or in a base class, so that a subclass can break one alone.
    """

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.last: list[Request] = []  # requests of the last pass, if it had prefill
        self.deferrals = 0  # rounds to come without a prefill
        self.deferred = False  # whether the last round was one
        self.arrived: deque[Request] = deque()  # hand-offs that wait for a slot

    # What the engine asks of a scheduler.

    @property
    def ranks(self) -> int:
        """S18: each plans alone, and they pass together (E1)."""
        return self.options.dp_size

    @property
    def host_times(self) -> HostLoop | None:
        """S19: the host's times."""
        return self.options.host_loop

    @property
    def plans_ahead(self) -> bool:
        """S1: with overlap, round k is planned when pass k-1 starts."""
        return not self.options.disable_overlap_schedule

    def arrive(self, request: Request) -> None:
        """S1: requests wait first come, first served."""
        request.state = State.WAITING
        (self.arrived if request.handed_over else self.queue).append(request)

    def lead(self, ranks: Sequence["SglangScheduler"]) -> None:
        """S14, S18: the counter is the group's: the last pass with prefill, of whichever rank, set it."""
        deferrals = max(rank.deferrals for rank in ranks)
        for rank in ranks:
            rank.deferrals = deferrals

    def plan(self) -> list[Row]:
        """S2: publish, join, drop, then a prefill, and a decode only if that gives nothing."""
        self.retries = False
        self.publish_chunk()
        self.join_last()
        self.drop_finished()
        self.deferred = self.defers()
        rows = [] if self.deferred else self.plan_prefill()
        if not rows:
            self.seat_arrived()
        return rows or self.plan_decode()

    def receive(self, request: Request, now_ms: float) -> bool:
        """S15: a prompt is published when its result is processed; the last output ends the request.

        S13: the token in flight of a retracted request is lost; S4: so is that of one that a stop token ended.
        """
        if request.state is not State.RUNNING:
            return False
        request.in_flight -= 1
        request.token_ms.append(now_ms)
        if len(request.token_ms) >= self.outputs(request):
            self.finish(request)
            return True
        self.publish_prompt(request)
        return False

    def idle(self) -> bool:
        """S12: an idle round forgets the ratio's decay; S14: rounds that launch nothing cost no time."""
        if not (self.queue or self.running or self.partial):
            self.ratio = self.initial_ratio()
        return self.deferred and bool(self.queue or self.partial)

    # S2, S4, S5, S14: the round.

    def publish_chunk(self) -> None:
        """S2a: the partial's last chunk goes to the tree."""
        if self.partial is not None:
            self.publish(self.partial, self.partial.computed)

    def join_last(self) -> None:
        """S2b: the last prefill's requests run, in batch order, without the partial; S5: this may clear the flag."""
        joining = [request for request in self.last if request is not self.partial and request.state is State.RUNNING]
        if len(joining) < len(self.last) or (joining and not self.running):
            self.full = False
        self.running += joining
        self.last = []

    def drop_finished(self) -> None:
        """S2c: whose last result was processed; S5: that clears the flag."""
        self.keep([request for request in self.running if request.state is State.RUNNING])

    def drop_leavers(self) -> bool:
        """S4: who has its last output in flight takes no further row; whether there was any."""
        return self.keep([request for request in self.running if not self.is_leaver(request)])

    def keep(self, running: list[Request]) -> bool:
        """S5: when anybody goes, the flag is cleared."""
        gone = len(running) < len(self.running)
        self.running = running
        if gone:
            self.full = False
        return gone

    def is_leaver(self, request: Request) -> bool:
        """S4: the end by length is foreseen; a stop is not."""
        return request.promised >= self.max_new(request)

    def defers(self) -> bool:
        """S14: for some rounds after a pass with prefill none is tried."""
        if self.deferrals:
            self.deferrals -= 1
            return True
        return False

    def finish(self, request: Request) -> None:
        """S15: all stored tokens go to the tree, and what is its own returns."""
        self.publish(request, request.computed)
        self.part(request)
        request.state = State.DONE

    def seat_arrived(self) -> None:
        """D10: hand-offs run from this round on, if whoever waits to resume cannot, and a slot is free (S4, S5)."""
        while self.arrived and self.slots() > 0:
            request = self.arrived.popleft()
            request.state = State.RUNNING
            self.running.append(request)

    def publish_prompt(self, request: Request) -> None:
        """S15: once, with the first output since its admission."""
        holding = self.holdings[request]
        if not holding.published:
            holding.published = True
            self.publish(request, self.prompt(request))

    # S3, S5, S11: passes with prefill.

    def plan_prefill(self) -> list[Row]:
        """S5, S7: unless the gates are shut, the partial and whom the scan admits; with mixing, the rows too."""
        if not self.passes_gates():
            return []
        self.order_queue()
        plan = self.budgets()
        self.continue_partial(plan)
        self.scan(plan)
        if not plan.batch:
            return []
        self.reserve_prefill(plan.batch)
        rows = [self.launch_prompt(request, new) for request, new in plan.batch]
        if self.options.enable_mixed_chunk:
            rows += self.mix()
        self.last = [row.request for row in rows]
        self.deferrals = self.options.prefill_decode_interval
        return rows

    def passes_gates(self) -> bool:
        """S5: the flag, an empty queue and full slots stop all but a partial."""
        if not self.running:
            self.full = False
        if self.partial is not None:
            return True
        if self.full or not self.queue:
            return False
        if self.slots() <= 0:
            self.full = True
        return not self.full

    def mix(self) -> list[Row]:
        """S11: the rows ride along if all of them fit, and join again with the prompts."""
        self.drop_leavers()
        if not self.running or not self.decode_fits(self.running):
            return []
        riding, self.running = self.running, []
        return self.launch_rows(riding)

    def launch_prompt(self, request: Request, new: int) -> Row:
        """S10, S15: a chunk stores its tokens; the last one emits."""
        past = request.computed
        request.computed += new
        emits = request.computed == self.prompt(request)
        request.in_flight += emits
        self.store(request)
        return PromptRow(request, new, past, emits)

    # S12, S13: decode passes.

    def plan_decode(self) -> list[Row]:
        """S12: all running requests but leavers, if memory allows, else what retraction leaves."""
        had_leavers = self.drop_leavers()
        if not self.running:
            return []
        if self.decode_fits(self.running):
            self.decay()
        elif had_leavers:
            return []
        else:
            self.retract()
        return self.launch_rows(self.running)

    def launch_rows(self, requests: list[Request]) -> list[Row]:
        """S15: a row stores one token; allocation wants a page a row free."""
        self.reserve(len(requests) * self.options.page_size)
        return [self.launch_row(request) for request in requests]

    def launch_row(self, request: Request) -> Row:
        """S12: one token, one output."""
        row = OutputRow(request, 1, request.computed, True)
        request.computed += 1
        request.in_flight += 1
        self.store(request)
        return row

    def decay(self) -> None:
        """S12: each decode pass without retraction lowers the ratio."""
        initial = self.initial_ratio()
        floor = initial * 0.14
        self.ratio = max(self.ratio - (initial - floor) / 600, floor)

    def retract(self) -> None:
        """S13: drop from the end of the sorted rows until the rest fits, and expect more outputs from now on."""
        rows = sorted(self.running, key=self.retraction_key)
        self.retries = first = True
        while len(rows) > self.always_kept() and (first or not self.decode_fits(rows)):
            first = False
            victim = rows.pop()
            self.drop(victim)
            self.reserve(RETRACT_STEPS * len(rows))
        self.keep(rows)
        seen, promised = (sum(map(count, rows)) for count in (lambda r: len(r.token_ms), self.max_new))
        self.ratio = min(1.0, (seen + RETRACT_STEPS * len(rows)) / (promised + 1))

    def always_kept(self) -> int:
        """S13: one row, which S17 lets fit; D6: unless hand-offs that do not run yet hold what it needs."""
        return 0 if any(request.state is not State.RUNNING for request in self.holdings) else 1

    def retraction_key(self, request: Request) -> tuple[int, int]:
        """S13: most seen outputs first, then the shortest prompt; the last of this order go."""
        return -len(request.token_ms), request.lengths.isl

    def drop(self, victim: Request) -> None:
        """S13: it frees its KV, loses its token in flight, and waits behind everybody."""
        self.release(victim)
        victim.state, victim.in_flight = State.PREEMPTED, 0
        victim.preemptions += 1
        self.queue.append(victim)
