"""Messages from worker to worker: their turn, their latency, and then the fabric (D3)."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial

from tools.oracle.events import Clock, Kind
from tools.oracle.fabric import Fabric


@dataclass(frozen=True, slots=True)
class Link:
    """D3: what every worker's egress and ingress can do, and what a token weighs."""

    gb_per_s: float
    efficiency: float
    latency_ms: float
    kv_bytes_per_token: float
    max_transfers_per_worker: int | None
    transfer: str
    transfer_start: str

    @property
    def bytes_per_ms(self) -> float:
        """A GB is 1e9 bytes, and what is nominal is not had."""
        return self.gb_per_s * 1e6 * self.efficiency


@dataclass(slots=True, eq=False)
class Transfer:
    """One message: it waits for its turn, takes the latency, then flows."""

    number: int
    source: int
    target: int
    size: float
    on_start: Callable[[], None]
    on_end: Callable[[], None]


class Transfers:
    """Messages, at most so many under way at each egress and each ingress."""

    def __init__(self, link: Link, clock: Clock) -> None:
        self.link, self.clock, self.fabric = link, clock, Fabric(link.bytes_per_ms, clock)
        self.queues: dict[int, list[Transfer]] = {}
        self.under_way: Counter[Hashable] = Counter()
        self.count = 0

    def submit(
        self, ends: tuple[int, int], size: float, on_start: Callable[[], None], on_end: Callable[[], None]
    ) -> None:
        """A message from a worker to another is ready now; it is told when it starts, and when it is over."""
        transfer = Transfer(self.count, *ends, size, on_start, on_end)
        self.count += 1
        self.queues.setdefault(transfer.source, []).append(transfer)
        self.dispatch()

    def dispatch(self) -> None:
        """D3: of the first of every source, whoever may go goes, the one that was ready first before others."""
        while heads := [queue[0] for queue in self.queues.values() if queue and self.may_go(queue[0])]:
            first = min(heads, key=lambda transfer: transfer.number)
            self.queues[first.source].remove(first)
            self.go(first)

    def may_go(self, transfer: Transfer) -> bool:
        """D3: neither end is at its bound."""
        bound = self.link.max_transfers_per_worker
        return bound is None or all(self.under_way[end] < bound for end in self.ends(transfer))

    def ends(self, transfer: Transfer) -> tuple[Hashable, Hashable]:
        """Where it counts as under way, latency included."""
        return ("out", transfer.source), ("in", transfer.target)

    def go(self, transfer: Transfer) -> None:
        """D3: the latency takes no bandwidth."""
        self.under_way.update(self.ends(transfer))
        transfer.on_start()
        self.clock.at(self.clock.now_ms + self.link.latency_ms, Kind.FLOW, self.flow, transfer)

    def flow(self, transfer: Transfer) -> None:
        """D3: then the bytes; if there are none, it is over."""
        if transfer.size > 0:
            self.fabric.start(transfer.source, transfer.target, transfer.size, partial(self.through, transfer))
        else:
            self.through(transfer)

    def through(self, transfer: Transfer) -> None:
        """D3: what ends at one instant has ended in the order in which it was ready; then others may go."""
        self.under_way.subtract(self.ends(transfer))
        self.clock.at(self.clock.now_ms, Kind.LANDED, transfer.on_end, place=transfer.number)
        self.clock.at(self.clock.now_ms, Kind.BEGIN, self.dispatch)
