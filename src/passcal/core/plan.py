"""The shape of a pass: what a timing model prices, as Python sees it and as the kernel keeps it."""

from typing import NamedTuple

import numpy as np

__all__ = ["SHAPE", "PassShape"]

SHAPE = np.dtype(
    [
        ("prefill_requests", "i8"),
        ("prefill_tokens", "i8"),
        ("prefill_kv_tokens", "i8"),
        ("prefill_cross", "i8"),
        ("prefill_squares", "i8"),
        ("prefill_partial", "i8"),
        ("recomputed", "i8"),  # of prefill_tokens: computed once before, and lost to an eviction
        ("decode_requests", "i8"),
        ("decode_kv_tokens", "i8"),
        ("draft_tokens", "i8"),
    ]
)


class PassShape(NamedTuple):
    """What one pass carries, named as engine step metrics name it.

    Attributes:
        prefill_requests: prompt chunks.
        prefill_tokens: tokens that the chunks compute, `sum(new)`.
        prefill_kv_tokens: tokens already present under the chunks, `sum(past)`.
        decode_requests: decode rows, one token each and their drafts.
        decode_kv_tokens: sum of the rows' contexts, each counting the tokens being written.
        chunks: `((new, past), ...)`, one pair a chunk, in batch order.
        whole_prompts: no chunk is a clipped or resumed piece of its prompt.
        draft_tokens: drafts that the decode rows verify (V16).
    """

    prefill_requests: int = 0
    prefill_tokens: int = 0
    prefill_kv_tokens: int = 0
    decode_requests: int = 0
    decode_kv_tokens: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    whole_prompts: bool = True
    draft_tokens: int = 0

    @property
    def decode_tokens(self) -> int:
        """Query tokens of the decode rows: one each, and their drafts."""
        return self.decode_requests + self.draft_tokens

    @classmethod
    def of(
        cls, chunks: tuple[tuple[int, int], ...] = (), decode_requests: int = 0, decode_kv_tokens: int = 0
    ) -> "PassShape":
        """The shape of these chunks and decode rows."""
        new, past = sum(c[0] for c in chunks), sum(c[1] for c in chunks)
        return cls(len(chunks), new, past, decode_requests, decode_kv_tokens, tuple(chunks))
