"""How far a long run is, told to whoever listens: a run has many rooms between its clock and its reader, and none of them cares."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

__all__ = ["listening", "tell"]

Listener = Callable[[int, int], object]
LISTENER: ContextVar[Listener | None] = ContextVar("passcal_progress", default=None)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """In this context, runs call `listener(done, of)` now and then: requests that are done, and how many there are."""
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


def tell(done: int, of: int) -> None:
    """Say how far a run is."""
    listener = LISTENER.get()
    if listener is not None:
        listener(done, of)
