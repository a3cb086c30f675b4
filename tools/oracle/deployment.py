"""All workers of a scenario and the way to them."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tools.oracle.engine import HostLoop, Launch, Pass, Scheduler, Worker
from tools.oracle.errors import ScenarioError
from tools.oracle.events import Clock
from tools.oracle.launching import LaunchingWorker
from tools.oracle.requests import Lengths, Request
from tools.oracle.routing import ROUTERS, Router
from tools.oracle.scenario import Scenario
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

    def __init__(self, workers: Sequence[Worker], router: Router) -> None:
        self.workers, self.router = workers, router

    def deliver(self, request: Request) -> None:
        """A request became visible."""
        worker, request.rank = self.router.place(request)
        request.worker = worker
        self.workers[worker].deliver(request, request.rank)

    def done(self, request: Request) -> None:
        """A request has its last token."""
        self.router.done(request, (request.worker, request.rank))

    def engine_of(self, request: Request) -> int:
        """Engines are numbered through: worker by worker, rank by rank."""
        return self.workers[request.worker].first + request.rank

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


def deploy(asked: Scenario, clock: Clock, on_done: Callable[[Request], None], parts: Parts) -> Deployment:
    """Build what a scenario describes, or refuse it."""
    make = parts.scheduler or scheduler_class(asked.backend)
    one = make(asked.engine)
    one.refuse_impossible(asked.workload.lengths())
    refuse_unknown_ranks(asked.workload.lengths(), one.ranks)
    if asked.replicas > 1 and isinstance(asked.engine, dict) and asked.engine.get("prefill_decode_interval"):
        raise ScenarioError("deployment: replicas with prefill_decode_interval are not modelled")
    make_worker = parts.worker or worker_class(one)
    workers = [
        make_worker(index, [make(asked.engine) for _ in range(one.ranks)], asked.timing, clock, on_done)
        for index in range(asked.replicas)
    ]
    router = (parts.router or ROUTERS[asked.routing])(asked.replicas, one.ranks, one.ranks_by_tokens)
    return Deployment(workers, router)
