"""Which worker, and which of its ranks, a request goes to when it becomes visible (E4, T7)."""

from collections import Counter

from tools.oracle.requests import Request

Place = tuple[int, int]  # worker, rank


class Router:
    """A rule of placement, and what is where: requests that have not their last token, and their prompts' tokens.

    With `by_tokens` the rule chooses the worker alone, and the tokens the rank.
    """

    def __init__(self, workers: int, ranks: int, by_tokens: bool = False) -> None:
        self.workers, self.ranks, self.by_tokens = workers, ranks, by_tokens
        self.loads: Counter[Place] = Counter({(w, r): 0 for w in range(workers) for r in range(ranks)})
        self.tokens: Counter[Place] = Counter()

    def place(self, request: Request) -> Place:
        """Where a request goes that becomes visible now; it counts there from now on."""
        place = self.choose(request)
        self.loads[place] += 1
        self.tokens[place] += request.lengths.isl
        return place

    def done(self, request: Request, place: Place) -> None:
        """E4: a request that has its last token loads nothing."""
        self.loads[place] -= 1
        self.tokens[place] -= request.lengths.isl

    def choose(self, request: Request) -> Place:
        """The rule."""
        raise NotImplementedError

    def rank(self, worker: int, rank: int) -> int:
        """T7: of a worker, the rank with the fewest active tokens, then requests; else the one that the rule said."""
        if not self.by_tokens:
            return rank
        return min(range(self.ranks), key=lambda each: (*self.activity((worker, each)), each))

    def activity(self, place: Place) -> tuple[int, int]:
        """T7: what is active at a rank: tokens of prompts, then requests."""
        return self.tokens[place], self.loads[place]


class RoundRobin(Router):
    """Over workers in turn, and within each over its ranks in turn."""

    def __init__(self, workers: int, ranks: int, by_tokens: bool = False) -> None:
        super().__init__(workers, ranks, by_tokens)
        self.turns = 0

    def choose(self, request: Request) -> Place:
        """E4: the next in turn."""
        turn, self.turns = self.turns, self.turns + 1
        worker, rank = self.in_turn(turn)
        return worker, self.rank(worker, rank)

    def in_turn(self, turn: int) -> Place:
        """E4: workers first; a rank's turn comes once every worker has had one."""
        return turn % self.workers, turn // self.workers % self.ranks


class LeastLoaded(Router):
    """Where the fewest requests are that have not got their last token."""

    def choose(self, request: Request) -> Place:
        """E4: the least loaded rank, ties to the lowest worker, then to the lowest rank; T7: the least loaded worker."""
        if self.by_tokens:
            worker = min(range(self.workers), key=lambda each: (self.load_of(each), each))
            return worker, self.rank(worker, 0)
        return min(self.loads, key=lambda each: (self.loads[each], each))

    def load_of(self, worker: int) -> int:
        """T7: requests on all ranks of a worker."""
        return sum(self.loads[worker, rank] for rank in range(self.ranks))


class PrefixAffinity(RoundRobin):
    """Where the prefix of the group is."""

    def __init__(self, workers: int, ranks: int, by_tokens: bool = False) -> None:
        super().__init__(workers, ranks, by_tokens)
        self.homes: dict[int, Place] = {}

    def choose(self, request: Request) -> Place:
        """E4: a group follows its first request; that one, and who has no group, takes the next turn."""
        group = request.lengths.prefix_group
        if group is None:
            return super().choose(request)
        if group not in self.homes:
            self.homes[group] = super().choose(request)
            return self.homes[group]
        worker, rank = self.homes[group]
        return worker, self.rank(worker, rank)


ROUTERS: dict[str, type[Router]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "prefix_affinity": PrefixAffinity,
}
