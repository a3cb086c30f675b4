"""What passes cost, and mixtures of latencies."""

from math import ceil, floor
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.tables import TRTLLM

__all__ = ["attention_ms", "chunks_of", "context_sum_ms", "cut_attention_ms", "level", "pass_ms", "put", "sort_atoms"]


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


@jit
def put(atoms: Any, at: int, weight: float, low: float, high: float) -> None:
    """Row `at` of a mixture: this weight, spread evenly from low to high."""
    atoms[at, 0], atoms[at, 1], atoms[at, 2] = weight, low, high


@jit
def sort_atoms(atoms: Any, count: int) -> None:
    """Rows of a mixture by their middle."""
    for a in range(1, count):
        weight, low, high, b = atoms[a, 0], atoms[a, 1], atoms[a, 2], a
        while b > 0 and atoms[b - 1, 1] + atoms[b - 1, 2] > low + high:
            put(atoms, b, atoms[b - 1, 0], atoms[b - 1, 1], atoms[b - 1, 2])
            b -= 1
        put(atoms, b, weight, low, high)


@jit
def level(atoms: Any, count: int, share: float) -> float:
    """The quantile of a sorted mixture."""
    total, below = 0.0, 0.0
    for a in range(count):
        total += atoms[a, 0]
    want = share * total * (1.0 - 1e-9)
    for a in range(count):
        weight = atoms[a, 0]
        if weight > 0.0 and below + weight >= want:
            return atoms[a, 1] + max(want - below, 0.0) / weight * (atoms[a, 2] - atoms[a, 1])
        below += weight
    return atoms[count - 1, 2]
