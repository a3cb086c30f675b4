"""A client dispatches a request: its row is written, and it stands in the inbox."""

from passcal.core.compiled import jit
from passcal.core.rank import post
from passcal.core.tables import NOBODY, State

__all__ = ["ask"]


@jit
def ask(state: State, i: int, row: int, dispatch: float) -> None:
    """Dispatch request i, with the lengths of this row of the shapes."""
    world, request, s, shape = state.world[0], state.requests[i], state.sequences[i], state.shapes[row]
    request.dispatch_ms = dispatch
    request.visible_ms = dispatch + world.turnaround_ms + shape.isl * world.ingest_ms
    request.admitted_ms = request.first_ms = request.done_ms = -1.0
    request.isl, request.prefix, request.osl, request.most = shape.isl, shape.prefix, shape.osl, shape.most
    request.group, request.shared, request.pinned = shape.group, shape.shared, shape.pinned
    request.preemptions, request.cached = 0, 0
    s.computed, s.generated, s.given, s.reached = 0, 0, 0, 0
    s.after, s.before, s.slot = NOBODY, NOBODY, NOBODY
    post(state, i)
