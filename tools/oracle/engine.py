"""A worker: the ranks that pass together, and the moments at which their schedulers are asked for the next pass."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tools.oracle.events import Clock, Kind
from tools.oracle.requests import Lengths, Request, Row
from tools.oracle.timing import Shape, Timing


@dataclass(frozen=True, slots=True)
class Launch:
    """V14: what the host takes to launch a pass, by the kind of its graph, and to turn a token into text."""

    decode_ms: float
    piecewise_ms: float
    eager_ms: float
    max_cudagraph_capture_size: int
    eager_queue_fraction: float
    detokenizer_ms: float


@dataclass(frozen=True, slots=True)
class HostLoop:
    """S19: what the host takes to select what passes next, by the kind of the pass."""

    prefill_select_ms: float
    decode_select_ms: float


class Scheduler(Protocol):
    """What a backend has to say for one rank; it is built from the raw `engine` object of the scenario."""

    @property
    def ranks(self) -> int:
        """How many such ranks, each with a scheduler of its own, make one worker."""

    @property
    def ranks_by_tokens(self) -> bool:
        """Whether the rank of a request is the one with the fewest active tokens, whatever the routing (T7)."""

    @property
    def idle_shape(self) -> Shape | None:
        """What a rank without rows runs while others of its group have some, if that costs anything."""

    @property
    def host_times(self) -> Launch | HostLoop | None:
        """What the host takes, where it counts."""

    @property
    def retries(self) -> bool:
        """Whether the last plan took memory from somebody, so that the next one is another, and due at once."""

    @property
    def plans_ahead(self) -> bool:
        """Whether pass k+1 is planned when pass k starts, or only when it is over."""

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """Raise ScenarioError for a request that could never run."""

    def arrive(self, request: Request) -> None:
        """A request became visible."""

    def look(self, step: int, flying: list[Row]) -> None:
        """Before each plan: the passes since the worker last drained, and this rank's rows of the one under way."""

    def lead(self, ranks: Sequence["Scheduler"]) -> None:
        """Before each plan, said to rank 0 alone: settle what depends on all ranks of the group."""

    def plan(self) -> list[Row]:
        """Decide a pass, moving requests and memory to where they stand once it is launched; [] for no pass."""

    def receive(self, request: Request, now_ms: float) -> bool:
        """An output of a request appeared; say whether the request is done."""

    def idle(self) -> bool:
        """A plan was empty with nothing under way; say whether to ask again, which waits for an arrival if one comes."""

    def outputs(self, request: Request) -> int:
        """The outputs that a request will have."""

    def let_go(self, request: Request) -> None:
        """D5: a request that was done, and held for a transfer, has been read."""


class Alone:
    """What to say for a scheduler that has no group and no host that counts, and whose plans depend on neither."""

    ranks = 1
    ranks_by_tokens = False
    retries = False
    idle_shape: Shape | None = None
    host_times: Launch | HostLoop | None = None

    def outputs(self, request: Request) -> int:
        """All that it asks for."""
        return request.lengths.osl

    def look(self, step: int, flying: list[Row]) -> None:
        """Nothing to see."""

    def lead(self, ranks: Sequence[Scheduler]) -> None:
        """Nothing to settle."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One rank's share of a pass as it ran."""

    engine: int
    start_ms: float
    end_ms: float
    shape: Shape


