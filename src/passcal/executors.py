"""Who evaluates the points of a sweep: this thread, threads, or whatever executor is given; the same records from all of them."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from passcal.errors import SpecError

__all__ = ["Asked", "Workers"]

T = TypeVar("T")
R = TypeVar("R")
Asked = Any  # "serial", "threads", or anything that submits: a concurrent.futures executor, a Dask client
SHARE = 8  # items handed over at a time
LOST = ("KilledWorker", "CommClosedError", "CancelledError")  # Dask's words for workers that died


class Workers:
    """A context in which functions of items run somewhere."""

    def __init__(self, executor: Asked, count: int) -> None:
        """Args:
            executor: None chooses threads where there are more points than a thread is worth.
            count: of points.

        Raises:
            SpecError: something that does not submit.
        """
        if executor is None:
            executor = "threads" if count > SHARE else "serial"
        if executor not in ("serial", "threads") and not callable(getattr(executor, "submit", None)):
            raise SpecError(f"executor={executor!r:.60}: must be 'serial', 'threads', an executor or a Dask client")
        self.own = isinstance(executor, str)
        self.notes: list[str] = []
        if hasattr(executor, "get_executor"):
            executor = executor.get_executor(pure=False)
        self.executor: Any = ThreadPoolExecutor(os.cpu_count()) if executor == "threads" else executor

    def __enter__(self) -> "Workers":
        return self

    def __exit__(self, *_: object) -> None:
        if self.own and self.executor != "serial":
            self.executor.shutdown(cancel_futures=True)

    def map(self, function: Callable[[list[T]], list[R]], items: Sequence[T]) -> Iterator[tuple[list[int], list[R]]]:
        """Places and results, in whatever order they come; what a dead worker had is done here.

        Raises:
            SpecError: items that cannot be sent to another process.
            Whatever the function raises.
        """
        shares = [list(range(start, min(start + SHARE, len(items)))) for start in range(0, len(items), SHARE)]
        futures: dict[Future[list[R]], list[int]] = {}
        lost = []
        for share in shares:
            part = [items[place] for place in share]
            if self.executor == "serial":
                yield share, function(part)
                continue
            try:
                futures[self.executor.submit(function, part)] = share
            except BrokenExecutor:
                lost.append(share)
        try:
            for future in as_completed(futures):
                try:
                    yield futures[future], future.result()
                except BaseException as error:
                    if not worker_died(error):
                        raise readable(error) from None
                    lost.append(futures[future])
        finally:
            for future in futures:
                future.cancel()
        if lost:
            self._note("a worker died: its points were evaluated again in this process")
            for share in lost:
                yield share, function([items[place] for place in share])

    def _note(self, text: str) -> None:
        """Say it once."""
        if text not in self.notes:
            self.notes.append(text)


def worker_died(error: BaseException) -> bool:
    """Whether a result is missing because its worker is."""
    return isinstance(error, BrokenExecutor) or type(error).__name__ in LOST


def readable(error: BaseException) -> BaseException:
    """An error of sending as one of the project's."""
    if "pickle" in str(error).lower():
        return SpecError(f"executor: {error!s:.100} for another process; use executor='threads'")
    return error
