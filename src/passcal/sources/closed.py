"""A closed loop: each client sends its next request when its last one is done. Lengths are dealt in dispatch order."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.rank import post
from passcal.core.tables import NEVER, NOBODY, State

__all__ = ["born", "next_birth", "send"]


@jit
def send(state: State, dispatch: float) -> None:
    """A client dispatches the next request of the run, if any is left to send; first requests of clients are kept for them."""
    world = state.world[0]
    if world.sent + world.unborn == world.limit:
        return
    world.sent += 1
    if world.spare == NOBODY:
        i = world.rows
        world.rows += 1
    else:
        i = world.spare
        world.spare = state.sequences[i].after
    request, s, shape = state.requests[i], state.sequences[i], state.shapes[world.dealt]
    world.dealt = (world.dealt + 1) % len(state.shapes)
    request.dispatch_ms = dispatch
    request.visible_ms = dispatch + world.turnaround_ms + shape.isl * world.ingest_ms
    request.admitted_ms = request.first_ms = request.done_ms = -1.0
    request.isl, request.prefix, request.osl, request.most = shape.isl, shape.prefix, shape.osl, shape.most
    request.group, request.shared, request.pinned = shape.group, shape.shared, shape.pinned
    request.preemptions, request.cached = 0, 0
    s.computed, s.generated, s.given, s.reached = 0, 0, 0, 0
    s.after, s.before, s.slot = NOBODY, NOBODY, NOBODY
    post(state, i)


@jit
def next_birth(world: Any) -> float:
    """When the next client sends its first request; never, if all have."""
    return (world.clients - world.unborn) * world.stagger_ms if world.unborn > 0 else NEVER


@jit
def born(state: State, now: float) -> None:
    """Clients whose turn has come by now send their first requests."""
    world = state.world[0]
    while world.unborn > 0 and next_birth(world) <= now:
        at = next_birth(world)
        world.unborn -= 1
        send(state, at)
