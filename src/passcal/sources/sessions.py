"""Sessions: a lane sends a turn when the one before is done and its think time is over; arrivals are an output.

Lanes that have a turn to send stand in a binary heap, by when they send it, ties by number. A turn is its own request and its calls, which are
dispatched together. Where the client sends only so many requests at a time (`WORLD.most_open`), the heap is its queue.
"""

from passcal.core.compiled import jit
from passcal.core.rank import may_send
from passcal.core.tables import NEVER, State
from passcal.sources.asking import ask

__all__ = ["next_turn", "take_turns"]


@jit
def next_turn(state: State) -> float:
    """When the next turn is sent, if nothing is done before; never, if none is left or the client waits for an answer."""
    return 1.0 * state.lanes[state.thinking[0]].next_ms if may_send(state.world[0]) else NEVER


@jit
def take_turns(state: State, now: float) -> None:
    """Lanes whose turn the landing at hand completed think about the next one; turns whose time has come by now are sent.

    The loop may come here later than a turn's time, though never past an answer: what could be sent before was sent at its time.
    """
    world = state.world[0]
    for k in range(world.gone):
        answered(state, state.turns[state.origins[state.gone[k]]].lane, now)
    free = world.most_open - world.open
    world.open -= world.gone
    while next_turn(state) <= now:
        lane = state.lanes[take_first(state)]
        dispatch = lane.next_ms if free > 0 else now
        turn = state.turns[lane.row].turn
        while lane.row < lane.end and state.turns[lane.row].turn == turn:
            state.origins[world.rows] = lane.row
            world.rows += 1
            ask(state, world.rows - 1, 1 * lane.row, dispatch)
            lane.row += 1
            lane.open += 1
            world.open += 1
            free -= 1


@jit
def answered(state: State, k: int, now: float) -> None:
    """A request of lane k is done; if it was the last of its turn and another one is left, the lane thinks, and joins the heap."""
    world, lane, heap = state.world[0], state.lanes[k], state.thinking
    lane.open -= 1
    if lane.open > 0 or lane.row == lane.end:
        return
    lane.next_ms = now + state.turns[lane.row].think_ms
    at = world.thinking
    world.thinking += 1
    while at > 0 and earlier(state, k, heap[(at - 1) // 2]):
        heap[at] = heap[(at - 1) // 2]
        at = (at - 1) // 2
    heap[at] = k


@jit
def take_first(state: State) -> int:
    """Take the lane that sends first out of the heap."""
    world, heap = state.world[0], state.thinking
    first: int = 1 * heap[0]
    world.thinking -= 1
    last, at, below = 1 * heap[world.thinking], 0, 1
    while below < world.thinking:
        if below + 1 < world.thinking and earlier(state, heap[below + 1], heap[below]):
            below += 1
        if not earlier(state, heap[below], last):
            break
        heap[at] = heap[below]
        at, below = below, 2 * below + 1
    heap[at] = last
    return first


@jit
def earlier(state: State, a: int, b: int) -> bool:
    """Whether lane a sends before lane b."""
    mine, other = state.lanes[a].next_ms, state.lanes[b].next_ms
    return mine < other or (mine == other and a < b)
