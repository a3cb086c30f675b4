"""A distribution as weighted atoms: exact mean, exact quantiles."""

import math
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from passcal.errors import SpecError

__all__ = ["Distribution"]

Array = np.ndarray[Any, Any]


class Distribution:
    """Weighted values, in the unit of what they measure (milliseconds throughout passcal).

    Args:
        values: shape (n,).
        weights: shape (n,), not negative; None: each counts once.

    An empty distribution (nothing was measured, as TPOT of one-token outputs) answers NaN.
    """

    def __init__(self, values: Any, weights: Any = None) -> None:
        self._values = np.asarray(values, np.float64)
        self._weights: Array | None = None
        if weights is None:
            return
        counts = np.asarray(weights)
        if counts.shape != self._values.shape:
            raise SpecError(f"weights have shape {counts.shape}: must be {self._values.shape}, one a value")
        if not counts.size:
            return
        low, high = counts.min(), counts.max()
        if not (low >= 0 and high < np.inf):
            raise SpecError(f"weights from {low} to {high}: must be finite and not negative; correct them")
        if low == 0:  # what does not count is not there
            self._values, counts = self._values[counts > 0], counts[counts > 0]
        self._weights = counts

    @classmethod
    def mix(cls, parts: Sequence["Distribution"]) -> "Distribution":
        """The mixture of the parts, each with the same share."""
        if len(parts) == 1:
            return parts[0]
        shares = [part.weights / part.count for part in parts if part.count]
        if not shares:
            return cls([])
        return cls(np.concatenate([part.values for part in parts if part.count]), np.concatenate(shares))

    @property
    def values(self) -> Array:
        """The atoms, in no particular order."""
        return self._values

    @property
    def weights(self) -> Array:
        """How much each atom counts."""
        return np.ones(len(self._values), np.int64) if self._weights is None else self._weights

    @cached_property
    def count(self) -> float:
        """Sum of the weights: how many were measured."""
        return float(len(self._values) if self._weights is None else self._weights.sum())

    @cached_property
    def mean(self) -> float:
        """The weighted mean; NaN if empty."""
        if not self.count:
            return float("nan")
        total = self._values if self._weights is None else self._values * self._weights
        return float(total.sum()) / self.count

    @cached_property
    def std(self) -> float:
        """The weighted standard deviation; NaN if empty."""
        if not self.count:
            return float("nan")
        return float(np.sqrt(np.dot((self._values - self.mean) ** 2, self.weights) / self.count))

    @cached_property
    def min(self) -> float:
        """The smallest value; NaN if empty."""
        return float(self._values.min()) if self.count else float("nan")

    @cached_property
    def max(self) -> float:
        """The largest value; NaN if empty."""
        return float(self._values.max()) if self.count else float("nan")

    @cached_property
    def _sorted(self) -> tuple[Array, Array | None]:
        if self._weights is None:
            return np.sort(self._values), None
        order = np.argsort(self._values)
        self._values, self._weights = (
            self._values[order],
            self._weights[order],
        )  # one copy: a long replay has many atoms
        return self._values, np.cumsum(self._weights)

    def quantiles(self, levels: Iterable[float]) -> list[float]:
        """The left-continuous inverse at each level: the least value below or at which at least this share lies.

        Raises:
            SpecError: a level outside [0, 1].
        """
        wanted = [float(level) for level in levels]
        for level in wanted:
            if not 0 <= level <= 1:
                raise SpecError(f"quantile level {level}: must lie in [0, 1]; 99% is 0.99")
        if not self.count:
            return [float("nan")] * len(wanted)
        values, upto = self._sorted
        scale = self.count * (1 - 1e-12)  # so that 0.9 of ten is the ninth, whatever rounding says
        if upto is None:
            at = [max(0, math.ceil(level * scale) - 1) for level in wanted]
        else:
            at = np.minimum(upto.searchsorted([level * scale for level in wanted]), len(values) - 1).tolist()
        return [values.item(k) for k in at]

    def quantile(self, level: float) -> float:
        """The left-continuous inverse at one level; see `quantiles`."""
        return self.quantiles((level,))[0]

    def interpolated(self, levels: Iterable[float]) -> list[float]:
        """Between the two order statistics next to each level, on a line: numpy's default, and what vLLM and aiperf print (B6).

        Weights must be whole numbers, as those of pooled gaps are: each says how often its value occurs.

        Raises:
            SpecError: a level outside [0, 1], or weights that are not whole.
        """
        wanted = np.array([float(level) for level in levels])
        if not ((wanted >= 0) & (wanted <= 1)).all():
            raise SpecError(f"quantile levels {wanted.tolist()}: must lie in [0, 1]; 99% is 0.99"[:199])
        if not self.count:
            return [float("nan")] * len(wanted)
        values, upto = self._sorted
        if upto is None:
            upto = np.arange(1, len(values) + 1)
        elif (upto != np.rint(upto)).any():
            raise SpecError(
                "interpolated quantiles need whole weights; a mixture of phases has none, so take one phase"
            )
        at = wanted * (self.count - 1)
        before = np.floor(at)
        low, high = (values[np.minimum(upto.searchsorted(before + k, side="right"), len(values) - 1)] for k in (0, 1))
        found: list[float] = (low + (high - low) * (at - before)).tolist()
        return found

    def share_within(self, limit: float) -> float:
        """The share of values at or below a limit."""
        if not self.count:
            return float("nan")
        return float(self.weights[self._values <= limit].sum()) / self.count

    def cdf(self) -> tuple[Array, Array]:
        """Distinct values, ascending, and the share at or below each."""
        values, upto = self._sorted
        shares = (np.arange(1, len(values) + 1) if upto is None else upto) / (self.count or 1.0)
        last = np.append(values[1:] != values[:-1], True) if len(values) else np.zeros(0, bool)
        return values[last], shares[last]

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        p50, p99 = self.quantiles((0.5, 0.99))
        return f"Distribution(n={self.count:g}, mean={self.mean:.4g}, p50={p50:.4g}, p99={p99:.4g}, max={self.max:.4g})"
