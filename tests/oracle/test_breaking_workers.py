"""Workers and routers broken one rule at a time: (the part, what replaces its method, where it shows)."""

import pytest

from tools.oracle.engine import Worker
from tools.oracle.launching import LaunchingWorker
from tools.oracle.requests import Lengths, Request
from tools.oracle.routing import LeastLoaded, PrefixAffinity, RoundRobin
from tools.oracle.timing import Shape

from .breaking import shows


def only_who_works(self, flying):
    """E1 broken: a rank that sits a pass out does not look ahead."""
    rows = []
    for rank, under_way in zip(self.ranks, flying, strict=True):
        rank.look(self.step, under_way)
        rows.append(rank.plan() if under_way else [])
    return rows


def outputs_at_once(self, rows, at_ms):
    """E1 broken: the outputs of a rank appear when its own share is done."""
    for rank, mine in enumerate(rows):
        if mine:
            own_ms = self.clock.now_ms + self.timing.pass_ms(Shape.of(mine))
            Worker.schedule_outputs(self, [mine if i == rank else [] for i in range(len(rows))], own_ms)


def last_of_the_least(self, request):
    """E4 broken: ties go to the highest index."""
    return max(self.loads, key=lambda each: (-self.loads[each], each))


def everybody_takes_a_turn(self, request):
    """E4 broken: who follows its group uses up a turn too."""
    at_home = request.lengths.prefix_group in self.homes
    place = PrefixAffinity.choose(self, request)
    self.turns += at_home
    return place


def place_alone(self, request):
    """E4 broken: nobody follows anybody."""
    self.homes.clear()
    return PrefixAffinity.choose(self, request)


def parallel(self, rank, request):
    """V14 broken: the detokenizer turns any number of tokens at once."""
    self.detokenized_ms = 0.0
    LaunchingWorker.emit(self, rank, request)


def told_at_once(self, rank, request):
    """V14 broken: the client need not wait for the text."""
    on_done, self.on_done = self.on_done, lambda request: None
    done = request.promised - request.in_flight + 1 >= request.lengths.osl
    LaunchingWorker.emit(self, rank, request)
    self.on_done = on_done
    if done:
        on_done(request)


def no_floor(self, booked):
    """V14 broken: an eager launch does not wait for the device."""
    return booked.start_ms


def later_passes(self, rows):
    """V14 broken: a launch moves its pass."""
    self.flying_end_ms += self.launch_ms(rows[0])
    return LaunchingWorker.launch_next(self, rows)


def pinned_later(self, request):
    """E4 broken: who insists on a rank takes no turn of the workers either."""
    turns = self.turns
    place = RoundRobin.choose(self, request)
    self.turns = turns + (request.lengths.data_parallel_rank is None)
    return place


def least_of_all(self, request):
    """E4 broken: the worker is that of the least loaded rank of all, whichever rank is insisted on."""
    return min(self.loads, key=lambda each: (self.loads[each], each))


BREAKS = {
    "E1 slowest": ("worker", {"duration_ms": lambda self, prices: min(prices)}, "dp_two_ranks_sync"),
    "E1 sum": ("worker", {"duration_ms": lambda self, prices: sum(prices)}, "dp_two_ranks_async"),
    "E1 alone": ("worker", {"may_start": lambda self, rank: True}, "dp_idle_ranks_sync"),
    "E1 outputs": ("worker", {"schedule_outputs": outputs_at_once}, "dp_skew_sync"),
    "E1 lookahead": ("worker", {"plan_ahead": only_who_works}, "dp_idle_ranks_async"),
    "E1 ranks": ("scheduler", {"ranks": 1}, "dp_kv_tight_async"),
    "E4 ranks first": (
        "router",
        {"in_turn": lambda self, turn: (turn // self.ranks % self.workers, turn % self.ranks)},
        "replicas_dp_prefix_affinity_sync",
    ),
    "E4 workers": ("router", {"in_turn": lambda self, turn: (0, 0)}, "replicas_round_robin_async"),
    "E4 turns": ("router", {"in_turn": lambda self, turn: (-1 - turn % 2, 0)}, "replicas_ingest_order_async"),
    "E4 ties": ("router", {"choose": last_of_the_least}, "replicas_dp_least_loaded_sync"),
    "E4 done": ("router", {"done": lambda self, request, place: None}, "replicas_least_loaded_replay_async"),
    "E4 done text": ("worker", {"emit": told_at_once}, "launch_detokenizer_async"),
    "E4 home turns": ("router", {"choose": everybody_takes_a_turn}, "replicas_prefix_affinity_sync"),
    "E4 affinity": ("router", {"choose": place_alone}, "replicas_prefix_affinity_async"),
    "E4 pinned": ("router", {"rank": lambda self, worker, rank, request: rank}, "pinned_to_one_rank_async"),
    "E4 pinned turns": ("router", {"choose": pinned_later}, "pinned_round_robin_sync"),
    "E4 pinned load": ("router", {"choose": least_of_all}, "pinned_least_loaded_async"),
    "E4 pinned home": ("router", {"rank": lambda self, worker, rank, request: rank}, "pinned_affinity_sync"),
    "V15 drained": ("worker", {"drained": lambda self: self.step}, "interval_vllm_drains_async"),
    "V14 eager": ("worker", {"is_eager": lambda self, rows: False}, "launch_eager_async"),
    "V14 capture": (
        "worker",
        {"is_eager": lambda self, rows: sum(r.new for r in rows) >= self.costs.max_cudagraph_capture_size},
        "launch_capture_async",
    ),
    "V14 kind": ("worker", {"launch_ms": lambda self, rows: self.costs.decode_ms}, "launch_arrivals_async"),
    "V14 fraction": ("worker", {"eager_floor_ms": no_floor}, "launch_fraction_async"),
    "V14 leave": ("worker", {"leave_ms": lambda self, launch_end_ms: self.flying_end_ms}, "launch_closed_async"),
    "V14 decision": ("worker", {"decision_ms": lambda self, launch_end_ms: launch_end_ms}, "launch_sparse_async"),
    "V14 moves": ("worker", {"launch_next": later_passes}, "launch_long_async"),
    "V14 serial": ("worker", {"emit": parallel}, "launch_detokenizer_async"),
}


@pytest.mark.parametrize("clause", BREAKS)
def test_a_broken_clause_shows(clause: str):
    """Another answer, or none at all."""
    part, members, name = BREAKS[clause]
    assert shows(members, name, part)


def test_least_loaded_would_not_do_without_its_counts():
    """E4: who never loses a request ends up with round robin."""
    router, request = LeastLoaded(2, 2), Request(0, Lengths(9, 0, 9), 0.0, 0.0)
    assert [router.place(request) for _ in range(5)] == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 0)]
