"""Which worker, and which of its ranks, a request goes to when it becomes visible (E4)."""

from collections import Counter
from typing import Protocol

from tools.oracle.requests import Request

Place = tuple[int, int]  # worker, rank


class Router(Protocol):
    """A rule of placement; it is built from the number of workers and the ranks of each."""

    def place(self, request: Request) -> Place:
        """Where a request goes that becomes visible now."""

    def done(self, request: Request, place: Place) -> None:
        """A request has its last token."""


class RoundRobin:
    """Over workers in turn, and within each over its ranks in turn."""

    def __init__(self, workers: int, ranks: int) -> None:
        self.workers, self.ranks = workers, ranks
        self.turns = 0

    def place(self, request: Request) -> Place:
        """E4: the next in turn."""
        turn, self.turns = self.turns, self.turns + 1
        return self.in_turn(turn)

    def in_turn(self, turn: int) -> Place:
        """E4: workers first; a rank's turn comes once every worker has had one."""
        return turn % self.workers, turn // self.workers % self.ranks

    def done(self, request: Request, place: Place) -> None:
        """Nothing depends on it."""


class LeastLoaded:
    """Where the fewest requests are that have not got their last token."""

    def __init__(self, workers: int, ranks: int) -> None:
        self.loads: Counter[Place] = Counter({(w, r): 0 for w in range(workers) for r in range(ranks)})

    def place(self, request: Request) -> Place:
        """E4: the least loaded, ties to the lowest worker, then to the lowest rank."""
        place = min(self.loads, key=lambda each: (self.loads[each], each))
        self.loads[place] += 1
        return place

    def done(self, request: Request, place: Place) -> None:
        """E4: a finished request loads nothing."""
        self.loads[place] -= 1


class PrefixAffinity(RoundRobin):
    """Where the prefix of the group is."""

    def __init__(self, workers: int, ranks: int) -> None:
        super().__init__(workers, ranks)
        self.homes: dict[int, Place] = {}

    def place(self, request: Request) -> Place:
        """E4: a group follows its first request; that one, and who has no group, takes the next turn."""
        group = request.lengths.prefix_group
        if group is None:
            return super().place(request)
        if group not in self.homes:
            self.homes[group] = super().place(request)
        return self.homes[group]


ROUTERS: dict[str, type[Router]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "prefix_affinity": PrefixAffinity,
}
