"""Reading one JSON object so that nothing in it is silently ignored."""

from collections.abc import Sequence
from math import inf, isfinite

from tools.oracle.errors import ScenarioError

REQUIRED = object()


class Fields:
    """An object under reading: each key is taken once, and `close` refuses by name what nobody took."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise ScenarioError(f"{where} must be an object, not {value!r:.60}")
        self._left = dict(value)
        self._where = where

    def take(self, key: str, default: object = REQUIRED) -> object:
        """The raw value of a key."""
        if key in self._left:
            return self._left.pop(key)
        if default is REQUIRED:
            raise ScenarioError(f"{self._where} lacks {key!r}")
        return default

    def whole(self, key: str, default: object = REQUIRED, *, low: int = 0, null: object = REQUIRED) -> int | None:
        """An integer of at least `low`; `null`, if given, is what a JSON null stands for."""
        value = self.take(key, default)
        if value is None and null is not REQUIRED:
            return null
        if isinstance(value, bool) or not isinstance(value, int) or value < low:
            raise ScenarioError(f"{self._where}: {key} must be an integer of at least {low}, not {value!r}")
        return value

    def number(self, key: str, default: object = REQUIRED, *, below: float = inf, most: float = inf) -> float:
        """A finite number from 0 up to `most`, or up to and not including `below`."""
        value = real(self.take(key, default), f"{self._where}: {key}")
        if not (0 <= value < below and value <= most):
            limits = f"[0, {below:g})" if most == inf else f"[0, {most:g}]"
            raise ScenarioError(f"{self._where}: {key} must lie in {limits}, not {value!r}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """A boolean; null stands for the default."""
        value = self.take(key, default)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise ScenarioError(f"{self._where}: {key} must be true or false, not {value!r}")
        return value

    def choice(self, key: str, options: Sequence[str], default: object = REQUIRED) -> str:
        """One of a few words."""
        value = self.take(key, default)
        if value not in options:
            raise ScenarioError(f"{self._where}: {key} {value!r} is not modelled; known: {', '.join(options)}")
        return value

    def rows(self, key: str) -> list:
        """A list with something in it."""
        value = self.take(key)
        if not isinstance(value, list) or not value:
            raise ScenarioError(f"{self._where}: {key} must be a list with at least one entry")
        return value

    def numbers(self, key: str, count: int) -> tuple[float, ...]:
        """A list of exactly `count` finite numbers."""
        value = self.rows(key)
        if len(value) != count:
            raise ScenarioError(f"{self._where}: {key} must have {count} coefficients, not {len(value)}")
        return tuple(real(entry, f"{self._where}: {key}") for entry in value)

    def close(self) -> None:
        """Refuse the first key that was not taken."""
        for key in self._left:
            raise ScenarioError(f"{self._where}: {key!r} is not modelled")


def real(value: object, where: str) -> float:
    """A finite JSON number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value):
        raise ScenarioError(f"{where} must be a finite number, not {value!r}")
    return float(value)
