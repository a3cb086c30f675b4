"""Equal workers and the way to them."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.oracle.disaggregated import Pool
from tools.oracle.engine import HostLoop, Launch, Pass, Scheduler, Worker
from tools.oracle.errors import ScenarioError
from tools.oracle.events import Clock
from tools.oracle.launching import LaunchingWorker
from tools.oracle.requests import Lengths, Request
from tools.oracle.routing import ROUTERS, Place, Router
from tools.oracle.schedulers import scheduler_class
from tools.oracle.selecting import SelectingWorker


@dataclass(frozen=True, slots=True)
class Parts:
    """The classes that a run is made of; None stands for what the scenario asks for."""

    scheduler: type[Scheduler] | None = None
    worker: type[Worker] | None = None
    router: type[Router] | None = None


class Deployment:
    """Equal workers; each request goes to one rank of one of them at the instant at which it becomes visible (E4)."""

    def __init__(self, router: Router, on_done: Callable[[Request], None]) -> None:
        self.router, self.on_done = router, on_done
        self.workers: list[Worker] = []

    def deliver(self, request: Request) -> None:
        """A request became visible."""
        self.place(request)
        self.enter(request)

    def place(self, request: Request) -> None:
        """Choose where a request goes."""
        request.worker, request.rank = self.router.place(request)

    def enter(self, request: Request) -> None:
        """Its scheduler sees it."""
        self.workers[request.worker].deliver(request, request.rank)

    def done(self, request: Request) -> None:
        """A request has its last token."""
        self.router.done(request, (request.worker, request.rank))
        self.on_done(request)

    def scheduler(self, place: Place) -> Scheduler:
        """That of a rank."""
        worker, rank = place
        return self.workers[worker].ranks[rank]

    def engine_of(self, request: Request) -> int:
        """Engines are numbered through: worker by worker, rank by rank."""
        return self.workers[request.worker].first + request.rank

    def stages(self, request: Request) -> dict:
        """There is one, and nothing to tell of it."""
        return {}

    def passes(self) -> list[Pass]:
        """In order of their start, ties by engine."""
        every = [each for worker in self.workers for each in worker.passes]
        return sorted(every, key=lambda each: (each.start_ms, each.engine))


WORKERS: dict[type, type[Worker]] = {Launch: LaunchingWorker, HostLoop: SelectingWorker}


def worker_class(scheduler: Scheduler) -> type[Worker]:
    """The worker for what a scheduler's host takes."""
    return WORKERS.get(type(scheduler.host_times), Worker)


def refuse_unknown_ranks(lengths: Iterable[Lengths], ranks: int) -> None:
    """E4: nobody can go to a rank that is not there."""
    for each in lengths:
        if each.data_parallel_rank is not None and each.data_parallel_rank >= ranks:
            raise ScenarioError(f"data_parallel_rank {each.data_parallel_rank}: a worker has {ranks}, numbered from 0")


def refuse_interval(engine: object) -> None:
    """S14: an idle round jumps to the next arrival, and of several workers nobody knows whose that is."""
    if isinstance(engine, dict) and engine.get("prefill_decode_interval"):
        raise ScenarioError("deployment: prefill_decode_interval is not modelled with several workers")


def deploy(
    pool: Pool, routing: str, lengths: list[Lengths], clock: Clock, on_done: Callable[[Request], None], parts: Parts
) -> Deployment:
    """Build the workers of a pool, for such requests, or refuse them."""
    make = parts.scheduler or scheduler_class(pool.backend)
    one = make(pool.engine)
    one.refuse_impossible(lengths)
    refuse_unknown_ranks(lengths, one.ranks)
    if pool.workers > 1:
        refuse_interval(pool.engine)
    make_worker = parts.worker or worker_class(one)
    router = (parts.router or ROUTERS[routing])(pool.workers, one.ranks, one.ranks_by_tokens)
    deployment = Deployment(router, on_done)
    deployment.workers = [
        make_worker(index, [make(pool.engine) for _ in range(one.ranks)], pool.timing, clock, deployment.done)
        for index in range(pool.workers)
    ]
    return deployment
