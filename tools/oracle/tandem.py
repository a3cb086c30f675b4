"""Two stages and the way between them: what a request does from its prefill to its last token (D1 to D7, D10)."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from tools.oracle.deployment import Deployment
from tools.oracle.disaggregated import Disaggregated
from tools.oracle.engine import Pass
from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Hold, Request, State
from tools.oracle.routing import Place
from tools.oracle.transfers import Transfers


@dataclass(slots=True, eq=False)
class Journey:
    """A request, its life at the source, and the one at its destination; times of what has happened."""

    request: Request
    source: Request
    target: Request
    goes_over: bool
    sent: int = 0  # leading tokens that are on their way, there, or not missing
    chosen: bool = False
    granted: bool = False
    computed: list[int] = field(default_factory=list)  # tokens at the ends of passes whose share is not on its way
    under_way: int = 0
    prefill_done_ms: float | None = None
    transfer_start_ms: float | None = None
    transfer_done_ms: float | None = None
    attach_ms: float | None = None


class Tandem:
    """A pool that prefills, a pool that decodes, and transfers from one to the other.

    Every rule is a method, so that it can be broken alone.
    """

    def __init__(
        self, asked: Disaggregated, pools: tuple[Deployment, Deployment], clock: Clock, tell: Callable[[Request], None]
    ) -> None:
        self.asked, self.clock, self.tell = asked, clock, tell
        self.prefill, self.decode = pools
        self.prefill.on_done, self.decode.on_done = self.prefilled, self.decoded
        for worker in self.prefill.workers:
            worker.on_chunk = self.chunked
        self.transfers = Transfers(asked.link, clock)
        self.journeys: dict[Request, Journey] = {}  # of requests, and of both their lives
        self.asking: dict[Place, deque[Journey]] = {}

    # What a simulation asks of a deployment.

    def deliver(self, request: Request) -> None:
        """D7: the scheduler sees a request: its prefill worker is chosen; where memory is reserved first, the other too."""
        journey = self.begin(request)
        self.prefill.place(journey.source)
        if journey.goes_over and self.reserves_first():
            self.choose(journey)
            self.ask(journey)
        else:
            self.prefill.enter(journey.source)

    def passes(self) -> list[Pass]:
        """Of both pools, in order of their start, ties by engine."""
        every = [*self.prefill.passes(), *self.decode.passes()]
        return sorted(every, key=lambda each: (each.start_ms, each.engine))

    def engine_of(self, request: Request) -> int:
        """Where it was prefilled."""
        return self.prefill.engine_of(self.journeys[request].source)

    def stages(self, request: Request) -> dict:
        """What only a tandem knows of a request, as far as it happened."""
        journey = self.journeys[request]
        if not journey.goes_over:
            return {"prefill_done_ms": journey.prefill_done_ms}
        return {
            "decode_engine": self.decode.engine_of(journey.target),
            "prefill_done_ms": journey.prefill_done_ms,
            "transfer_start_ms": journey.transfer_start_ms,
            "transfer_done_ms": journey.transfer_done_ms,
            "attach_ms": journey.attach_ms,
        }

    # D1, D2: the two lives of a request.

    def begin(self, request: Request) -> Journey:
        """D1: at the source it is a request with one output; what it is at its destination depends on D2."""
        goes_over = request.lengths.osl > 1 or self.asked.first_token != "prefill"
        alone = replace(request.lengths, osl=1, max_tokens=None)
        source = Request(request.number, alone, request.dispatch_ms, request.visible_ms)
        source.hold = self.asked.hold if goes_over else Hold.NONE
        rest = replace(request.lengths, prefix=0)
        target = Request(request.number, rest, request.dispatch_ms, request.visible_ms, handed_over=True)
        self.attach(target)
        journey = Journey(request, source, target, goes_over, sent=self.not_missing(request))
        self.journeys |= dict.fromkeys((request, source, target), journey)
        return journey

    def attach(self, target: Request) -> None:
        """D1, D2: the prompt is there; so is the first token, unless a pass makes it anew, and the prompt's last KV with it."""
        remade = self.asked.first_token == "decode_pass"
        target.computed = target.lengths.isl - remade
        target.token_ms = [] if remade else [0.0]  # a time that is known in the end

    def finish(self, journey: Journey) -> None:
        """The client has its last token."""
        request, source, target = journey.request, journey.source, journey.target
        request.admitted_ms, request.cached = source.admitted_ms, source.cached
        request.preemptions = source.preemptions + target.preemptions
        if journey.attach_ms is None:
            journey.attach_ms = target.admitted_ms
        request.token_ms = list(target.token_ms)
        if self.asked.first_token != "decode_pass":
            request.token_ms[0] = self.first_token_ms(journey)
        request.state = State.DONE
        self.tell(request)

    def first_token_ms(self, journey: Journey) -> float:
        """D2: at the end of the prefill, or when the decode side attaches."""
        return journey.prefill_done_ms if self.asked.first_token == "prefill" else journey.attach_ms

    # D1, D4: the source.

    def prefilled(self, source: Request) -> None:
        """The pass with the last chunk has ended."""
        journey = self.journeys[source]
        journey.prefill_done_ms = self.clock.now_ms
        if journey.goes_over:
            self.hand(journey, source.lengths.isl)
        else:
            self.finish(journey)

    def chunked(self, source: Request, computed: int) -> None:
        """D4: a pass with another chunk has ended; what a preempted request lost is not sent."""
        journey = self.journeys[source]
        each_chunk = self.asked.link.transfer_start == "each_chunk"
        if each_chunk and journey.goes_over and source.state is not State.PREEMPTED:
            self.hand(journey, computed)

    def hand(self, journey: Journey, computed: int) -> None:
        """D7: nothing is decided before all has ended that ends now; then engine by engine, in row order."""
        engine = self.prefill.engine_of(journey.source)
        self.clock.at(self.clock.now_ms, Kind.HANDOFF, self.ready, journey, computed, place=engine)

    def ready(self, journey: Journey, computed: int) -> None:
        """D6: where the source is held first, the destination is chosen and asked now."""
        journey.computed.append(computed)
        if not journey.chosen:
            self.choose(journey)
            self.ask(journey)
        elif journey.granted:
            self.send(journey)

    # D6, D7, D10: the destination.

    def reserves_first(self) -> bool:
        """D6: SGLang reserves the destination, then prefills."""
        return self.asked.decode.backend == "sglang"

    def choose(self, journey: Journey) -> None:
        """D7: the decode worker; the request counts there from now on."""
        journey.chosen = True
        self.decode.place(journey.target)

    def ask(self, journey: Journey) -> None:
        """D10: requests that wait for memory at a rank are served in the order in which they asked."""
        place = journey.target.worker, journey.target.rank
        self.asking.setdefault(place, deque()).append(journey)
        self.grant(place)

    def grant(self, place: Place) -> None:
        """D6: from the first on, as far as memory goes."""
        queue, scheduler = self.asking.get(place, ()), self.decode.scheduler(place)
        while queue and scheduler.grant(queue[0].target):
            self.go_on(queue.popleft())

    def go_on(self, journey: Journey) -> None:
        """D6: with memory granted, the transfer may start; or the prefill, where that comes later."""
        journey.granted = True
        if self.reserves_first():
            self.prefill.enter(journey.source)
        else:
            self.send(journey)

    def came_free(self, target: Request) -> None:
        """D6: memory returned now; once all of this instant has, it is given to those that wait for it."""
        place = target.worker, target.rank
        self.clock.at(self.clock.now_ms, Kind.GRANT, self.grant, place, place=self.decode.engine_of(target))

    # D3, D4, D5: the way.

    def not_missing(self, request: Request) -> int:
        """D3: tokens that the destination has."""
        cached = min(request.lengths.prefix, request.lengths.isl - 1)
        return cached if self.asked.link.transfer == "missing" else 0

    def send(self, journey: Journey) -> None:
        """D3, D4: what was computed and not sent, a transfer for each pass that computed some of it."""
        ends = journey.source.worker, journey.target.worker
        shares, journey.computed = journey.computed, []
        for computed in shares:
            tokens = computed - journey.sent
            if tokens > 0:
                journey.sent = computed
                journey.under_way += 1
                size = tokens * self.asked.link.kv_bytes_per_token
                self.transfers.submit(ends, size, partial(self.started, journey), partial(self.landed, journey))

    def started(self, journey: Journey) -> None:
        """A transfer has got its turn."""
        if journey.transfer_start_ms is None:
            journey.transfer_start_ms = self.clock.now_ms

    def landed(self, journey: Journey) -> None:
        """D4, D5: with the last transfer all is there: the source is free, and the decode side goes on."""
        journey.under_way -= 1
        if journey.under_way or journey.sent < journey.request.lengths.isl:
            return
        journey.transfer_done_ms = self.clock.now_ms
        if journey.source.hold is not Hold.NONE:
            self.prefill.workers[journey.source.worker].let_go(journey.source)
        self.arrive(journey)

    def arrive(self, journey: Journey) -> None:
        """D10: it waits for a seat, first come, first served; with nothing left to decode it needs none."""
        target = journey.target
        scheduler = self.decode.scheduler((target.worker, target.rank))
        if len(target.token_ms) < scheduler.outputs(target):
            self.decode.enter(target)
        else:
            journey.attach_ms = self.clock.now_ms
            scheduler.let_go(target)
            self.decode.done(target)

    def decoded(self, target: Request) -> None:
        """The last output has come."""
        self.came_free(target)
        self.finish(self.journeys[target])
