"""A scenario in, the time of every token out."""

from tools.oracle.clients import Dispatcher, make_clients
from tools.oracle.deployment import Deployment, Parts
from tools.oracle.engine import Pass, Scheduler, Worker
from tools.oracle.errors import Stalled
from tools.oracle.events import Clock
from tools.oracle.requests import Request, State
from tools.oracle.routing import Router
from tools.oracle.scenario import read_scenario
from tools.oracle.stages import build
from tools.oracle.tandem import Tandem


def simulate(
    scenario: dict,
    *,
    scheduler: type[Scheduler] | None = None,
    worker: type[Worker] | None = None,
    router: type[Router] | None = None,
) -> dict:
    """Answer a scenario, given and answered as decoded JSON.

    `scheduler`, `worker` and `router` replace the class that the scenario asks for: subclass it, override the method of
    one clause, and the answer shows what that clause is worth. Raises ScenarioError for a scenario that cannot be read,
    is not modelled or holds a request that can never run, and Stalled if a run cannot end.
    """

    asked = read_scenario(scenario)
    clock = Clock()
    deployment = build(asked, clock, lambda request: clients.done(request), Parts(scheduler, worker, router))
    dispatcher = Dispatcher(asked.workload.plane, clock, deployment.deliver)
    clients = make_clients(asked.workload, clock, dispatcher)
    clients.start()
    clock.run()
    left = sum(request.state is not State.DONE for request in dispatcher.sent)
    if left:
        raise Stalled(f"{asked.name}: {left} requests can never be scheduled; nothing happens after {clock.now_ms} ms")
    return {
        "name": asked.name,
        "requests": [request_answer(request, deployment) for request in dispatcher.sent],
        "passes": [pass_answer(each) for each in deployment.passes()],
    }


def request_answer(request: Request, deployment: Deployment | Tandem) -> dict:
    """What the scenario language wants to know of a request."""
    return {
        "request": request.number,
        "engine": deployment.engine_of(request),
        **({} if request.arrival_ms is None else {"arrival_ms": request.arrival_ms}),
        "dispatch_ms": request.dispatch_ms,
        "visible_ms": request.visible_ms,
        "admitted_ms": request.admitted_ms,
        "isl": request.lengths.isl,
        "prefix": request.lengths.prefix,
        "osl": request.lengths.osl,
        "cached": request.cached,
        "preemptions": request.preemptions,
        **deployment.stages(request),
        "token_ms": request.token_ms,
    }


def pass_answer(each: Pass) -> dict:
    """What the scenario language wants to know of a pass."""
    return {
        "engine": each.engine,
        "start_ms": each.start_ms,
        "end_ms": each.end_ms,
        "prefill_tokens": each.shape.new,
        "prefill_requests": each.shape.chunks,
        "prefill_kv_tokens": each.shape.past,
        "decode_requests": each.shape.rows,
        "decode_kv_tokens": each.shape.context,
    }
