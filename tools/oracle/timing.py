"""The price of a pass: formulas over its shape."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from tools.oracle.fields import Fields
from tools.oracle.requests import Row


@dataclass(slots=True)
class Shape:
    """All that a price may depend on: sums over the chunks and over the decode rows of a pass."""

    chunks: int = 0
    new: int = 0
    past: int = 0
    new_past: int = 0
    new_square: int = 0
    rows: int = 0
    drafts: int = 0  # tokens of the decode rows beyond one a row
    context: int = 0  # tokens being written count

    @classmethod
    def of(cls, rows: Iterable[Row]) -> "Shape":
        """Sum the rows of a pass up."""
        shape = cls()
        for row in rows:
            if row.is_decode:
                shape.rows += 1
                shape.drafts += row.drafts
                shape.context += row.past + row.new
            else:
                shape.chunks += 1
                shape.new += row.new
                shape.past += row.past
                shape.new_past += row.new * row.past
                shape.new_square += row.new * row.new
        return shape


class Timing(Protocol):
    """Anything that can price a pass."""

    def pass_ms(self, shape: Shape) -> float:
        """How long a pass of this shape takes."""


@dataclass(frozen=True, slots=True)
class Linear:
    """Linear in the sums, `decode` in the tokens of the rows; `combine` says how the chunks' part and the rows' part make one pass."""

    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    combine: str

    def pass_ms(self, shape: Shape) -> float:
        """Price both parts, then combine them; `shared` pays the smaller fixed part only once."""
        a0, a1, a2, a3 = self.prefill
        d0, d1, d2 = self.decode
        chunks = a0 + a1 * shape.new + a2 * shape.new_past + a3 * shape.new_square if shape.chunks else 0.0
        rows = d0 + d1 * (shape.rows + shape.drafts) + d2 * shape.context if shape.rows else 0.0
        if self.combine == "max":
            return max(chunks, rows)
        if self.combine == "shared" and shape.chunks and shape.rows:
            return chunks + rows - min(a0, d0)
        return chunks + rows


@dataclass(frozen=True, slots=True)
class Phase:
    """Quadratic in the new prompt tokens, linear in the rows and their mean context, with a floor for decoding."""

    prefill: tuple[float, ...]
    decode: tuple[float, ...]
    floor: float

    def pass_ms(self, shape: Shape) -> float:
        """The two phases add."""
        c0, c1, c2 = self.prefill
        d0, d1, d2 = self.decode
        chunks = c0 + c1 * shape.new + c2 * shape.new**2 if shape.chunks else 0.0
        rows = max(self.floor, d0 + d1 * shape.rows + d2 * shape.context / shape.rows) if shape.rows else 0.0
        return chunks + rows


def read_timing(value: object) -> Timing:
    """Parse the timing of a scenario."""
    fields = Fields(value, "timing")
    if fields.choice("kind", ("linear", "phase")) == "linear":
        combine = fields.choice("combine", ("sum", "max", "shared"), "sum")
        timing: Timing = Linear(fields.numbers("prefill", 4), fields.numbers("decode", 3), combine)
    else:
        timing = Phase(fields.numbers("prefill", 3), fields.numbers("decode", 3), fields.number("floor"))
    fields.close()
    return timing
