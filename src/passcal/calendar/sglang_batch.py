"""What the parts of SGLang's calendar share: the batch of a pass, and places of requests.

A batch is a row of `state.lists`: how many rows it has, how many of them are prompts, the prompt among them that goes on in a later pass (or
nobody), and from HEADER on the rows in order (S3). There are two, for the pass in flight and the one that is planned.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import State

__all__ = [
    "CLIP",
    "DECODE",
    "DROPPED",
    "EXTEND",
    "HEADER",
    "LISTED",
    "NONE",
    "UPTO",
    "WAITING",
    "add_row",
    "ceil",
    "kept_tokens",
    "reserved",
]

HEADER = 3
UPTO = 4  # and 5: up to which token the prompts of each are computed
NONE, EXTEND, DECODE = 0, 1, 2  # kinds of a round's pass
WAITING, LISTED, DROPPED = (
    0,
    1,
    2,
)  # places: in the queue; in running, or in a batch that joins it; in neither, its last token in flight
CLIP = 4096  # outputs beyond this are not reserved


@jit
def ceil(tokens: int, page: int) -> int:
    """Tokens of the whole pages that hold these."""
    return (tokens + page - 1) // page * page


@jit
def add_row(state: State, rank: Any, s: Any, k: int, i: int) -> None:
    """Put request i in the batch that is planned."""
    state.lists[k, s.slot, HEADER + s.rows] = i
    s.rows += 1
    state.sglang_lives[i].launched = rank.number + 1


@jit
def kept_tokens(state: State, s: Any, i: int) -> int:
    """Tokens of KV that request i has taken: those of its pages, and no less than a hand-off holds from its grant on (D6)."""
    return max(ceil(state.sequences[i].computed, s.page), 1 * state.sequences[i].held)


@jit
def reserved(state: State, i: int) -> int:
    """Outputs that are reserved for request i: what it may still emit, as far as seen (S4, S6)."""
    return min(state.sglang_lives[i].limit - state.sequences[i].generated, CLIP)
