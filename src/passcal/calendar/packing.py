"""What the engines share in forming a pass."""

from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = ["add_chunk", "clear_shape"]


@jit
def clear_shape(state: State, decode_requests: int, decode_kv_tokens: int) -> None:
    """Begin the shape of a plan with these decode rows."""
    sums = state.shape[0]
    sums.decode_requests, sums.decode_kv_tokens, sums.draft_tokens = decode_requests, decode_kv_tokens, 0
    sums.prefill_requests, sums.prefill_tokens, sums.prefill_kv_tokens = 0, 0, 0
    sums.prefill_cross, sums.prefill_squares, sums.prefill_partial, sums.recomputed = 0, 0, 0, 0


@jit
def add_chunk(state: State, i: int, new: int, past: int, whole: bool) -> None:
    """Add a chunk of sequence i to the shape of a plan: `new` tokens on top of `past` present ones; `whole`: it is the whole prompt."""
    sums = state.shape[0]
    state.chunks[sums.prefill_requests, 0], state.chunks[sums.prefill_requests, 1] = new, past
    sums.prefill_requests += 1
    sums.prefill_tokens += new
    sums.prefill_kv_tokens += past
    sums.prefill_cross += new * past
    sums.prefill_squares += new * new
    sums.recomputed += max(0, min(past + new, state.sequences[i].reached) - past)
    if not whole:
        sums.prefill_partial += 1
