"""How far a long run is, told to whoever listens: a run has many rooms between its clock and its reader, and none of them cares."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

__all__ = ["listening", "pace", "tell"]

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


def pace(clock: Callable[[], float] = monotonic) -> Callable[[int, int], str]:
    """A text of how far a run is, how fast, and how long it may still take; what was done before it began is no speed of its own."""
    began: tuple[float, int] | None = None

    def text(done: int, of: int) -> str:
        nonlocal began
        now = clock()
        if began is None:
            began = now, done
        if now <= began[0] or done <= began[1]:
            return f"{done:,} of at most {of:,} candidates"
        rate = (done - began[1]) / (now - began[0])
        return f"{done:,} of at most {of:,} candidates, {rate:,.0f} a second, at most {(of - done) / rate:,.0f} s left"

    return text
