"""A scenario in, the time of every token out."""

from tools.oracle.clients import Dispatcher, make_clients
from tools.oracle.engine import Engine, Pass, Scheduler
from tools.oracle.errors import Stalled
from tools.oracle.events import Clock
from tools.oracle.requests import Request, State
from tools.oracle.scenario import read_scenario
from tools.oracle.schedulers import scheduler_class


def simulate(scenario: dict, *, scheduler: type[Scheduler] | None = None) -> dict:
    """Answer a scenario, given and answered as decoded JSON.

    `scheduler` replaces the backend's class: subclass it, override the method of one clause, and the answer shows what
    that clause is worth. It is called with the scenario's `engine` object. Raises ScenarioError for a scenario that
    cannot be read, is not modelled or holds a request that can never run, and Stalled if a run cannot end.
    """
    asked = read_scenario(scenario)
    calendar = (scheduler or scheduler_class(asked.backend))(asked.engine)
    calendar.refuse_impossible(asked.workload.lengths())
    clock = Clock()
    engine = Engine(calendar, asked.timing, clock, on_done=lambda request: clients.done(request))
    dispatcher = Dispatcher(asked.workload.plane, clock, engine.deliver)
    clients = make_clients(asked.workload, clock, dispatcher)
    clients.start()
    clock.run()
    left = sum(request.state is not State.DONE for request in dispatcher.sent)
    if left:
        raise Stalled(f"{asked.name}: {left} requests can never be scheduled; nothing happens after {clock.now_ms} ms")
    return {
        "name": asked.name,
        "requests": [request_answer(request) for request in dispatcher.sent],
        "passes": [pass_answer(each) for each in engine.passes],
    }


def request_answer(request: Request) -> dict:
    """What the scenario language wants to know of a request."""
    return {
        "request": request.number,
        "dispatch_ms": request.dispatch_ms,
        "visible_ms": request.visible_ms,
        "admitted_ms": request.admitted_ms,
        "isl": request.lengths.isl,
        "prefix": request.lengths.prefix,
        "osl": request.lengths.osl,
        "cached": request.cached,
        "preemptions": request.preemptions,
        "token_ms": request.token_ms,
    }


def pass_answer(each: Pass) -> dict:
    """What the scenario language wants to know of a pass."""
    return {
        "start_ms": each.start_ms,
        "end_ms": each.end_ms,
        "prefill_tokens": each.shape.new,
        "prefill_requests": each.shape.chunks,
        "prefill_kv_tokens": each.shape.past,
        "decode_requests": each.shape.rows,
        "decode_kv_tokens": each.shape.context,
    }
