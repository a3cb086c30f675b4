"""The fabric between workers: flows that share links max-min fairly (D3)."""

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from math import ulp

from tools.oracle.events import Clock, Kind

TOGETHER_MS = 1e-6  # flows whose ends lie no further apart end together


def fair_rates(routes: Sequence[Sequence[Hashable]], capacity: Mapping[Hashable, float]) -> list[float]:
    """D3: the max-min-fair rate of each flow, given the links that it crosses.

    All rates rise together until a link is full; the flows on it stay as they are, and the others rise on.
    """
    rates = [0.0] * len(routes)
    rising = set(range(len(routes)))
    room = dict(capacity)
    while rising:
        crowd = Counter(link for flow in rising for link in routes[flow])
        level = {link: room[link] / count for link, count in crowd.items()}
        step = min(level.values())
        full = {link for link in crowd if level[link] <= step * (1 + 1e-12)}
        for flow in rising:
            rates[flow] += step
        for link, count in crowd.items():
            room[link] = 0.0 if link in full else room[link] - step * count
        rising = {flow for flow in rising if full.isdisjoint(routes[flow])}
    return rates


@dataclass(slots=True, eq=False)
class Flow:
    """Bytes on their way from a worker's egress to another's ingress."""

    source: int
    target: int
    left: float
    on_through: Callable[[], None]
    rate: float = 0.0  # bytes a millisecond

    @property
    def route(self) -> tuple[Hashable, ...]:
        """Its two links."""
        return ("out", self.source), ("in", self.target)


class Fabric:
    """All flows under way; every start and every end changes the rates of the others."""

    def __init__(self, bytes_per_ms: float, clock: Clock) -> None:
        self.bytes_per_ms, self.clock = bytes_per_ms, clock
        self.flows: list[Flow] = []
        self.since_ms = 0.0
        self.version = 0

    def start(self, source: int, target: int, size: float, on_through: Callable[[], None]) -> None:
        """Send so many bytes, more than none, from now on."""
        self.advance()
        self.flows.append(Flow(source, target, size, on_through))
        self.share()

    def advance(self) -> None:
        """Move what has moved until now; what is through leaves, first come, first."""
        now_ms = self.clock.now_ms
        elapsed_ms, self.since_ms = now_ms - self.since_ms, now_ms
        together_ms = TOGETHER_MS + 2 * ulp(now_ms)
        under_way = []
        for flow in self.flows:
            flow.left -= flow.rate * elapsed_ms
            if flow.left <= flow.rate * together_ms:
                self.clock.at(now_ms, Kind.FLOW, flow.on_through)
            else:
                under_way.append(flow)
        self.flows = under_way

    def share(self) -> None:
        """D3: new rates for all, and the next end that follows from them."""
        self.version += 1
        if not self.flows:
            return
        routes = [flow.route for flow in self.flows]
        capacity = {link: self.bytes_per_ms for route in routes for link in route}
        for flow, rate in zip(self.flows, self.rates(routes, capacity), strict=True):
            flow.rate = rate
        next_ms = self.clock.now_ms + min(flow.left / flow.rate for flow in self.flows)
        self.clock.at(next_ms, Kind.FLOW, self.end, self.version)

    def rates(self, routes: Sequence[Sequence[Hashable]], capacity: Mapping[Hashable, float]) -> list[float]:
        """D3: a method, so that it can be broken."""
        return fair_rates(routes, capacity)

    def end(self, version: int) -> None:
        """A flow should be through now, unless the rates changed meanwhile."""
        if version == self.version:
            self.advance()
            self.share()
