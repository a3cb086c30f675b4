"""What the command line writes to, and the signs of life that it gives."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["console", "tell_if_cold", "waiting"]

SHOW_AFTER_S = 1.0


def console() -> "Console":
    """Standard output; without a terminal wide enough for every table."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=100)


def tell_if_cold(quiet: bool) -> None:
    """Say what the first run of a version spends its time on."""
    from passcal.core.compiled import INTERPRETED, cache_folder

    if not quiet and not INTERPRETED and not any(cache_folder().glob("*")):
        typer.echo("compiling the kernel once, about ten seconds...", err=True)


@contextmanager
def waiting(text: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """On a terminal, a spinner on standard error for what takes over a second; yields how to change its text."""
    from rich.console import Console

    stderr = Console(stderr=True)
    if quiet or not stderr.is_terminal:
        yield lambda text: None
        return
    status = stderr.status(text)
    timer = threading.Timer(SHOW_AFTER_S, status.start)
    timer.start()
    try:
        yield status.update
    finally:
        timer.cancel()
        timer.join()
        status.stop()
