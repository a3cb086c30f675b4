"""The stages of a request's life broken one rule at a time (D1, D2, D7)."""

from dataclasses import replace

from tools.oracle.sglang_staging import SglangStaging
from tools.oracle.tandem import Tandem
from tools.oracle.trtllm_staging import TrtllmStaging
from tools.oracle.vllm_staging import VllmStaging

from .wrong import Break


def everybody(self, request):
    """D1 broken: a request whose one output the prefill side showed goes over too."""
    journey = BEGIN(self, request)
    journey.goes_over, journey.source.hold = True, self.asked.hold
    return journey


BEGIN = Tandem.begin


def whole(self, asked, *others):
    """D2 broken: the first token goes over, though a pass is to make it anew."""
    INIT(self, replace(asked, first_token="decode"), *others)


INIT = Tandem.__init__


def attached(self, journey):
    """D2 broken: the first token appears when the decode side attaches, whoever shows it."""
    return journey.attach_ms if journey.goes_over else journey.prefill_done_ms


def shown(stage):
    """D2 broken: a decode pass makes the first token, and it appears at the end of another stage."""

    def finish(self, journey):
        FINISH(self, journey)
        journey.request.token_ms[0] = getattr(journey, stage)

    return finish


FINISH = Tandem.finish


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


def one_turn(self, journey):
    """D7 broken: both sides take turns from one count."""
    prefill, decode = self.prefill.router, self.decode.router
    decode.turns = prefill.turns
    CHOOSE(self, journey)
    prefill.turns = decode.turns


CHOOSE = Tandem.choose


def unseen(self, journey):
    """D7 broken: a request counts at its decode worker from its arrival there on."""
    CHOOSE(self, journey)
    self.decode.router.loads[journey.target.worker, journey.target.rank] -= 1


def counts_now(self, journey):
    """For the above."""
    self.decode.router.loads[journey.target.worker, journey.target.rank] += 1
    ARRIVE(self, journey)


ARRIVE = Tandem.arrive


NO_CAP = {"seat_cap": property(lambda self: 999, lambda self, cap: None)}

STAGES = {
    "D1 ends there": Break(Tandem, {"begin": everybody}, "apart_ends_together_sync"),
    "D2 prefill": Break(Tandem, {"first_token_ms": attached}, "apart_cap_sglang_sync"),
    "D2 attach": Break(
        Tandem, {"first_token_ms": lambda self, journey: journey.prefill_done_ms}, "apart_first_decode_sglang_sync"
    ),
    "D2 arrival": Break(
        Tandem, {"first_token_ms": lambda self, journey: journey.transfer_done_ms}, "apart_first_decode_trtllm_overlap"
    ),
    "D2 remade": Break(Tandem, {"__init__": whole}, "apart_first_decode_pass_async"),
    "D2 not at the prefill": Break(
        Tandem, {"finish": shown("prefill_done_ms")}, "apart_first_decode_pass_trtllm_overlap"
    ),
    "D2 not at the attachment": Break(Tandem, {"finish": shown("attach_ms")}, "apart_first_decode_pass_trtllm_overlap"),
    "D7 when": Break(Tandem, {"deliver": early, "ready": asks_late}, "apart_latency_alone_sync"),
    "D7 all ended": Break(Tandem, {"hand": at_once}, "apart_ends_together_sync"),
    "D7 own turns": Break(Tandem, {"choose": one_turn}, "apart_cap_sglang_overlap"),
    "D7 prefill load": Break(Tandem, {"prefilled": counts_to_the_end}, "apart_ranks_trtllm_sync"),
    "D7 decode load": Break(Tandem, {"choose": unseen, "arrive": counts_now}, "apart_ranks_trtllm_sync"),
    "D7 cap": Break(VllmStaging, NO_CAP, "apart_cap_sync"),
    "D7 SGLang's cap": Break(SglangStaging, NO_CAP, "apart_cap_sglang_sync"),
    "D7 TensorRT-LLM's cap": Break(TrtllmStaging, NO_CAP, "apart_first_decode_trtllm_overlap"),
}
