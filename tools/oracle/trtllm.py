"""TensorRT-LLM's schedulers and the loop around them, one method a rule. The ids are those of the engine clauses."""

from collections import deque
from collections.abc import Iterable, Sequence

from tools.oracle.engine import Alone
from tools.oracle.errors import ScenarioError
from tools.oracle.requests import Lengths, OutputRow, PromptRow, Request, Row, State
from tools.oracle.timing import Shape
from tools.oracle.trtllm_budget import Shares
from tools.oracle.trtllm_staging import TrtllmStaging


class TrtllmScheduler(TrtllmStaging, Alone):
    """Seated requests in arrival order; each plan asks capacity who may go, then deals one token budget.

    A seated request is fresh (no blocks), partial, a row, or a leaver, whose last output is in flight. `computed`
    counts stored tokens from planning on; outputs that a pause made part of the prompt are `absorbed`.
    """

    def __init__(self, engine: object) -> None:
        super().__init__(engine)
        self.queue: deque[Request] = deque()
        self.prompts: Shares = []  # of the plan in the making, and the rows
        self.rows: list[Request] = []

    # What the engine asks of a scheduler.

    ranks_by_tokens = True

    @property
    def ranks(self) -> int:
        """T7: every option holds for one rank."""
        return self.options.attention_dp

    @property
    def idle_shape(self) -> Shape | None:
        """T7: a rank without rows runs a dummy token."""
        return Shape(rows=1, context=1)

    @property
    def plans_ahead(self) -> bool:
        """T5: with overlap, pass k is planned when pass k-1 starts."""
        return self.options.overlap_scheduler

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """T1, T10, T14: refuse what would never run, and block all behind it."""
        options, usable = self.options, self.usable_blocks()
        evicts = options.capacity_policy == "MAX_UTILIZATION"
        for each in lengths:
            stored = each.isl + each.limit - 1
            longest = stored if evicts else each.isl
            if not options.enable_chunked_prefill and longest > options.max_num_tokens:
                raise ScenarioError(
                    f"isl {each.isl}, max_tokens {each.limit}: a prompt may exceed max_num_tokens; raise it"
                )
            need = self.cover(stored if evicts else stored + 1)
            if usable is not None and need > usable:
                raise ScenarioError(f"isl {each.isl}, max_tokens {each.limit} need {need} blocks; {usable} are usable")

    def arrive(self, request: Request) -> None:
        """T8: requests wait first come, first served."""
        request.state = State.WAITING
        self.queue.append(request)

    def lead(self, ranks: Sequence["TrtllmScheduler"]) -> None:
        """T7: all ranks propose; then their prompts go, or all of them are held."""
        for rank in ranks:
            rank.propose()
        if self.holds([(bool(rank.prompts), bool(rank.rows)) for rank in ranks]):
            for rank in ranks:
                rank.prompts = []

    def propose(self) -> None:
        """T5: intake, capacity, budget, batch wait."""
        self.resume_paused()
        self.intake()
        self.prompts, self.rows = self.micro_batch(self.capacity())
        if self.waits(self.prompts, self.rows):
            self.prompts = []

    def plan(self) -> list[Row]:
        """T5: launch what was proposed, and not held."""
        prompts, rows = self.prompts, self.rows
        self.prompts, self.rows = [], []
        return self.launch(prompts, rows)

    def receive(self, request: Request, now_ms: float) -> bool:
        """T13: an output appears at the end of its pass; the last one ends the request.

        T5: a row that flies while a stop token appears is wasted: its output comes for nobody.
        """
        if request.state is State.DONE:
            return False
        request.in_flight -= 1
        request.token_ms.append(now_ms)
        if len(request.token_ms) < request.lengths.osl:
            return False
        self.finish(request)
        return True

    def idle(self) -> bool:
        """T5, T14: nothing changes by asking again, until something arrives."""
        return False

    # T8: seats.

    def intake(self) -> None:
        """T8: a seat is held from here on, before any block or token."""
        while self.queue and self.has_seat():
            request = self.queue.popleft()
            request.state = State.RUNNING
            self.active.append(request)

    def has_seat(self) -> bool:
        """T8: leavers still hold theirs. D5, D7: held ones too, and there may be a cap."""
        return len(self.active) + self.seats_held < min(self.options.max_batch_size, self.seat_cap)

    def finish(self, request: Request) -> None:
        """T8: seat and blocks return when the last pass is processed."""
        self.active.remove(request)
        request.state = State.DONE
        self.part(request)

    # T1 to T3, T12: capacity.

    def capacity(self) -> list[Request]:
        """T1 to T3: who may go, in the order in which the budget is dealt."""
        if self.options.capacity_policy == "MAX_UTILIZATION":
            return self.keep_utilizing()
        kept, room = self.keep_started()
        if self.considers_prompts(kept):
            kept += self.keep_prompts(room)
        return kept

    def keep_started(self) -> tuple[list[Request], float]:
        """T1: every row and leaver, and the free blocks less what all of them may still take."""
        kept = [request for request in self.active if not self.remaining(request)]
        return kept, self.pool.free - sum(self.reserved(request) for request in kept)

    def reserved(self, request: Request) -> int:
        """T1: blocks that a request may still take."""
        return self.total_blocks(request) - len(request.blocks)

    def total_blocks(self, request: Request) -> int:
        """T1: the full output counts, as far as it may go, though the last one is never stored."""
        return self.longest(request.lengths)

    def keep_prompts(self, room: float) -> list[Request]:
        """T1: prompts in list order, partial and fresh alike; the first misfit ends the scan."""
        kept = []
        for request in self.active:
            if self.remaining(request):
                need = self.reserved(request)
                if need > room:
                    break
                room -= need
                kept.append(request)
        return kept

    def considers_prompts(self, kept: list[Request]) -> bool:
        """T3: a static batch takes prompts only when nobody decodes or leaves."""
        return self.options.capacity_policy != "STATIC_BATCH" or not kept

    def keep_utilizing(self) -> list[Request]:
        """T2: one scan over the free blocks; whoever does not fit pauses started ones from the scan's end."""
        kept: list[Request] = []
        room, end, position = self.pool.free, len(self.active), 0
        while position < end:
            request = self.active[position]
            need = self.next_blocks(request)
            if need <= room:
                kept.append(request)
                room -= need
                position += 1
                continue
            victim = self.victim(position, end)
            if victim is None:
                break
            room += self.pause(self.active[victim])
            end = victim
        return kept

    def next_blocks(self, request: Request) -> int:
        """T2: a fresh prompt's blocks, or those of the next token; a leaver's too, though it takes no row any more."""
        if not request.blocks:
            return self.cover(self.prompt(request))
        return 0 if self.remaining(request) else self.row_blocks(request)

    def victim(self, position: int, end: int) -> int | None:
        """T2: the last started request from the misfit, itself included, to the scan's end."""
        return next((i for i in range(end - 1, position - 1, -1) if self.active[i].blocks), None)

    def pause(self, request: Request) -> int:
        """T12: its blocks serve the same plan; a partial starts over, a leaver finishes all the same."""
        given = len(request.blocks)
        self.free(request)
        request.state = State.PREEMPTED
        request.preemptions += 1
        return given

    def resume_paused(self) -> None:
        """T12: a plan later, the token in flight processed, it is a fresh prompt at its old place."""
        for request in self.active:
            if request.state is State.PREEMPTED:
                request.state, request.computed = State.RUNNING, 0
                request.absorbed = len(request.token_ms)

    # T11, T13: launch.

    def launch(self, prompts: Shares, rows: list[Request]) -> list[Row]:
        """T13: unfinished chunks, then last chunks, then rows; blocks are taken here (T11)."""
        chunks = [self.launch_prompt(request, new) for request, new in prompts]
        chunks.sort(key=lambda row: row.emits)
        return [*chunks, *(self.launch_row(request) for request in rows)]

    def launch_prompt(self, request: Request, new: int) -> Row:
        """T11: the first chunk takes the blocks of the whole prompt; T13: the last one emits."""
        past = self.computed(request)
        self.take(request, self.first_chunk_blocks(request) - len(request.blocks))
        if request.cached is None:
            request.cached = past
        request.computed = past + new
        emits = not self.remaining(request)
        request.in_flight += emits
        return PromptRow(request, new, past, emits)

    def first_chunk_blocks(self, request: Request) -> int:
        """T11: the whole prompt's."""
        return self.cover(self.prompt(request))

    def launch_row(self, request: Request) -> Row:
        """T11: a row stores a token, in a new block when its last one is full."""
        self.take(request, self.row_blocks(request))
        row = OutputRow(request, 1, request.computed, True)
        request.computed += 1
        request.in_flight += 1
        return row

    def row_blocks(self, request: Request) -> int:
        """T11: one when the stored tokens fill whole blocks; D6: a hand-off may have it already."""
        return int(self.cover(request.computed + 1) > len(request.blocks))
