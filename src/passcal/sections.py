"""Sections of a configuration: what they may hold, and complaints that name a key by its path."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from passcal.errors import SpecError, Unsupported

__all__ = ["checked", "chosen", "made", "shown"]

T = TypeVar("T")


def chosen(section: Any, path: str, key: str, names: tuple[str, ...]) -> tuple[str, dict[str, Any]]:
    """The value of the key that says what the section is, and the other keys."""
    if not isinstance(section, Mapping):
        raise SpecError(f"{path}={shown(section)}: must have keys; start with {key}: {names[0]}")
    if key not in section:
        raise SpecError(f"{path}.{key} is missing: must be one of {', '.join(names)}; name one")
    if section[key] not in names:
        raise SpecError(f"{path}.{key}={shown(section[key])}: must be one of {', '.join(names)}; name one")
    return section[key], {name: value for name, value in section.items() if name != key}


def checked(section: Any, path: str, known: Iterable[str], where: str | None = None) -> None:
    """Refuse a section that is no mapping, and its first unknown key."""
    known = tuple(known)
    if not isinstance(section, Mapping):
        raise SpecError(f"{where or path}: {shown(section)}: must have keys, of {', '.join(known)}"[:199])
    for name, value in section.items():
        if name not in known:
            full = f"{path}.{name}" if path else str(name)
            near = ", ".join(known) if known else "no others"
            text = f"{full}={shown(value)}: unknown key; known are {near}"
            raise SpecError(text if len(text) < 200 else text[:190].rsplit(", ", 1)[0] + ", ...")


def made(path: str, owners: tuple[str, ...], build: Callable[[], T]) -> T:
    """What `build` makes; its complaint names the key's path instead of the Python class."""
    try:
        return build()
    except (SpecError, Unsupported) as error:
        text = str(error)
        for owner in owners:
            text = text.removeprefix(f"{owner}.").removeprefix(f"{owner}: ")
        raise type(error)(f"{path}.{text}"[:199]) from None
    except (TypeError, AttributeError) as error:
        raise SpecError(f"{path}: {error}; correct the value of the wrong type"[:199]) from None


def shown(value: Any) -> str:
    """A value as a message quotes it."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
