"""Adapter for timing given as phase callbacks: how long a prefill batch takes, how long a decode batch takes."""

from collections.abc import Callable
from dataclasses import dataclass

from passcal.core.plan import PassShape

__all__ = ["PhaseTiming"]


@dataclass(frozen=True)
class PhaseTiming:
    """A pass priced by the caller's own functions, in milliseconds.

    Attributes:
        prefill_ms: `(batch, mean_isl, mean_prefix)`: `batch` chunks whose mean length is `mean_isl` tokens, of which `mean_prefix` are present already.
        decode_ms: `(batch, mean_context)`: `batch` rows of `mean_context` tokens each, counting the token being written.
        mixed_pass_ms: optional `(ctx_tokens, gen_tokens, isl, osl, prefix)`, used only where every chunk of a mixed pass is a whole prompt
            (a resumed or clipped chunk is not fresh context and prices as the sum): chunk tokens, decode rows, mean prompt length,
            mean context beyond it (at least 1), mean present tokens.
        pure: the functions answer the same for the same arguments, so that answers are kept by shape.

    A pass with both parts costs their sum unless `mixed_pass_ms` applies.
    """

    prefill_ms: Callable[[int, float, float], float]
    decode_ms: Callable[[int, float], float]
    mixed_pass_ms: Callable[[int, int, float, float, float], float] | None = None
    pure: bool = True

    def pass_ms(self, shape: PassShape) -> float:
        """Milliseconds of a pass of this shape, as the callbacks price it."""
        chunks, rows = shape.prefill_requests, shape.decode_requests
        prefill = decode = 0.0
        prefix = shape.prefill_kv_tokens / chunks if chunks else 0.0
        isl = prefix + shape.prefill_tokens / chunks if chunks else 0.0
        context = shape.decode_kv_tokens / rows if rows else 0.0
        if chunks and rows and self.mixed_pass_ms is not None and shape.whole_prompts:
            return self.mixed_pass_ms(shape.prefill_tokens, rows, isl, max(1.0, context - isl), prefix)
        if chunks:
            prefill = self.prefill_ms(chunks, isl, prefix)
        if rows:
            decode = self.decode_ms(rows, context)
        return prefill + decode
