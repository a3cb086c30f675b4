"""The memory of two stages, broken one rule at a time (D5, D6)."""

from functools import partial

from tools.oracle.engine import Worker
from tools.oracle.events import Kind
from tools.oracle.requests import Hold, State
from tools.oracle.sglang_memory import Holding
from tools.oracle.sglang_staging import SglangStaging
from tools.oracle.staging import Staged
from tools.oracle.tandem import Tandem
from tools.oracle.trtllm_staging import TrtllmStaging
from tools.oracle.vllm_staging import VllmStaging

from .wrong import Break


def no_seat(self, request):
    """D5 broken: blocks are held, seats are not."""
    if request.hold is Hold.NONE:
        self.give_back(request)


def let_go_without_seat(self, request):
    """For the above."""
    self.give_back(request)


def until_the_start(self, journey):
    """D5 broken: the source is free when the transfer starts."""
    STARTED(self, journey)
    if journey.source.hold is not Hold.NONE:
        self.prefill.workers[journey.source.worker].let_go(journey.source)
        journey.source.hold = Hold.NONE


STARTED = Tandem.started


def whoever_fits(self, place):
    """D6 broken: who does not fit is passed by."""
    queue, scheduler = self.asking.get(place, ()), self.decode.scheduler(place)
    for journey in list(queue):
        if scheduler.grant(journey.target):
            queue.remove(journey)
            self.go_on(journey)


def prompt_only(self, lengths):
    """D6 broken: the token of the first row is not reserved for."""
    return self.cover(lengths.isl)


def prompt_taken(self, request):
    """For the above, of vLLM: nor is its block taken."""
    self.grow(request, request.lengths.isl)


def with_a_block(self, plan):
    """For the above, of vLLM: the first row waits for the block that it lacks."""
    while self.arrived and plan.budget > 0 and self.has_seat():
        request = self.arrived[0]
        if self.cover(request.computed + 1) - len(request.blocks) > self.pool.free:
            break
        self.arrived.popleft()
        request.state = State.RUNNING
        self.running.append(request)
        self.give(request, request.todo, plan)


def unlocked(self, request):
    """D5 broken: SGLang's tree may evict what a transfer still reads."""
    if request.hold is Hold.NONE:
        self.give_back(request)
    else:
        holding = self.holdings[request]
        self.tree.unlock(holding.node)
        holding.node = self.tree.root
        self.tree.lock(holding.node)


def serves_later(self, request):
    """D5 broken: what was held serves no plan made at the instant at which it comes back."""
    self.clock.at(self.clock.now_ms, Kind.DECIDE, LET_GO, self, request, place=99)


LET_GO = Worker.let_go


def when_there_is_room(self, plan):
    """D6 broken: a hand-off takes its blocks with its first row."""
    while self.arrived and plan.budget > 0 and self.has_seat() and self.has_room(self.arrived[0]):
        request = self.arrived.popleft()
        request.state = State.RUNNING
        self.running.append(request)
        self.give(request, request.todo, plan)


def granting_plans(self, asked, pools, clock, tell):
    """D6 broken: what waits is granted as soon as a plan lets it."""
    INIT(self, asked, pools, clock, tell)
    for worker in pools[1].workers:
        worker.decide = partial(and_grant, self, worker, worker.decide)


def and_grant(self, worker, decide):
    """For the above."""
    decide()
    for place in [place for place in self.asking if self.decode.workers[place[0]] is worker]:
        self.grant(place)


INIT = Tandem.__init__


def known_at_once(self, request):
    """D6 broken: vLLM's cache knows the blocks from the grant on."""
    TAKE_IN(self, request)
    self.register(request, request.lengths.isl)


TAKE_IN = VllmStaging.take_in


def takes_in(published, keeps):
    """D6 broken: SGLang publishes the prompt with the first output, or returns what the first row does not fill."""

    def take_in(self, request):
        need = self.staged(request.lengths)
        self.reserve(need)
        self.tree.lock(self.tree.root)
        self.holdings[request] = Holding(self.tree.root, 0, published=published, reserved=need if keeps else 0)
        self.set_own(request, need)

    return take_in


def free_alone(self, request):
    """D6 broken: what SGLang's tree could evict is not free."""
    return self.staged(request.lengths) <= self.free()


MEMORY = {
    "D5 hold": Break(
        Staged, {"part": lambda self, r: self.give_back(r), "let_go": lambda self, r: None}, "apart_hold_trtllm_sync"
    ),
    "D5 end": Break(Tandem, {"started": until_the_start}, "apart_hold_blocks_async"),
    "D5 seat": Break(Staged, {"part": no_seat, "let_go": let_go_without_seat}, "apart_hold_blocks_and_seat_sync"),
    "D5 locked": Break(SglangStaging, {"part": unlocked}, "apart_hold_sglang_sync"),
    "D5 at once": Break(Worker, {"let_go": serves_later}, "apart_hold_together_sync"),
    "D6 from the grant on": Break(
        VllmStaging, {"take_in": lambda self, r: None, "plan_arrived": when_there_is_room}, "apart_staging_exact_sync"
    ),
    "D6 vLLM's token": Break(
        VllmStaging,
        {"take_in": prompt_taken, "staged": prompt_only, "plan_arrived": with_a_block},
        "apart_staging_exact_sync",
    ),
    "D6 TensorRT-LLM's output": Break(TrtllmStaging, {"staged": prompt_only}, "apart_stops_trtllm_sync"),
    "D6 SGLang's outputs": Break(
        SglangStaging, {"staged": lambda self, lengths: self.ceil(lengths.isl)}, "apart_staging_sglang_sync"
    ),
    "D6 SGLang's option": Break(
        SglangStaging,
        {"num_reserved_decode_tokens": property(lambda self: 512, lambda self, tokens: None)},
        "apart_staging_sglang_slots_sync",
    ),
    "D6 SGLang keeps": Break(SglangStaging, {"take_in": takes_in(True, False)}, "apart_staging_sglang_sync"),
    "D6 SGLang publishes late": Break(
        SglangStaging, {"take_in": takes_in(False, True)}, "apart_staging_sglang_retracts_overlap"
    ),
    "D6 SGLang evicts": Break(SglangStaging, {"has_room": free_alone}, "apart_staging_sglang_sync"),
    "D6 order": Break(Tandem, {"reserves_first": lambda self: False}, "apart_staging_sglang_overlap"),
    "D6 watermark": Break(VllmStaging, {"margin": lambda self: 0}, "apart_staging_preempts_cached_off_async"),
    "D6 first come": Break(Tandem, {"grant": whoever_fits}, "apart_staging_async"),
    "D6 came free": Break(Tandem, {"came_free": lambda self, target: None}, "apart_staging_sync"),
    "D6 not by plans": Break(Tandem, {"__init__": granting_plans}, "apart_deferred_async"),
    "D6 known later": Break(VllmStaging, {"take_in": known_at_once}, "apart_known_later_sync"),
}
