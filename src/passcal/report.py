"""Log to report: latencies, rates and what binds, as array functions of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from passcal.binding import Binding, thrash
from passcal.errors import SpecError
from passcal.figures import Figures
from passcal.passes import together
from passcal.stopping import require_whole
from passcal.timing.base import TimingModel
from passcal.tokens import Emissions, emissions
from passcal.window import Measured

if TYPE_CHECKING:
    import pandas as pd

    from passcal.anchor import Anchored
    from passcal.benchmark import Benchmark

__all__ = ["Attractor", "Binding", "Report"]


@dataclass(frozen=True)
class Attractor:
    """One limit cycle that this workload can settle in, and the start that leads to it."""

    start: str
    ttft_mean_ms: float
    throughput_per_s: float


class Report(Figures):
    """What an evaluation found: its figures, and the views of it that need its log. Made by `evaluate` and its shortcuts."""

    def __init__(
        self,
        parts: tuple[Measured, ...],
        timings: tuple[TimingModel, ...],
        *,
        closed: bool,
        fidelity: str,
        again: Callable[..., Report],
        notes: tuple[str, ...] = (),
        arrivals_ms: Any = None,
        capacity_per_s: float = float("nan"),
        labels: Any = None,
    ) -> None:
        super().__init__(parts, timings, closed, arrivals_ms)
        self._again = again
        self._labels = labels
        self.fidelity = fidelity
        """The traffic tier that was used, W0 to W4."""
        self.capacity_per_s = capacity_per_s
        """Requests a second that the deployment serves where its queue is never empty; NaN where it was not asked for (closed loops, replays)."""
        self._notes = tuple(dict.fromkeys((*notes, *(note for part in parts for note in part.notes))))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each; thrash is named here, with figures and the remedy, and so is a queue at the client."""
        found = thrash(self.parts, [together(usages) for usages in self.usages])
        return (*self._notes, *((found,) if found else ()), *self._client_notes())

    def _client_notes(self) -> tuple[str, ...]:
        """That a client made requests wait."""
        if self.arrivals_ms is None or not self.client_queue_ms.max:
            return ()
        mean, most = self.client_queue_ms.mean, self.client_queue_ms.max
        return (
            f"max_concurrency: requests wait {mean:.4g} ms at the client, at most {most:.4g} ms, before their dispatch",
        )

    @cached_property
    def phases(self) -> tuple[Report, ...]:
        """One report for each phase of a mixture."""
        if len(self.parts) == 1:
            return (self,)
        return tuple(
            Report((p,), self.timings, closed=self.closed, fidelity=self.fidelity, again=self._again)
            for p in self.parts
        )

    def benchmark(
        self,
        requests: int | None = None,
        warmup: int = 0,
        max_concurrency: int | None = None,
        include_client_queue: bool = False,
    ) -> Benchmark:
        """What the clients that send so many requests to an empty system would measure: start-up, middle and drain, exactly.

        Args:
            requests: how many are sent, the warm-up among them; None: as many as this finite run sent.
            warmup: the first so many are sent, and left out of every figure.
            max_concurrency: the tool's limit on requests out at a time: who is due while so many are out waits at the client. For clients of a
                closed loop, whose number is that limit, a lower one is refused.
            include_client_queue: count TTFT and E2E from when a request was due, not from when its client sent it.

        Raises:
            SpecError: a count out of range, an endless loop without a number of requests, or another number than a replay has.
        """
        from passcal.benchmark import Benchmark, counted

        run = self._finite(requests, max_concurrency)
        return Benchmark(
            counted(run.parts[0], warmup, max_concurrency),
            run.timings,
            include_client_queue=include_client_queue,
            closed=run.closed,
            fidelity=run.fidelity,
            again=run._again,
            notes=run._notes,
            arrivals_ms=run.arrivals_ms,
            labels=run._labels,
        )

    def _finite(self, requests: int | None, max_concurrency: int | None) -> Report:
        """The run of this many requests, of which clients that do not wait for each other have at most so many out."""
        if max_concurrency is not None:
            require_whole("benchmark: max_concurrency", max_concurrency, 1)
        limit = None if self.closed else max_concurrency
        if requests is not None:
            require_whole("benchmark: requests", requests, 1)
            if self.closed or self.window.kind != "drained":
                return self._again(requests=int(requests), max_concurrency=limit)
        if self.window.kind != "drained":
            raise SpecError("benchmark: these clients go on for ever; say how many requests they send, as requests=200")
        sent = self.window.requests
        if requests not in (None, sent):
            raise SpecError(
                f"benchmark: requests={requests}: this replay sends {sent}; replay the rows that you want instead"
            )
        return self if limit is None else self._again(requests=sent, max_concurrency=limit)

    def anchored(self, *, throughput_per_s: float, tpot_ms: float) -> Anchored:
        """TTFT moved to where Little's identity puts its mean with measured figures; see `anchor.Anchored`.

        Args:
            throughput_per_s: measured requests a second, all clients together.
            tpot_ms: measured mean gap between tokens, pooled; without the first token.

        Raises:
            SpecError: figures that contradict each other, or a run whose clients do not go on for ever.
        """
        from passcal.anchor import anchored

        if not self.closed or self.window.kind == "drained":
            raise SpecError(
                "anchored(): the identity holds for clients that go on for ever; evaluate a closed loop without requests"
            )
        return anchored(self.ttft_ms, self.parts, throughput_per_s, tpot_ms)

    @cached_property
    def spread(self) -> dict[str, tuple[float, float]]:
        """The least and the largest of what the phases of a mixture say: mean and 99th percentile of TTFT (ms), requests a second (D8)."""
        figures = {
            "ttft_mean_ms": [phase.ttft_ms.mean for phase in self.phases],
            "ttft_p99_ms": [phase.ttft_ms.quantile(0.99) for phase in self.phases],
            "throughput_per_s": [phase.throughput_per_s for phase in self.phases],
        }
        return {name: (min(values), max(values)) for name, values in figures.items()}

    @cached_property
    def attractors(self) -> tuple[Attractor, ...]:
        """The limit cycles that a burst and a spread start lead to; one if they agree. Empty unless `window.kind` is `cycle`."""
        if self.window.kind != "cycle":
            return ()
        found: list[Attractor] = []
        for start in ("burst", "spread"):
            other = self._again(start=start)
            new = Attractor(start, other.ttft_ms.mean, other.throughput_per_s)
            if all(abs(new.ttft_mean_ms / old.ttft_mean_ms - 1) > 1e-6 for old in found):
                found.append(new)
        return tuple(found)

    def token_ms(self, request: int) -> list[float]:
        """When each output token of a request appears; `request` as in `requests()`.

        Raises:
            SpecError: a request that the log does not hold.
        """
        part = self.parts[0]
        at, count = request - part.first_id, part.rows.stop - part.rows.start
        if not 0 <= at < count:
            last = part.first_id + count - 1
            raise SpecError(f"request={request}: the log holds {part.first_id} to {last}; take one of these")
        times, _ = self._emissions.of(slice(part.rows.start + at, part.rows.start + at + 1))
        listed: list[float] = times.tolist()
        return listed

    @cached_property
    def _emissions(self) -> Emissions:
        return emissions(self.parts[0])

    def requests(self) -> pd.DataFrame:
        """One row a request of the window, in dispatch order; see `columns.request_frame`. `arrival_ms` is when it was due, where clients may
        keep requests back.
        """
        from passcal.columns import request_frame

        frame = request_frame(self.parts)
        if self.arrivals_ms is not None:
            frame = frame.assign(arrival_ms=self.arrivals_ms[frame["request"]])
        return self._labelled(frame)

    def turns(self) -> pd.DataFrame:
        """One row a turn, by session: session, turn, request (the number of its own), calls, dispatch_ms, first_ms (of its own request),
        done_ms (of all).

        Raises:
            SpecError: the workload is not sessions.
        """
        from passcal.columns import turn_frame

        if self.fidelity != "W4":
            raise SpecError("turns: only sessions have turns; make them with pc.Workload.sessions, or read requests()")
        return self._labelled(turn_frame(self.parts[0]))

    def _labelled(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Sessions by what the caller calls them."""
        return frame if self._labels is None else frame.assign(session=self._labels[frame["session"]])

    def passes(self) -> pd.DataFrame:
        """One row a pass of the window; see `columns.PASS_COLUMNS`."""
        from passcal.columns import pass_frame

        return pass_frame(self.parts)

    def to_columns(self) -> dict[str, Any]:
        """One flat dict with the exact column names of the product; milliseconds."""
        from passcal.columns import to_columns

        return to_columns(self)

    def __repr__(self) -> str:
        return (
            f"Report({self.window.kind}, ttft mean {self.ttft_ms.mean:.4g} ms p99 {self.ttft_ms.quantile(0.99):.4g} ms, "
            f"itl mean {self.itl_ms.mean:.4g} ms, {self.throughput_per_s:.4g} req/s, binding {self.binding})"
        )
