"""Comparing states, absolute time left out: when one repeats, the passes between are the limit cycle.

At each landing with completions the state is compared with one kept state, which is renewed at powers of two (Brent). A cheap signature (counts and sums)
is compared first, and the state is written out only where it agrees.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["mark", "may_repeat", "same", "write_list", "write_sequence"]


@jit
def may_repeat(state: State) -> bool:
    """Whether counts and sums agree with the kept state's, so that writing the state out is worth it."""
    rank, kept = state.ranks[len(state.ranks) - 1], state.marks[0]
    if state.world[0].landings == 1:
        return False
    same_crowd = kept.crowd == rank.crowd and kept.crowd_kv == rank.crowd_kv
    return same_crowd and kept.running == rank.running and kept.waiting == rank.waiting


@jit
def same(state: State, length: int) -> bool:
    """Whether the fresh state equals the kept one, but for the rounding of an absolute clock."""
    if length != state.marks[0].length:
        return False
    tolerance = 1e-9 + 1e-13 * state.world[0].now
    for j in range(length):
        if abs(state.fresh[j] - state.kept[j]) > tolerance:
            return False
    return True


@jit
def mark(state: State, row: int, length: int) -> None:
    """Note where the run stands: row 0 for the kept state, row 1 for the one that repeated it; `length` numbers were written."""
    world, rank, here = state.world[0], state.ranks[len(state.ranks) - 1], state.marks[row]
    here.now, here.passes, here.sent, here.length = world.now, world.passes, world.sent, length
    here.crowd, here.crowd_kv, here.running, here.waiting = rank.crowd, rank.crowd_kv, rank.running, rank.waiting


@jit
def write_list(state: State, i: int, timed: bool, out: Any, n: int) -> int:
    while i != NOBODY:
        n = write_sequence(state, i, out, n)
        if timed:
            out[n] = state.legs[i].visible_ms - state.world[0].now
            n += 1
        i = state.sequences[i].after
    return n


@jit
def write_sequence(state: State, i: int, out: Any, n: int) -> int:
    request, s = state.legs[i], state.sequences[i]
    out[n], out[n + 1], out[n + 2] = request.isl, request.prefix, request.osl
    out[n + 3], out[n + 4], out[n + 5], out[n + 6] = s.computed, s.generated, min(request.preemptions, 1), request.most
    return n + 7
