"""A client dispatches a request: its rows are written, and it stands in the inbox."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.rank import post
from passcal.core.tables import NOBODY, State
from passcal.core.tandem_tables import FIRST_DECODE_PASS

__all__ = ["ask"]


@jit
def ask(state: State, i: int, row: int, dispatch: float) -> None:
    """Dispatch request i, with the lengths of this row of the shapes."""
    world, request, shape = state.world[0], state.requests[i], state.shapes[row]
    request.dispatch_ms = dispatch
    request.visible_ms = dispatch + world.turnaround_ms + shape.isl * world.ingest_ms
    if shape.vision > 0:
        request.visible_ms += world.encoder_ms
    request.admitted_ms = request.first_ms = request.done_ms = -1.0
    request.isl, request.prefix, request.osl, request.most = shape.isl, shape.prefix, shape.osl, shape.most
    request.group, request.shared, request.pinned = shape.group, shape.shared, shape.pinned
    request.preemptions, request.cached, request.vision = 0, 0, shape.vision
    begin(state.sequences[i * world.stages])
    if world.stages > 1:
        for leg in range(world.stages):
            write_leg(state, request, i, leg)
        for hop in range(world.stages - 1):
            write_hand(state, request, i * (world.stages - 1) + hop, hop)
    post(state, i * world.stages)


@jit
def begin(s: Any) -> None:
    """A sequence without anything."""
    s.computed, s.generated, s.given, s.reached = 0, 0, 0, 0
    s.after, s.before, s.slot = NOBODY, NOBODY, NOBODY


@jit
def write_leg(state: State, request: Any, i: int, leg: int) -> None:
    """What request i is at a stage: vision tokens for an encoder, a prompt with one output, and the whole output at the last one, where its KV may
    come with it (D1).
    """
    world = state.world[0]
    row = i * world.stages + leg
    own, s = state.legs[row], state.sequences[row]
    own.dispatch_ms, own.visible_ms = request.dispatch_ms, request.visible_ms
    own.admitted_ms = own.first_ms = own.done_ms = -1.0
    own.isl, own.prefix, own.osl, own.most = request.isl, request.prefix, 1, 1
    own.group, own.shared, own.pinned = request.group, request.shared, NOBODY
    own.preemptions, own.cached, own.vision = 0, 0, request.vision
    begin(s)
    s.held, s.registered, s.known = 0, 0, 0
    if leg < world.stages - 1 and state.hops[leg].fresh:
        own.isl, own.prefix, own.group, own.shared = request.vision, 0, NOBODY, 0
    elif leg == world.stages - 1 and state.hops[leg - 1].fresh:
        own.osl, own.most, own.pinned = request.osl, request.most, request.pinned
    elif leg == world.stages - 1:
        outputs = 0 if state.hops[leg - 1].first_token == FIRST_DECODE_PASS else 1
        own.osl, own.most, own.prefix = request.osl, request.most, 0
        s.generated, s.computed = outputs, request.isl - 1 + outputs


@jit
def write_hand(state: State, request: Any, row: int, hop: int) -> None:
    """A hand-off that has not begun."""
    hand = state.hands[row]
    hand.asked_ms = hand.granted_ms = hand.start_ms = hand.end_ms = -1.0
    hand.sent = min(request.prefix, request.isl - 1) if state.hops[hop].missing else 0  # of vision tokens none is
    hand.open, hand.ready, hand.owed, hand.left = 0, 0, 0, 0
    hand.staged_head = hand.staged_tail = NOBODY
