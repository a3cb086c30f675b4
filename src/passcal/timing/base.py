"""What a timing model is, and how one enters the kernel.

A timing model answers `pass_ms(shape)`. If it also has `kernel_form()`, the kernel prices passes inside, at a few nanoseconds
each; any other model is asked by Python pass by pass, and its answers are kept by shape when it says that it is `pure`.
"""

from typing import Any, Protocol, runtime_checkable

import numpy as np

from passcal.core.plan import PassShape

__all__ = ["ASK", "COMBINE", "FORM", "LINEAR", "KernelTiming", "TimingModel"]

ASK, LINEAR = 0, 1
COMBINE = {"sum": 0, "max": 1, "shared": 2}

FORM = np.dtype(
    [
        ("kind", "i8"),
        ("combine", "i8"),
        ("a0", "f8"),
        ("a1", "f8"),
        ("a2", "f8"),
        ("a3", "f8"),
        ("d0", "f8"),
        ("d1", "f8"),
        ("d2", "f8"),
        ("captured", "i8"),
    ]
)


@runtime_checkable
class TimingModel(Protocol):
    """Anything that prices a pass."""

    def pass_ms(self, shape: PassShape) -> float:
        """Milliseconds that a pass of this shape takes; finite and not negative."""
        ...


@runtime_checkable
class KernelTiming(TimingModel, Protocol):
    """A timing model whose formula the kernel evaluates itself."""

    def kernel_form(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """One `FORM` row, and the ascending captured row counts (empty: rows are not padded)."""
        ...
