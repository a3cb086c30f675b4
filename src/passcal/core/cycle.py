"""Comparing states, absolute time left out: when one repeats, the passes between are the limit cycle.

At each landing with completions the state is compared with one kept state, which is renewed at powers of two (Brent). A cheap signature (counts and sums)
is compared first, and the state is written out only where it agrees.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["MARKS", "mark", "may_repeat", "same", "write_crowd", "write_list", "write_sequence"]

# Columns of `marks`: row 0 is the kept state, row 1 the state that repeated it.
MARKS = (
    "now",
    "passes",
    "runs",
    "sent",
    "done",
    "length",
    "crowd",
    "crowd_kv",
    "running",
    "waiting",
    "stalls",
    "preemptions",
)


@jit
def may_repeat(state: State) -> bool:
    """Whether counts and sums agree with the kept state's, so that writing the state out is worth it."""
    rank, kept = state.ranks[0], state.marks[0]
    if state.world[0].landings == 1:
        return False
    return kept[6] == rank.crowd and kept[7] == rank.crowd_kv and kept[8] == rank.running and kept[9] == rank.waiting


@jit
def same(state: State, length: int) -> bool:
    """Whether the fresh state equals the kept one, but for the rounding of an absolute clock."""
    if length != state.marks[0, 5]:
        return False
    tolerance = 1e-9 + 1e-13 * state.world[0].now
    for j in range(length):
        if abs(state.fresh[j] - state.kept[j]) > tolerance:
            return False
    return True


@jit
def mark(state: State, row: int, length: int) -> None:
    world, rank, marks = state.world[0], state.ranks[0], state.marks
    marks[row, 0], marks[row, 1], marks[row, 2], marks[row, 3] = world.now, world.passes, world.runs, world.sent
    marks[row, 4], marks[row, 5] = world.done, length
    marks[row, 6], marks[row, 7], marks[row, 8], marks[row, 9] = rank.crowd, rank.crowd_kv, rank.running, rank.waiting
    marks[row, 10], marks[row, 11] = world.stalls, world.preemptions


@jit
def write_crowd(state: State, rank: Any, k: int, out: Any, n: int) -> int:
    """Rows of the crowd, by passes that they have left."""
    ring, found, ahead = state.bucket_head.shape[1], 0, 0
    while found < rank.crowd:
        ahead += 1
        i = state.bucket_head[k, (rank.number + ahead) % ring]
        while i != NOBODY:
            request = state.requests[i]
            out[n], out[n + 1], out[n + 2], out[n + 3] = ahead, request.isl, request.osl, request.prefix
            n += 4
            found += 1
            i = state.sequences[i].after
    return n


@jit
def write_list(state: State, i: int, timed: bool, out: Any, n: int) -> int:
    while i != NOBODY:
        n = write_sequence(state, i, out, n)
        if timed:
            out[n] = state.requests[i].visible_ms - state.world[0].now
            n += 1
        i = state.sequences[i].after
    return n


@jit
def write_sequence(state: State, i: int, out: Any, n: int) -> int:
    request, s = state.requests[i], state.sequences[i]
    out[n], out[n + 1], out[n + 2] = request.isl, request.prefix, request.osl
    out[n + 3], out[n + 4], out[n + 5] = s.computed, s.generated, min(request.preemptions, 1)
    return n + 6