class Worker:
    """Runs what the schedulers of its ranks plan, together, at the timing's price (E1).

    Every rule is a method, so that a subclass can break one alone.
    """

    def __init__(
        self,
        index: int,
        ranks: Sequence[Scheduler],
        timing: Timing,
        clock: Clock,
        on_done: Callable[[Request], None],
    ) -> None:
        self.passes: list[Pass] = []
        self.on_chunk: Callable[[Request, int], None] | None = None  # hears of tokens computed without an output (D4)
        self.ranks, self.timing, self.clock, self.on_done = ranks, timing, clock, on_done
        self.first = index * len(ranks)  # the engine number of rank 0
        self.step = 0
        self.busy = False
        self.deciding = False
        self.ahead: list[list[Row]] = [[] for _ in ranks]

    def deliver(self, request: Request, rank: int) -> None:
        """A request became visible; an idle group looks at it at once, an idle rank of a busy one waits (E1)."""
        self.ranks[rank].arrive(request)
        if self.may_start(rank):
            self.wake()

    def let_go(self, request: Request) -> None:
        """D5: what a request held is free; an idle group looks at once whether that helps anybody."""
        self.ranks[request.rank].let_go(request)
        if self.may_start(request.rank):
            self.wake()

    def may_start(self, rank: int) -> bool:
        """E1: no rank starts while any other is at work."""
        return not self.busy

    def wake(self) -> None:
        """Decide once everything of this instant is known."""
        if not self.deciding:
            self.deciding = True
            self.clock.at(self.clock.now_ms, Kind.DECIDE, self.decide)

    def decide(self) -> None:
        """Start the pass planned ahead, or else plan one now; with that under way, plan ahead again (V12)."""
        self.deciding = False
        rows = self.ahead if any(self.ahead) else self.plan_now()
        self.ahead = [[] for _ in self.ranks]
        if not any(rows):
            self.step = self.drained()
            return
        self.run(rows)
        if self.ranks[0].plans_ahead:
            self.ahead = self.plan_ahead(rows)

    def plan_now(self) -> list[list[Row]]:
        """Ask every rank, nothing being under way."""
        rows = self.plan([[] for _ in self.ranks])
        while not any(rows) and any(rank.retries for rank in self.ranks):
            rows = self.plan([[] for _ in self.ranks])
        while not any(rows) and True in [rank.idle() for rank in self.ranks] and self.clock.is_empty:
            rows = self.plan([[] for _ in self.ranks])
        return rows

    def plan_ahead(self, flying: list[list[Row]]) -> list[list[Row]]:
        """E1, V12: every rank decides when the group's pass starts, those that sit it out too."""
        return self.plan(flying)

    def plan(self, flying: list[list[Row]]) -> list[list[Row]]:
        """E1: each rank plans its own share, at one instant."""
        for rank, under_way in zip(self.ranks, flying, strict=True):
            rank.look(self.step, under_way)
        self.ranks[0].lead(self.ranks)
        return [rank.plan() for rank in self.ranks]

    def drained(self) -> int:
        """V15: with nothing left to run, the count of passes starts over."""
        return 0

    def run(self, rows: list[list[Row]]) -> None:
        """Start a pass now."""
        end_ms = self.book(rows, self.clock.now_ms)
        self.busy = True
        self.schedule_outputs(rows, end_ms)
        self.clock.at(end_ms, Kind.PASS_END, self.end)

    def book(self, rows: list[list[Row]], start_ms: float) -> float:
        """E1: price every rank and write the pass down; the end of the slowest is everybody's."""
        shapes = {rank: Shape.of(mine) for rank, mine in enumerate(rows) if mine}
        priced = [*shapes.values(), *self.idle_shapes(len(self.ranks) - len(shapes))]
        duration_ms = self.duration_ms([self.timing.pass_ms(shape) for shape in priced])
        for rank, shape in shapes.items():
            self.passes.append(Pass(self.first + rank, start_ms, start_ms + duration_ms, shape))
        for row in (row for mine in rows for row in mine):
            if row.request.admitted_ms is None:
                row.request.admitted_ms = start_ms
        self.step += 1
        return start_ms + duration_ms

    def idle_shapes(self, ranks: int) -> list[Shape]:
        """T7: what so many ranks without rows run meanwhile; it is priced, and not written down."""
        shape = self.ranks[0].idle_shape
        return [shape] * ranks if shape else []

    def duration_ms(self, prices: list[float]) -> float:
        """E1: the slowest rank is waited for."""
        return max(prices)

    def schedule_outputs(self, rows: list[list[Row]], at_ms: float) -> None:
        """All outputs of a pass appear together, in row order."""
        for rank, mine in enumerate(rows):
            for row in mine:
                for _ in range(row.emits):
                    self.clock.at(at_ms, Kind.TOKEN, self.emit, rank, row.request, place=self.first + rank)
                if self.on_chunk and not row.emits:
                    end = row.past + row.new
                    self.clock.at(at_ms, Kind.TOKEN, self.on_chunk, row.request, end, place=self.first + rank)

    def emit(self, rank: int, request: Request) -> None:
        """An output appears, and its client has it."""
        if self.ranks[rank].receive(request, self.clock.now_ms):
            self.on_done(request)

    def end(self) -> None:
        """The pass is over."""
        self.busy = False
        self.wake()
