"""Launch times of vLLM: when the next pass is decided, and when outputs leave and come out (V14).

They move no pass, only what is known: pass k+1 is decided at `max(launch end of k, end of k-1)`, and at that same instant the outputs of k-1 leave. So a
launching rank has one event a pass, `RANK.land_ms`: the outputs held back leave, the sequences of the pass in flight move, though it ends later, and the
next one is formed with all that is visible. `LAUNCH.held` and two of the rank's lists keep the moved outputs until the event after. What leaves goes
through the detokenizer, and a request is done for its client when its last token comes out.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.rank import count_done
from passcal.core.tables import NEVER, State

__all__ = ["come_out", "depart", "drain", "hold", "next_decision", "next_out", "write"]

WHO, TOKENS, LAST = 0, 1, 2  # lists of what is held back: sequence, tokens that it emits, and whether these end it


@jit
def next_decision(state: State, rank: Any, k: int, now: float, before: float) -> float:
    """When the pass after the one just decided is: when that one is launched, and the one before, over at `before`, has ended."""
    own, sums = state.launches[k], state.shape[0]
    if sums.prefill_tokens + sums.decode_requests + sums.draft_tokens > own.capture:
        queued = rank.start_ms + own.eager_fraction * (rank.end_ms - rank.start_ms)
        launched = max(now + own.eager_ms, queued)
    elif sums.prefill_requests > 0:
        launched = now + own.piecewise_ms
    else:
        launched = now + own.decode_ms
    return max(min(launched, rank.end_ms), before)


@jit
def drain(rank: Any) -> None:
    """Nothing can be launched behind the pass in flight: its outputs leave at its end, and all is decided anew there."""
    rank.flying, rank.draining, rank.land_ms = 1, 1, rank.end_ms


@jit
def hold(state: State, k: int, i: int, tokens: int) -> None:
    """Sequence i emits this many tokens in the pass that is moved; they leave at the next event."""
    own, held = state.launches[k], state.lists[k]
    held[WHO, own.held], held[TOKENS, own.held] = i, tokens
    held[LAST, own.held] = state.sequences[i].generated == state.legs[i].osl
    own.held += 1


@jit
def depart(state: State, k: int, now: float) -> None:
    """The outputs held back leave, in row order; the detokenizer takes them one after the other."""
    own, held, outs = state.launches[k], state.lists[k], state.outs
    for j in range(own.held):
        i = held[WHO, j]
        for _ in range(held[TOKENS, j]):
            own.busy_ms = max(own.busy_ms, now) + own.detokenizer_ms
            list_token(state, i, own.busy_ms)
        if held[LAST, j]:
            state.legs[i].done_ms = own.busy_ms
            out = outs[k, (own.first_out + own.outs) % outs.shape[1]]
            out.out_ms, out.request = own.busy_ms, i
            own.outs += 1
    own.held = 0


@jit
def list_token(state: State, i: int, at: float) -> None:
    """A token of sequence i comes out at this instant: its first, or one whose gap is listed."""
    world, request, s = state.world[0], state.legs[i], state.sequences[i]
    if request.first_ms < 0.0:
        request.first_ms = at
    else:
        stall = state.stalls[world.stalls]
        stall.request, stall.from_pass, stall.to_pass = i, s.last_pass, s.last_pass
        stall.gap_ms, stall.end_ms = at - s.last_ms, at
        world.stalls += world.logging
    s.last_ms = at


@jit
def next_out(state: State, k: int) -> float:
    """When the next last token of a request comes out of the detokenizer."""
    own = state.launches[k]
    return 1.0 * state.outs[k, own.first_out].out_ms if own.outs > 0 else NEVER


@jit
def come_out(state: State, k: int, now: float) -> None:
    """Requests whose last token has come out by now are done for their clients."""
    own = state.launches[k]
    while next_out(state, k) <= now:
        request: int = 1 * state.outs[k, own.first_out].request
        own.first_out = (own.first_out + 1) % state.outs.shape[1]
        own.outs -= 1
        state.ranks[k].outstanding -= 1
        count_done(state, request)


@jit
def write(state: State, rank: Any, k: int, out: Any, n: int) -> int:
    """Write what is under way and held back, from position n on; returns the next position."""
    own, held, now = state.launches[k], state.lists[k], state.world[0].now
    out[n], out[n + 1] = max(0.0, rank.end_ms - now), max(0.0, own.busy_ms - now)
    out[n + 2], out[n + 3] = rank.draining, own.held
    n += 4
    for j in range(own.held):
        out[n], out[n + 1] = held[TOKENS, j], held[LAST, j]
        n += 2
    for j in range(own.outs):
        out[n] = state.outs[k, (own.first_out + j) % state.outs.shape[1]].out_ms - now
        n += 1
    return n
