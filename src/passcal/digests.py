"""What the points of a sweep depend on, as digests by name, so that what changed can be named."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from passcal.core.compiled import kernel_stamp
from passcal.core.plan import PassShape
from passcal.points import Points, Priced
from passcal.timing.base import KernelTiming

__all__ = ["inputs_of"]

PROBES = (  # passes that a model without a formula is asked about: chunks (tokens, what is cached), rows, their contexts
    (((1024, 0),), 0, 0),
    (((256, 768), (100, 0)), 0, 0),
    ((), 16, 16 * 1500),
    ((), 1, 300),
    (((512, 512),), 8, 8 * 777),
)


def inputs_of(table: str, points: Points, workload: object, kept: str) -> dict[str, str]:
    """Digests of what a point's record depends on, by name.

    Args:
        table: the candidates as text.
        points: their timing models.
        workload: what no column says.
        kept: what is kept of a report, as text.
    """
    return {
        "candidates": digest(table),
        "workload": digest(described(workload)),
        "timing": digest(f"{list(map(priced, points.timings))} {points.timing_of}"),
        "sla": digest(kept),
        "version": kernel_stamp(),
    }


def digest(text: str) -> str:
    """Sixteen characters for any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def described(value: Any) -> str:
    """A spec as text, arrays in full."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.tolist()}"
    fields = getattr(type(value), "model_fields", None)
    if fields is None:
        return repr(value)
    return f"{type(value).__name__}({', '.join(f'{name}={described(getattr(value, name))}' for name in fields)})"


def priced(timing: Priced) -> str:
    """A timing as text: of each of its models the formula, or else what it says of a few passes."""
    if isinstance(timing, Mapping):
        return str({name: priced(model) for name, model in timing.items()})
    if isinstance(timing, KernelTiming):
        form, captured = timing.kernel_form()
        return f"{form.tolist()} {captured.tolist()} {getattr(timing, 'gpus', 1)}"
    told = [timing.pass_ms(PassShape.of(chunks, rows, context)) for chunks, rows, context in PROBES]
    return f"{type(timing).__name__} {told} {getattr(timing, 'gpus', 1)}"
