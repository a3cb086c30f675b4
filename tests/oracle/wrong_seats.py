"""Who waits for a seat of the decode side broken one rule at a time (D10)."""

from tools.oracle.engine import Worker
from tools.oracle.sglang import SglangScheduler
from tools.oracle.sglang_staging import SglangStaging
from tools.oracle.tandem import Tandem
from tools.oracle.trtllm import TrtllmScheduler
from tools.oracle.trtllm_staging import TrtllmStaging
from tools.oracle.vllm import Plan, VllmScheduler
from tools.oracle.vllm_staging import VllmStaging

from .wrong import Break


def last_asked(self, journey):
    """D10 broken: who asked last is served first."""
    place = journey.target.worker, journey.target.rank
    ASK(self, journey)
    queue = self.asking[place]
    if queue and queue[-1] is journey:
        queue.rotate(1)


ASK = Tandem.ask


def behind(self, plan):
    """D10 broken: hand-offs wait until nobody waits to resume."""
    if not self.waiting:
        PLAN_ARRIVED(self, plan)


PLAN_ARRIVED = VllmStaging.plan_arrived


def before(self, plan):
    """D10 broken: hand-offs go before those who resume."""
    self.plan_arrived(plan)
    PLAN_WAITING(self, plan)


PLAN_WAITING = VllmScheduler.plan_waiting


def slots_first(self):
    """D10 broken: hand-offs take slots before those who resume."""
    if not self.defers():
        self.seat_arrived()
    return PLAN_PREFILL(self)


PLAN_PREFILL = SglangScheduler.plan_prefill


def lifo(self):
    """D10 broken: who arrived last runs first."""
    self.arrived.reverse()
    SEAT_ARRIVED(self)
    self.arrived.reverse()


SEAT_ARRIVED = SglangScheduler.seat_arrived


def before_the_horizon(self):
    """D10 broken: a hand-off joins a pass that was planned before it arrived."""
    for rank, rows in zip(self.ranks, self.ahead, strict=True):
        if rows and rank.arrived:
            plan = Plan(rank.budget() - sum(row.new for row in rows))
            rank.plan_arrived(plan)
            rows += plan.rows
    DECIDE(self)


DECIDE = Worker.decide


def sglang_before_the_horizon(self):
    """The same of SGLang."""
    for rank, rows in zip(self.ranks, self.ahead, strict=True):
        if rows and rank.arrived and all(row.is_decode for row in rows):
            seated = len(rank.running)
            rank.seat_arrived()
            rows += rank.launch_rows(rank.running[seated:])
    DECIDE(self)


def trtllm_before_the_horizon(self):
    """The same of TensorRT-LLM."""
    for rank, rows in zip(self.ranks, self.ahead, strict=True):
        if rows and rank.queue and rank.queue[0].handed_over:
            seated = len(rank.active)
            rank.intake()
            rows += [rank.launch_row(request) for request in rank.active[seated:]]
    DECIDE(self)


def not_deferred(self, plan):
    """D10 broken: a deferred plan admits no hand-off."""
    if not plan.deferred:
        PLAN_ARRIVED(self, plan)


def after_preempting_too(self):
    """D10 broken: a plan that preempted admits hand-offs."""
    plan = Plan(self.budget(), self.defers())
    self.plan_running(plan)
    if self.may_admit(plan):
        self.plan_waiting(plan)
    self.plan_arrived(plan)
    self.note_capacity(plan)
    self.retries = plan.preempted
    return plan.rows


def alone_but_for_hand_offs(self, todo):
    """D10 broken: hand-offs that wait are no company (V10)."""
    threshold = self.options.long_prefill_token_threshold
    return todo if not threshold or len(self.running) + len(self.waiting) == 1 else threshold


def nobody_left(self, plan):
    """D10 broken: hand-offs that wait do not count as waiting (V15)."""
    if not plan.deferred:
        self.left_waiting = bool(self.waiting)


def last_come(self, plan):
    """D10 broken: who arrived last is seated first."""
    self.arrived.reverse()
    PLAN_ARRIVED(self, plan)
    self.arrived.reverse()


def seats_backwards(self):
    """D10 broken: who queued last is seated first."""
    self.queue.reverse()
    INTAKE(self)
    self.queue.reverse()


INTAKE = TrtllmScheduler.intake


NOBODY = {"somebody_resumes": lambda self: False}

SEATS = {
    "D10 asked first": Break(Tandem, {"ask": last_asked}, "apart_staging_async"),
    "D10 resumes first": Break(VllmStaging, NOBODY, "apart_deferred_sync"),
    "D10 SGLang resumes first": Break(SglangStaging, NOBODY, "apart_staging_sglang_retracts_sync"),
    "D10 TensorRT-LLM resumes first": Break(TrtllmStaging, NOBODY, "apart_staging_trtllm_pauses_sync"),
    "D10 does not wait": Break(VllmStaging, {"plan_arrived": behind}, "apart_staging_seats_sync"),
    "D10 after them": Break(VllmScheduler, {"plan_waiting": before}, "apart_staging_seats_async"),
    "D10 not after preempting": Break(VllmScheduler, {"plan": after_preempting_too}, "apart_staging_seats_async"),
    "D10 horizon": Break(Worker, {"decide": before_the_horizon}, "apart_cap_sglang_overlap"),
    "D10 SGLang's horizon": Break(Worker, {"decide": sglang_before_the_horizon}, "apart_vllm_to_sglang_async"),
    "D10 TensorRT-LLM's horizon": Break(Worker, {"decide": trtllm_before_the_horizon}, "apart_vllm_to_trtllm_async"),
    "D10 deferred": Break(VllmStaging, {"plan_arrived": not_deferred}, "apart_deferred_sync"),
    "D10 company": Break(VllmScheduler, {"long_prompt_cap": alone_but_for_hand_offs}, "apart_company_sync"),
    "D10 count as waiting": Break(VllmScheduler, {"note_capacity": nobody_left}, "apart_deferred_sync"),
    "D10 slots": Break(SglangScheduler, {"plan_prefill": slots_first}, "apart_staging_sglang_slots_sync"),
    "D10 fifo": Break(SglangScheduler, {"seat_arrived": lifo}, "apart_staging_sglang_overlap"),
    "D10 vLLM's fifo": Break(VllmStaging, {"plan_arrived": last_come}, "apart_staging_seats_sync"),
    "D10 TensorRT-LLM's fifo": Break(TrtllmScheduler, {"intake": seats_backwards}, "apart_staging_trtllm_sync"),
    "D10 makes way": Break(
        VllmScheduler, {"retries": property(lambda self: False, lambda self, new: None)}, "apart_one_seat_sync"
    ),
    "S13 makes way": Break(SglangScheduler, {"always_kept": lambda self: 1}, "apart_one_slot_sglang_sync"),
}
