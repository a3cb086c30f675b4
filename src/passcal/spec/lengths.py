"""Laws of lengths: what prompts and outputs are like where they are not all alike. Made with the constructors of `Lengths`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field, field_validator, model_validator

from passcal.errors import SpecError
from passcal.spec.base import Count, Spec, Tokens, real
from passcal.spec.rows import Rows, shape_rows, whole_column

__all__ = ["Gamma", "Joint", "Lengths", "Lognormal", "Mix", "Strata", "Uniform", "lengths_or_rows"]

MOST = 2**31 - 1
Mean = Annotated[float, BeforeValidator(real), Field(ge=1.0, le=MOST)]
Spread = Annotated[float, BeforeValidator(real), Field(ge=0.0, le=20.0)]
Correlation = Annotated[float, BeforeValidator(real), Field(ge=-1.0, le=1.0)]


class Lengths(Spec):
    """A law of token counts, to be given as `isl` or `osl`; `Lengths.joint` as `shapes`."""

    @staticmethod
    def fixed(tokens: int) -> "Strata":
        """Always the same."""
        return Strata(tokens=(tokens,), weights=(1.0,))

    @staticmethod
    def samples(values: Iterable[int]) -> "Strata":
        """As often as in these values, in an order of its own; for lengths in their own order give `shapes`.

        Raises:
            SpecError: no values, or one that is no whole number from 1 on.
        """
        column = whole_column(list(values), "tokens", "Lengths.samples row ") if np.iterable(values) else np.zeros(0)
        if not len(column):
            raise SpecError("Lengths.samples: there must be at least one value; give token counts")
        tokens, counts = np.unique(column, return_counts=True)
        return Strata(tokens=tuple(tokens.tolist()), weights=tuple(counts.astype(float).tolist()))

    @staticmethod
    def strata(shares: Mapping[int, float] | Iterable[Sequence[float]]) -> "Strata":
        """Some lengths with their shares: `{512: 0.7, 4096: 0.3}`, or pairs (tokens, share); shares of any sum.

        Raises:
            SpecError: no pairs, a length below 1, or a share that is not positive.
        """
        try:
            pairs = sorted(dict(shares).items())  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise SpecError("Lengths.strata: must be pairs (tokens, share); write {512: 0.7, 4096: 0.3}") from None
        return Strata(tokens=tuple(t for t, _ in pairs), weights=tuple(w for _, w in pairs))

    @staticmethod
    def lognormal(mean: float, cv: float) -> "Lognormal":
        """Lognormal with this mean (tokens) and coefficient of variation, rounded to whole tokens, at least one."""
        return Lognormal(mean=mean, cv=cv)

    @staticmethod
    def gamma(mean: float, cv: float) -> "Gamma":
        """Gamma with this mean (tokens) and coefficient of variation (1: exponential), rounded to whole tokens, at least one."""
        return Gamma(mean=mean, cv=cv)

    @staticmethod
    def uniform(low: int, high: int) -> "Uniform":
        """Every length from low to high alike, both included."""
        return Uniform(low=low, high=high)

    @staticmethod
    def joint(rows: Iterable[Any]) -> "Joint":
        """Rows (isl, osl) or (isl, prefix, osl), or mappings as `shapes` takes them: as often as here, in an order of its own."""
        return Joint(rows=shape_rows(rows))

    @property
    def single(self) -> int | None:
        """The one length that it has, or None."""
        return None


class Strata(Lengths):
    """Lengths with shares; see `Lengths.strata`."""

    tokens: tuple[Count, ...]
    weights: tuple[Annotated[float, BeforeValidator(real), Field(gt=0.0)], ...]

    @model_validator(mode="after")
    def _paired(self) -> "Strata":
        if not self.tokens or len(self.tokens) != len(self.weights):
            raise SpecError(f"{len(self.tokens)} lengths, {len(self.weights)} shares: must be pairs, at least one")
        return self

    @property
    def single(self) -> int | None:
        """Its length, if there is one only."""
        return self.tokens[0] if len(self.tokens) == 1 else None


class Lognormal(Lengths):
    """See `Lengths.lognormal`."""

    mean: Mean
    cv: Spread

    @property
    def single(self) -> int | None:
        """The mean, if nothing varies."""
        return None if self.cv else round(self.mean)


class Gamma(Lengths):
    """See `Lengths.gamma`."""

    mean: Mean
    cv: Spread

    @property
    def single(self) -> int | None:
        """The mean, if nothing varies."""
        return None if self.cv else round(self.mean)


class Uniform(Lengths):
    """See `Lengths.uniform`."""

    low: Count
    high: Count

    @model_validator(mode="after")
    def _ordered(self) -> "Uniform":
        if self.high < self.low:
            raise SpecError(f"Lengths.uniform: high={self.high} with low={self.low}: must not be below it; swap them")
        return self

    @property
    def single(self) -> int | None:
        """Its length, if low and high are one."""
        return self.low if self.low == self.high else None


class Joint(Lengths):
    """Whole rows; see `Lengths.joint`. Stored as `rows.ASKED`."""

    rows: Rows

    @field_validator("rows", mode="before")
    @classmethod
    def _rows(cls, rows: Any) -> Any:
        return shape_rows(rows)


class Mix(Lengths):
    """A law for prompts and one for outputs, with the correlation of the two; made by the constructors of `Workload`."""

    isl: Lengths
    osl: Lengths
    prefix: Tokens = 0
    correlation: Correlation = 0.0

    @field_validator("isl", "osl", mode="before")
    @classmethod
    def _law(cls, law: Any) -> Any:
        if isinstance(law, Joint | Mix):
            raise SpecError(f"{type(law).__name__}: is a law of whole rows; give it as shapes")
        return law if isinstance(law, Lengths) else Lengths.fixed(law)

    @model_validator(mode="after")
    def _varied(self) -> "Mix":
        if self.correlation and (self.isl.single is not None or self.osl.single is not None):
            raise SpecError(f"correlation={self.correlation}: needs isl and osl that both vary; leave it at 0")
        return self


def lengths_or_rows(what: str, isl: Any, osl: Any, prefix: Any, shapes: Any, correlation: Any) -> Any:
    """What a constructor was given, as rows if nothing is left to a law."""
    if shapes is not None:
        if isl is not None or osl is not None or prefix or correlation:
            raise SpecError(f"{what}: shapes and isl/osl/prefix/correlation are both given; give one of them")
        if isinstance(shapes, Lengths) and not isinstance(shapes, Joint | Mix):
            raise SpecError(f"shapes={type(shapes).__name__}: must be rows, or Lengths.joint(rows); give isl and osl")
        return shapes.rows[:1] if isinstance(shapes, Joint) and len(set(shapes.rows)) == 1 else shapes
    if isl is None or osl is None:
        raise SpecError(f"{what}: isl and osl are missing; give both, or shapes")
    if not isinstance(isl, Lengths) and not isinstance(osl, Lengths) and not correlation:
        return ((isl, prefix, osl),)
    mix = Mix(isl=isl, osl=osl, prefix=prefix, correlation=correlation)
    if mix.isl.single is not None and mix.osl.single is not None:
        return ((mix.isl.single, prefix, mix.osl.single),)
    return mix
