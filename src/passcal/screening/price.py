"""What passes cost."""

from math import ceil, floor
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.tables import TRTLLM

__all__ = ["attention_ms", "chunks_of", "context_sum_ms", "cut_attention_ms", "pass_ms"]


@jit
def pass_ms(c: Any, chunks_ms: float, rows_ms: float) -> float:
    """A pass with these two parts, each with its fixed cost and 0 if absent."""
    if chunks_ms <= 0.0 or rows_ms <= 0.0:
        return chunks_ms + rows_ms
    if c.overlaps > 0.0:
        return max(chunks_ms, rows_ms)
    return chunks_ms + rows_ms - c.saved_ms


@jit
def chunks_of(c: Any, room: float) -> tuple[float, float]:
    """How a prompt is cut where a pass has this room: size of all chunks but the last, and their number.

    TensorRT-LLM cuts to whole units, but a remainder that fits is not cut (T9).
    """
    if c.new <= room:
        return c.new, 1.0
    size = max(room, 1.0)
    if c.calendar == TRTLLM:
        size = max(floor(room / c.unit) * c.unit, 1.0)
        return size, 1.0 + ceil((c.new - room) / size)
    return size, ceil(c.new / size)


@jit
def attention_ms(c: Any, chunk: float, count: float) -> float:
    """Attention of a whole prompt in so many chunks, all but the last of this size."""
    rest = c.new - (count - 1.0) * chunk
    squares = (count - 1.0) * chunk * chunk + rest * rest
    return c.a2 * (c.past * c.new + (c.new * c.new - squares) * 0.5) + c.a3 * squares


@jit
def cut_attention_ms(c: Any, room: float) -> float:
    """The same where every pass has this room."""
    chunk = min(room, c.new)
    return attention_ms(c, chunk, ceil(c.new / chunk))


@jit
def context_sum_ms(c: Any, n: float, more: float) -> float:
    """All decode rows of n requests, their contexts summed, without what passes cost once."""
    return n * more * (c.d1 + c.d2 * (c.isl + c.osl * 0.5))
