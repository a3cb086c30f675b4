"""Two stages broken one rule at a time: (the class, what replaces its members, where it shows)."""

from contextlib import suppress

import pytest

from tools.oracle import simulate
from tools.oracle.errors import Stalled
from tools.oracle.fabric import Fabric
from tools.oracle.requests import Hold
from tools.oracle.sglang import SglangScheduler
from tools.oracle.sglang_staging import SglangStaging
from tools.oracle.staging import Staged
from tools.oracle.tandem import Tandem
from tools.oracle.transfers import Link, Transfers
from tools.oracle.trtllm_staging import TrtllmStaging
from tools.oracle.vllm import VllmScheduler
from tools.oracle.vllm_staging import VllmStaging

from .breaking import answered


def always_whole(self, target):
    """D2 broken: the first token goes over, though a pass makes it anew."""
    target.computed, target.token_ms = target.lengths.isl, [0.0]


def equal_parts(self, routes, capacity):
    """D3 broken: each link is shared equally, and what somebody cannot use is lost."""
    crowd = {link: sum(link in route for route in routes) for link in capacity}
    return [min(capacity[link] / crowd[link] for link in route) for route in routes]


def one_end(self, transfer):
    """D3 broken: the bound is the egress's alone."""
    return ("out", transfer.source), ("out", transfer.source)


def overtaking(self):
    """D3 broken: whoever may go goes, first of its queue or not."""
    while able := [each for queue in self.queues.values() for each in queue if self.may_go(each)]:
        first = min(able, key=lambda transfer: transfer.number)
        self.queues[first.source].remove(first)
        self.go(first)


def one_queue(self):
    """D3 broken: a transfer waits for those of other sources too."""
    while waiting := [queue[0] for queue in self.queues.values() if queue]:
        first = min(waiting, key=lambda transfer: transfer.number)
        if not self.may_go(first):
            break
        self.queues[first.source].remove(first)
        self.go(first)


def latest_first(self):
    """D3 broken: of several sources' transfers, the one goes that was ready last."""
    while heads := [queue[0] for queue in self.queues.values() if queue and self.may_go(queue[0])]:
        last = max(heads, key=lambda transfer: transfer.number)
        self.queues[last.source].remove(last)
        self.go(last)


def between_ends(self, transfer):
    """D3 broken: what waits starts after each of the ends of an instant."""
    THROUGH(self, transfer)
    self.dispatch()


THROUGH = Transfers.through


def no_wait(self, transfer):
    """D3 broken: there is no latency."""
    self.under_way.update(self.ends(transfer))
    transfer.on_start()
    self.flow(transfer)


def busy_from_the_bytes_on(self, transfer):
    """D3 broken: the latency counts for no bound."""
    transfer.on_start()
    self.clock.at(self.clock.now_ms + self.link.latency_ms, 5, counted, self, transfer)


def counted(self, transfer):
    """For the above."""
    self.under_way.update(self.ends(transfer))
    self.flow(transfer)


def all_cached(self, request):
    """D3 broken: a prompt may be there as a whole."""
    return min(request.lengths.prefix, request.lengths.isl)


def in_one(self, journey):
    """D4 broken: chunks that wait for memory become one transfer."""
    journey.computed = journey.computed[-1:]
    SEND(self, journey)


SEND = Tandem.send


def with_the_first(self, journey):
    """D4 broken: all is there when the first chunk is."""
    if journey.transfer_done_ms is None:
        journey.sent, journey.under_way = journey.request.lengths.isl, 1
        LANDED(self, journey)


LANDED = Tandem.landed


def until_the_start(self, journey):
    """D5 broken: the source is free when the transfer starts."""
    STARTED(self, journey)
    if journey.source.hold is not Hold.NONE:
        self.prefill.workers[journey.source.worker].let_go(journey.source)
        journey.source.hold = Hold.NONE


STARTED = Tandem.started


def no_seat(self, request):
    """D5 broken: blocks are held, seats are not."""
    if request.hold is Hold.NONE:
        self.give_back(request)


def let_go_without_seat(self, request):
    """For the above."""
    self.give_back(request)


def whoever_fits(self, place):
    """D6 broken: who does not fit is passed by."""
    queue, scheduler = self.asking.get(place, ()), self.decode.scheduler(place)
    for journey in list(queue):
        if scheduler.grant(journey.target):
            queue.remove(journey)
            self.go_on(journey)


def last_asked(self, journey):
    """D10 broken: who asked last is served first."""
    place = journey.target.worker, journey.target.rank
    ASK(self, journey)
    queue = self.asking[place]
    if queue and queue[-1] is journey:
        queue.rotate(1)


ASK = Tandem.ask


def early(self, request):
    """D7 broken: the decode worker is chosen when the request becomes visible."""
    journey = self.begin(request)
    self.prefill.place(journey.source)
    if journey.goes_over:
        self.choose(journey)
        journey.chosen = "early"
    self.prefill.enter(journey.source)


def asks_late(self, journey, computed):
    """For the above."""
    if journey.chosen == "early":
        journey.chosen = True
        journey.computed.append(computed)
        self.ask(journey)
    else:
        READY(self, journey, computed)


READY = Tandem.ready


def counts_to_the_end(self, source):
    """D7 broken: a request counts at its prefill worker until it is decoded."""
    journey = self.journeys[source]
    self.prefill.router.loads[source.worker, source.rank] += journey.goes_over
    PREFILLED(self, source)


PREFILLED = Tandem.prefilled


def at_once(self, journey, computed):
    """D7 broken: the decode worker is chosen before all has ended that ends at this instant."""
    self.ready(journey, computed)


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


def prompt_only(self, lengths):
    """D6 broken: the token of the first row is not reserved for."""
    return self.cover(lengths.isl)


