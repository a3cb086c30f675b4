"""Markdown tables of measured against predicted figures."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

__all__ = ["QUANTILES", "against", "figures", "markdown", "number"]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def number(value: float) -> str:
    """Three digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def against(measured: float, predicted: float, least: float = 0.0) -> str:
    """Both figures and the error of the prediction; no error where the measured figure is not above `least`."""
    error = f" ({100 * (predicted / measured - 1):+.1f}%)" if measured > least else ""
    return f"{number(measured)} / {number(predicted)}{error}"


def figures(values: Any) -> np.ndarray[Any, Any]:
    """Mean, p50, p90 and p99 of values; quantiles by the product's definition, the left-continuous inverse."""
    levels = list(QUANTILES.values())
    return np.array([np.mean(values), *np.quantile(values, levels, method="inverted_cdf")])


def markdown(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
