"""A closed loop: each client sends its next request when its last one is done. Lengths are dealt in dispatch order."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NEVER, NOBODY, State
from passcal.sources.asking import ask

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
        world.spare = state.sequences[i * world.stages].after
    ask(state, i, 1 * world.dealt, dispatch)
    world.dealt = (world.dealt + 1) % len(state.shapes)


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
