"""Linear timing: coefficients on the sufficient statistics of a pass. Also the tests' clock."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from passcal.core.compiled import jit
from passcal.core.plan import PassShape
from passcal.errors import SpecError
from passcal.timing.base import COMBINE, FORM, LINEAR

__all__ = ["LinearTiming", "price"]


@jit
def price(form: Any, captured: Any, shape: Any) -> float:
    """Milliseconds of a pass: `form` a FORM row, `captured` the padded row counts, `shape` a SHAPE row."""
    prefill, decode = 0.0, 0.0
    if shape.prefill_requests > 0:
        prefill = (
            form.a0 + form.a1 * shape.prefill_tokens + form.a2 * shape.prefill_cross + form.a3 * shape.prefill_squares
        )
    if shape.decode_requests > 0:
        decode = decode_price(form, captured, shape.decode_requests + shape.draft_tokens, shape.decode_kv_tokens)
    if shape.prefill_requests == 0 or shape.decode_requests == 0 or form.combine == 0:
        return prefill + decode
    if form.combine == 1:
        return max(prefill, decode)
    return prefill + decode - min(form.a0, form.d0)


@jit
def decode_price(form: Any, captured: Any, rows: int, context: int) -> float:
    """Milliseconds of the decode part: `rows` query tokens, one a row but for drafts, on contexts of `context` tokens in all."""
    if form.captured > 0 and rows <= captured[form.captured - 1]:
        at = 0
        while captured[at] < rows:
            at += 1
        rows = captured[at]
    return form.d0 + form.d1 * rows + form.d2 * context


def _coefficients(name: str, given: tuple[float, ...], least: int, most: int) -> tuple[float, ...]:
    try:
        values = tuple(given)
    except TypeError:
        raise SpecError(f"{name}={given!r}: must be a sequence of coefficients, in ms; write ({given!r},)") from None
    if not least <= len(values) <= most:
        raise SpecError(f"{name}={values}: {least} to {most} coefficients are needed; see LinearTiming")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise SpecError(f"{name}={values}: coefficients must be finite and not negative; correct {value!r}")
    return tuple(float(v) for v in values) + (0.0,) * (most - len(values))


@dataclass(frozen=True)
class LinearTiming:
    """A pass priced by coefficients, in milliseconds.

    Attributes:
        prefill: (a0, a1, a2, a3), for a pass with chunks `a0 + a1 sum(new) + a2 sum(new * past) + a3 sum(new^2)`; trailing ones may be left out.
        decode: (d0, d1, d2), for a pass with decode rows `d0 + d1 rows + d2 sum(context)`, contexts counting the tokens being written; a row
            that verifies drafts counts as one row and one for each draft.
        combine: of a pass with both, `"sum"`, `"max"` (they overlap), or `"shared"` (the weights are read once: the smaller fixed part is not paid).
        capture_sizes: row counts of captured graphs, ascending: decode rows are padded up to the next one; beyond the last they are not.
        gpus: GPUs that such a pass runs on (tensor times pipeline parallelism); no price depends on it, figures per GPU do (E3).

    Raises:
        SpecError: a coefficient is negative, NaN or infinite, or there are too few or too many.
    """

    prefill: tuple[float, ...] = (5.0, 0.02, 1e-6, 0.0)
    decode: tuple[float, ...] = (8.0, 0.05, 2e-6)
    combine: Literal["sum", "max", "shared"] = "sum"
    capture_sizes: tuple[int, ...] = ()
    gpus: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefill", _coefficients("prefill", self.prefill, 1, 4))
        object.__setattr__(self, "decode", _coefficients("decode", self.decode, 1, 3))
        if self.combine not in COMBINE:
            raise SpecError(f"combine={self.combine!r}: must be one of {', '.join(COMBINE)}")
        sizes = tuple(int(s) for s in self.capture_sizes)
        if any(s <= 0 for s in sizes) or list(sizes) != sorted(set(sizes)):
            raise SpecError(f"capture_sizes={sizes}: must be positive and ascending; sort them and drop repeats")
        object.__setattr__(self, "capture_sizes", sizes)
        if isinstance(self.gpus, bool) or not isinstance(self.gpus, int) or self.gpus < 1:
            raise SpecError(f"gpus={self.gpus!r}: must be a whole number, at least 1; count what one pass runs on")

    def pass_ms(self, shape: PassShape) -> float:
        """Milliseconds of a pass of this shape."""
        prefill = decode = 0.0
        if shape.prefill_requests:
            a0, a1, a2, a3 = self.prefill
            cross, squares = sum(new * past for new, past in shape.chunks), sum(new * new for new, _ in shape.chunks)
            prefill = a0 + a1 * shape.prefill_tokens + a2 * cross + a3 * squares
        if shape.decode_requests:
            d0, d1, d2 = self.decode
            rows = next((size for size in self.capture_sizes if size >= shape.decode_tokens), shape.decode_tokens)
            decode = d0 + d1 * rows + d2 * shape.decode_kv_tokens
        if not (shape.prefill_requests and shape.decode_requests) or self.combine == "sum":
            return prefill + decode
        if self.combine == "max":
            return max(prefill, decode)
        return prefill + decode - min(self.prefill[0], self.decode[0])

    def kernel_form(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """See `KernelTiming`."""
        captured = np.array(self.capture_sizes or (0,), np.int64)
        row = (LINEAR, COMBINE[self.combine], *self.prefill, *self.decode, len(self.capture_sizes))
        return np.array([row], FORM), captured