BREAKS = {
    "D2 attach": (Tandem, {"first_token_ms": lambda self, journey: journey.prefill_done_ms}, "first_decode_async"),
    "D2 arrival": (
        Tandem,
        {"first_token_ms": lambda self, journey: journey.transfer_done_ms},
        "first_decode_trtllm_overlap",
    ),
    "D2 remade": (Tandem, {"attach": always_whole}, "first_decode_pass_async"),
    "D3 fair": (Fabric, {"rates": equal_parts}, "open_2p2d_mixed_sync"),
    "D3 alone": (
        Fabric,
        {"rates": lambda self, routes, capacity: [self.bytes_per_ms] * len(routes)},
        "2p1d_4096_64_c16_1gb_sync",
    ),
    "D3 efficiency": (Link, {"bytes_per_ms": property(lambda self: self.gb_per_s * 1e6)}, "1p1d_2048_64_c8_sync"),
    "D3 latency": (Transfers, {"go": no_wait}, "latency_alone_async"),
    "D3 latency counts": (Transfers, {"go": busy_from_the_bytes_on}, "bound_sync"),
    "D3 bound": (Transfers, {"may_go": lambda self, transfer: True}, "bound_async"),
    "D3 both ends": (Transfers, {"ends": one_end}, "bound_sync"),
    "D3 first only": (Transfers, {"dispatch": overtaking}, "bound_sync"),
    "D3 others do not wait": (Transfers, {"dispatch": one_queue}, "bound_sync"),
    "D3 ready first": (Transfers, {"dispatch": latest_first}, "bound_sync"),
    "D3 all end first": (Transfers, {"through": between_ends}, "bound_ends_together_sync"),
    "D3 missing": (Tandem, {"not_missing": lambda self, request: 0}, "missing_sync"),
    "D3 a token": (Tandem, {"not_missing": all_cached}, "missing_all_sync"),
    "D4 chunks": (Tandem, {"chunked": lambda self, source, computed: None}, "chunks_sync"),
    "D4 one by one": (Tandem, {"send": in_one}, "chunks_staging_sync"),
    "D4 all of them": (Tandem, {"landed": with_the_first}, "chunks_trtllm_overlap"),
    "D5 hold": (
        Staged,
        {"part": lambda self, r: self.give_back(r), "let_go": lambda self, r: None},
        "hold_blocks_sync",
    ),
    "D5 end": (Tandem, {"started": until_the_start}, "hold_blocks_async"),
    "D5 seat": (Staged, {"part": no_seat, "let_go": let_go_without_seat}, "hold_blocks_and_seat_sync"),
    "D6 vLLM's token": (VllmStaging, {"staged": prompt_only}, "staging_exact_sync"),
    "D6 TensorRT-LLM's output": (TrtllmStaging, {"staged": prompt_only}, "staging_trtllm_sync"),
    "D6 SGLang's outputs": (
        SglangStaging,
        {"staged": lambda self, lengths: self.ceil(lengths.isl)},
        "staging_sglang_sync",
    ),
    "D6 order": (Tandem, {"reserves_first": lambda self: False}, "staging_sglang_overlap"),
    "D6 watermark": (VllmStaging, {"margin": lambda self: 0}, "staging_preempts_cached_off_async"),
    "D6 first come": (Tandem, {"grant": whoever_fits}, "staging_async"),
    "D6 came free": (Tandem, {"came_free": lambda self, target: None}, "staging_sync"),
    "D7 when": (Tandem, {"deliver": early, "ready": asks_late}, "open_3p2d_mixed_async"),
    "D7 all ended": (Tandem, {"hand": at_once}, "ends_together_sync"),
    "D7 prefill load": (Tandem, {"prefilled": counts_to_the_end}, "least_loaded_async"),
    "D7 cap": (VllmStaging, {"seat_cap": property(lambda self: 999, lambda self, cap: None)}, "cap_async"),
    "D10 asked first": (Tandem, {"ask": last_asked}, "staging_async"),
    "D10 resumes first": (VllmStaging, {"somebody_resumes": lambda self: False}, "staging_preempts_sync"),
    "D10 SGLang resumes first": (
        SglangStaging,
        {"somebody_resumes": lambda self: False},
        "staging_sglang_retracts_sync",
    ),
    "D10 TensorRT-LLM resumes first": (
        TrtllmStaging,
        {"somebody_resumes": lambda self: False},
        "staging_trtllm_pauses_sync",
    ),
    "D10 does not wait": (VllmStaging, {"plan_arrived": behind}, "staging_seats_sync"),
    "D10 after them": (VllmScheduler, {"plan_waiting": before}, "staging_seats_async"),
    "D10 slots": (SglangScheduler, {"plan_prefill": slots_first}, "staging_sglang_slots_sync"),
    "D10 fifo": (SglangScheduler, {"seat_arrived": lifo}, "staging_sglang_overlap"),
    "D10 makes way": (
        VllmScheduler,
        {"retries": property(lambda self: False, lambda self, new: None)},
        "one_seat_sync",
    ),
    "S13 makes way": (SglangScheduler, {"always_kept": lambda self: 1}, "one_slot_sglang_sync"),
}


@pytest.mark.parametrize("rule", BREAKS)
def test_a_broken_rule_shows(rule: str, monkeypatch: pytest.MonkeyPatch):
    """Another answer, or none at all."""
    part, members, name = BREAKS[rule]
    asked, right = answered(f"apart_{name}")
    for member, replacement in members.items():
        monkeypatch.setattr(part, member, replacement)
    with suppress(ArithmeticError, LookupError, Stalled):
        assert simulate(asked)["requests"] != right
