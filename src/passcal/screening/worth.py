"""How far a candidate is gone through before its closed form is used: where that errs, and the state repeats soon."""

from typing import Any

from passcal.core.compiled import jit
from passcal.screening.fused import CHUNKED, CROWDED, RETURNING
from passcal.screening.tables import ALTERNATING
from passcal.screening.wave import PROMPTS, WAVE

__all__ = ["MOST", "worth"]

MOST = 96  # steps


@jit
def worth(c: Any, w: Any) -> int:
    """Steps; 0: none."""
    returns_late = c.think_ms > 0.0
    few = w.n <= 4.0 and c.clients <= c.seats and w.n * c.new > c.budget  # long prompts, whose overlap has no formula
    if few and c.calendar != ALTERNATING:
        return 48
    if w.regime == CROWDED:
        return MOST
    if w.regime == WAVE:
        return 32 if returns_late and c.seats < c.clients < 2.0 * c.seats else 0
    if w.regime == PROMPTS:
        return 32 if returns_late and w.n <= 8.0 else 0
    return 48 if (w.regime == CHUNKED or w.regime == RETURNING) and w.count <= 2.0 else 0
