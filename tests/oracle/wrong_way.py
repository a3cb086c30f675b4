"""The way between two stages broken one rule at a time (D3, D4)."""

from functools import partial

from tools.oracle.events import Kind
from tools.oracle.fabric import Fabric
from tools.oracle.tandem import Tandem
from tools.oracle.transfers import Link, Transfers

from .wrong import Break


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
    self.clock.at(self.clock.now_ms + self.link.latency_ms, Kind.FLOW, counted, self, transfer)


def counted(self, transfer):
    """For the above."""
    self.under_way.update(self.ends(transfer))
    self.flow(transfer)


def nothing_missing(self, journey):
    """D3 broken: a prompt that was cached as a whole is there as a whole."""
    request, ends = journey.request, (journey.source.worker, journey.target.worker)
    if self.asked.link.transfer == "missing" and request.lengths.prefix >= request.lengths.isl:
        journey.sent, journey.under_way = request.lengths.isl, 1
        self.transfers.submit(ends, 0.0, partial(self.started, journey), partial(self.landed, journey))
    else:
        SEND(self, journey)


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


def latency_flows(self, transfer):
    """D3 broken: the latency takes the bandwidth of as many bytes."""
    self.under_way.update(self.ends(transfer))
    transfer.on_start()
    transfer.size += self.link.latency_ms * self.link.bytes_per_ms
    self.flow(transfer)


def one_latency(self, transfer):
    """D4 broken: only the first transfer of a request has the latency."""
    (journey,) = transfer.on_start.args
    latency_ms = self.link.latency_ms if journey.transfer_start_ms is None else 0.0
    self.under_way.update(self.ends(transfer))
    transfer.on_start()
    self.clock.at(self.clock.now_ms + latency_ms, Kind.FLOW, self.flow, transfer)


def never_there(self, request):
    """D3 broken: what was cached at the source does not go over, though all is asked for."""
    return min(request.lengths.prefix, request.lengths.isl - 1)


def lost_chunks(self, source, computed):
    """D4 broken: a chunk goes though its request was preempted meanwhile."""
    journey = self.journeys[source]
    if self.asked.link.transfer_start == "each_chunk" and journey.goes_over:
        self.hand(journey, computed)


def twice(self, journey):
    """D4 broken: what is computed anew goes anew."""
    seen = self.__dict__.setdefault("preemptions_seen", {})
    if journey.source.preemptions > seen.get(journey, 0):
        seen[journey] = journey.source.preemptions
        journey.sent = self.not_missing(journey.request)
    SEND(self, journey)


WAY = {
    "D3 fair": Break(Fabric, {"rates": equal_parts}, "apart_trtllm_to_vllm_overlap"),
    "D3 alone": Break(
        Fabric,
        {"rates": lambda self, routes, capacity: [self.bytes_per_ms] * len(routes)},
        "apart_full_chunks_async",
    ),
    "D3 efficiency": Break(
        Link, {"bytes_per_ms": property(lambda self: self.gb_per_s * 1e6)}, "apart_full_chunks_async"
    ),
    "D3 latency": Break(Transfers, {"go": no_wait}, "apart_latency_alone_sync"),
    "D3 latency counts": Break(Transfers, {"go": busy_from_the_bytes_on}, "apart_bound_sync"),
    "D3 latency flows": Break(Transfers, {"go": latency_flows}, "apart_full_chunks_sync"),
    "D3 bound": Break(Transfers, {"may_go": lambda self, transfer: True}, "apart_bound_sync"),
    "D3 both ends": Break(Transfers, {"ends": one_end}, "apart_bound_sync"),
    "D3 first only": Break(Transfers, {"dispatch": overtaking}, "apart_bound_sync"),
    "D3 others do not wait": Break(Transfers, {"dispatch": one_queue}, "apart_bound_sync"),
    "D3 ready first": Break(Transfers, {"dispatch": latest_first}, "apart_bound_sync"),
    "D3 all end first": Break(Transfers, {"through": between_ends}, "apart_bound_ends_together_sync"),
    "D3 full": Break(Tandem, {"not_missing": never_there}, "apart_full_chunks_sync"),
    "D3 missing": Break(Tandem, {"not_missing": lambda self, request: 0}, "apart_missing_sync"),
    "D3 a token": Break(Tandem, {"send": nothing_missing}, "apart_missing_all_sync"),
    "D4 chunks": Break(Tandem, {"chunked": lambda self, source, computed: None}, "apart_chunks_trtllm_sync"),
    "D4 one by one": Break(Tandem, {"send": in_one}, "apart_chunks_staging_sync"),
    "D4 all of them": Break(Tandem, {"landed": with_the_first}, "apart_chunks_trtllm_overlap"),
    "D4 latency of its own": Break(Transfers, {"go": one_latency}, "apart_full_chunks_sync"),
    "D4 lost by preemption": Break(Tandem, {"chunked": lost_chunks}, "apart_chunks_preempted_async"),
    "D4 nothing twice": Break(Tandem, {"send": twice}, "apart_chunks_preempted_sync"),
}
