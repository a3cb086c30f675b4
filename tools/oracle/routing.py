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
        worker, rank = self.choose(request)
        place = worker, self.rank(worker, rank, request)
        self.loads[place] += 1
        self.tokens[place] += request.lengths.isl
        return place

    def done(self, request: Request, place: Place) -> None:
        """E4: a request that has its last token loads nothing."""
        self.loads[place] -= 1
        self.tokens[place] -= request.lengths.isl

    def choose(self, request: Request) -> Place:
        """The rule, for whom nothing binds to a rank."""
        raise NotImplementedError

    def rank(self, worker: int, rank: int, request: Request) -> int:
        """E4: of the worker, the rank that the request insists on, else the one that the rule said.

        T7: else, the one with the fewest active tokens, then requests.
        """
        if request.lengths.data_parallel_rank is not None:
            return request.lengths.data_parallel_rank
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
        return self.in_turn(turn)

    def in_turn(self, turn: int) -> Place:
        """E4: workers first; a rank's turn comes once every worker has had one."""
        return turn % self.workers, turn // self.workers % self.ranks


class LeastLoaded(Router):
    """Where the fewest requests are that have not got their last token."""

    def choose(self, request: Request) -> Place:
        """E4: the least loaded rank, ties to the lowest worker, then to the lowest rank; T7: the least loaded worker.

        Who insists on a rank goes to the least loaded of those with that number.
        """
        pin = request.lengths.data_parallel_rank
        if self.by_tokens and pin is None:
            return min(range(self.workers), key=lambda each: (self.load_of(each), each)), 0
        places = [place for place in self.loads if pin in (None, place[1])]
        return min(places, key=lambda each: (self.loads[each], each))

    def load_of(self, worker: int) -> int:
        """T7: requests on all ranks of a worker."""
        return sum(self.loads[worker, rank] for rank in range(self.ranks))


class PrefixAffinity(RoundRobin):
    """Where the prefix of the group is."""

    def __init__(self, workers: int, ranks: int, by_tokens: bool = False) -> None:
        super().__init__(workers, ranks, by_tokens)
        self.homes: dict[int, Place] = {}

    def place(self, request: Request) -> Place:
        """E4: where the first of a group goes is the home of the group."""
        place = super().place(request)
        if request.lengths.prefix_group is not None:
            self.homes.setdefault(request.lengths.prefix_group, place)
        return place

    def choose(self, request: Request) -> Place:
        """E4: a group follows its first request; that one, and who has no group, takes the next turn."""
        group = request.lengths.prefix_group
        return self.homes[group] if group in self.homes else super().choose(request)


ROUTERS: dict[str, type[Router]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "prefix_affinity": PrefixAffinity,
}
