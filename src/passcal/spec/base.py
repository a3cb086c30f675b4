"""What every spec shares: frozen, closed to unknown fields, and one-line errors with value, rule and remedy."""

import math
import operator
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from passcal.errors import SpecError, Unsupported

__all__ = ["Count", "Duration", "Flag", "Fraction", "Positive", "Ratio", "Share", "Spec", "Tokens", "one_line", "real"]


def whole(value: Any) -> Any:
    """An integer given as any integer type or as a float without fraction; booleans and text are refused."""
    if isinstance(value, bool | str | bytes):
        raise ValueError("a whole number is needed")
    try:
        return operator.index(value)
    except TypeError:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        raise ValueError("a whole number is needed") from None


def real(value: Any) -> Any:
    """A finite number; booleans and text are refused."""
    if isinstance(value, bool | str | bytes):
        raise ValueError("a number is needed")
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError("a number is needed") from None
    if not math.isfinite(number):
        raise ValueError("a finite number is needed")
    return number


def boolean(value: Any) -> Any:
    """True or False, and nothing that merely reads like it."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        raise ValueError("true or false is needed")
    return bool(value)


MOST = 2**31 - 1
Count = Annotated[int, BeforeValidator(whole), Field(ge=1, le=MOST)]
Tokens = Annotated[int, BeforeValidator(whole), Field(ge=0, le=MOST)]
Duration = Annotated[float, BeforeValidator(real), Field(ge=0.0)]
Positive = Annotated[float, BeforeValidator(real), Field(gt=0.0)]
Ratio = Annotated[float, BeforeValidator(real), Field(gt=0.0, le=1.0)]
Fraction = Annotated[float, BeforeValidator(real), Field(ge=0.0, lt=1.0)]
Share = Annotated[float, BeforeValidator(real), Field(ge=0.0, le=1.0)]
Flag = Annotated[bool, BeforeValidator(boolean)]


def one_line(error: ValidationError, model: str, known: tuple[str, ...]) -> str:
    """The first complaint of pydantic as value, rule and remedy in one line under 200 characters."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"]) or model
    if first["type"] == "extra_forbidden":
        names = ", ".join(known)
        text = f"{model} has no option {field!r}; it has {names}"
        return text if len(text) < 200 else text[: 190 - len(text)].rsplit(", ", 1)[0] + ", ..."
    if first["type"] == "missing":
        return f"{model}.{field} is missing: give it a value"
    rule = first["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    value = repr(first["input"])
    value = value if len(value) <= 40 else value[:37] + "..."
    return f"{model}.{field}={value}: {rule}; correct this value"[:199]


class Spec(BaseModel):
    """Base of all specs. Raises `SpecError` for a value that breaks a rule, an unknown field included."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            cause = error.errors()[0].get("ctx", {}).get("error")
            if isinstance(cause, SpecError | Unsupported):
                raise cause from None
            fields = tuple(type(self).model_fields)
            raise SpecError(one_line(error, type(self).__name__, fields)) from None
