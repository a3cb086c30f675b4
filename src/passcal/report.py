"""Log to report: latencies, rates and what binds, as array functions of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from passcal import samples
from passcal.binding import Binding, binding, thrash
from passcal.distribution import Distribution
from passcal.errors import SpecError
from passcal.passes import Usage, usage
from passcal.stopping import require_whole
from passcal.timing.base import TimingModel
from passcal.tokens import Emissions, emissions
from passcal.window import Measured, WindowInfo

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


class Report:
    """What an evaluation found. Distributions are in milliseconds; a sample is what `window` says.

    Made by `evaluate` and its shortcuts; `parts` holds one `Measured` for each phase, which count equally.
    """

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
        self._parts = parts
        self._timings = timings
        self._closed = closed
        self._again = again
        self._labels = labels
        self.fidelity = fidelity
        """The traffic tier that was used, W0 to W4."""
        self.capacity_per_s = capacity_per_s
        """Requests a second that the deployment serves where its queue is never empty; NaN where it was not asked for (closed loops, replays)."""
        self.arrivals_ms = arrivals_ms
        """When each request of the run was due (ms), by its number, where clients may keep requests back; None: all are sent when due."""
        self._notes = tuple(dict.fromkeys((*notes, *(note for part in parts for note in part.notes))))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each; thrash is named here, with figures and the remedy, and so is a queue at the client."""
        found = thrash(self._parts, self._usages)
        return (*self._notes, *((found,) if found else ()), *self._client_notes())

    def _client_notes(self) -> tuple[str, ...]:
        """That a client made requests wait."""
        if self.arrivals_ms is None or not self.client_queue_ms.max:
            return ()
        mean, most = self.client_queue_ms.mean, self.client_queue_ms.max
        return (
            f"max_concurrency: requests wait {mean:.4g} ms at the client, at most {most:.4g} ms, before their dispatch",
        )

    @property
    def window(self) -> WindowInfo:
        """What the figures are averages over (of the first phase, if there are several)."""
        return self._parts[0].window

    @cached_property
    def phases(self) -> tuple[Report, ...]:
        """One report for each phase of a mixture."""
        if len(self._parts) == 1:
            return (self,)
        return tuple(
            Report((p,), self._timings, closed=self._closed, fidelity=self.fidelity, again=self._again)
            for p in self._parts
        )

    # ---- latencies

    def _mixed(self, sample: Callable[[Measured], Distribution]) -> Distribution:
        return Distribution.mix([sample(part) for part in self._parts])

    @cached_property
    def ttft_ms(self) -> Distribution:
        """First token less dispatch."""
        return self._mixed(samples.ttft)

    @cached_property
    def e2e_ms(self) -> Distribution:
        """Last token less dispatch."""
        return self._mixed(samples.e2e)

    @cached_property
    def queue_ms(self) -> Distribution:
        """Start of the first pass that carries the request, less when the scheduler could see it."""
        return self._mixed(samples.queue)

    @cached_property
    def tpot_ms(self) -> Distribution:
        """(last token - first token) / (osl - 1), one value a request; none for an osl of 1."""
        return self._mixed(samples.tpot)

    @property
    def itl_request_mean_ms(self) -> Distribution:
        """A request's mean gap, one value a request, as some tools report ITL; the same number as TPOT."""
        return self.tpot_ms

    @cached_property
    def itl_ms(self) -> Distribution:
        """Gaps between successive tokens of a request, pooled over all tokens of the window."""
        return self._mixed(samples.itl)

    @cached_property
    def startup_ttft_ms(self) -> Distribution:
        """TTFT of the first request of every client of a closed loop; empty for other traffic."""
        return self._mixed(samples.startup)

    @cached_property
    def client_queue_ms(self) -> Distribution:
        """Dispatch less when the request was due: its wait at a client that sends only so many at a time; 0 where none is made to wait."""
        return self._mixed(lambda part: samples.client_queue(part, self.arrivals_ms))

    @cached_property
    def turn_ms(self) -> Distribution:
        """Of the turns of sessions: last token of a turn's request and calls less its dispatch; empty for other traffic."""
        return self._mixed(samples.turn)

    # ---- rates

    def _mean(self, figure: Callable[[Measured, Usage], float]) -> float:
        found = [figure(part, used) for part, used in zip(self._parts, self._usages, strict=True)]
        return sum(found) / len(found)

    @cached_property
    def _usages(self) -> tuple[Usage, ...]:
        return tuple(usage(part.state, part.runs) for part in self._parts)

    @cached_property
    def throughput_per_s(self) -> float:
        """Requests completed a second."""
        return self._mean(lambda part, _: part.window.per_s(part.done))

    @cached_property
    def output_tokens_per_s(self) -> float:
        """Tokens emitted a second."""
        return self._mean(lambda part, _: part.window.per_s(tokens(part)))

    @property
    def gpus(self) -> int:
        """GPUs of the deployment (E3): ranks of all workers, times the `gpus` that their timing model says a rank's pass runs on, or 1."""
        ranks = self._parts[0].state.stages["ranks"].tolist()
        return sum(n * int(getattr(timing, "gpus", 1)) for n, timing in zip(ranks, self._timings, strict=True))

    @property
    def output_tokens_per_s_per_gpu(self) -> float:
        """Tokens emitted a second, divided by `gpus` (E3)."""
        return self.output_tokens_per_s / self.gpus

    @cached_property
    def utilisation(self) -> float:
        """Share of the window in which a rank runs a pass."""
        return self._mean(lambda part, used: part.window.share(used.busy_ms) / len(part.state.ranks))

    @cached_property
    def binding(self) -> Binding:
        """Which limit binds, and why: the first to lift for more throughput."""
        return binding(self._parts[0], self._usages[0], self._timings[0], self._closed)

    # ---- memory

    @cached_property
    def preemptions(self) -> int:
        """Evictions of the window's requests against their will, whatever the engine calls them: preemptions (vLLM, V8), retractions
        (SGLang, S13), pauses (TensorRT-LLM, T12).
        """
        return sum(int(part.state.requests["preemptions"][part.rows].sum()) for part in self._parts)

    @property
    def retractions(self) -> int:
        """The same number as `preemptions`, by SGLang's name."""
        return self.preemptions

    @cached_property
    def recomputed_tokens(self) -> int:
        """Tokens of prompts and outputs whose KV was lost to an eviction and computed again in the window's passes."""
        return int(sum(used.recomputed for used in self._usages))

    @cached_property
    def wasted_prefill_share(self) -> float:
        """Recomputed tokens as a share of all tokens that the window's chunks computed."""
        return self._mean(lambda _, used: used.recomputed / (used.prefill_tokens or 1.0))

    @cached_property
    def block_utilisation(self) -> float:
        """Share of KV that requests hold, averaged over the window's time; NaN where KV is not counted."""
        return self._mean(lambda part, used: share_of_kv(part, part.window.share(used.block_ms)))

    @cached_property
    def block_utilisation_peak(self) -> float:
        """The largest share of a rank's KV that its requests hold at a time; NaN where KV is not counted."""
        return max(
            share_of_kv(part, used.peak_blocks * len(part.state.ranks))
            for part, used in zip(self._parts, self._usages, strict=True)
        )

    # ---- other views

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
            counted(run._parts[0], warmup, max_concurrency),
            run._timings,
            include_client_queue=include_client_queue,
            closed=run._closed,
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
        limit = None if self._closed else max_concurrency
        if requests is not None:
            require_whole("benchmark: requests", requests, 1)
            if self._closed or self.window.kind != "drained":
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

        if not self._closed or self.window.kind == "drained":
            raise SpecError(
                "anchored(): the identity holds for clients that go on for ever; evaluate a closed loop without requests"
            )
        return anchored(self.ttft_ms, self._parts, throughput_per_s, tpot_ms)

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
        part = self._parts[0]
        at, count = request - part.first_id, part.rows.stop - part.rows.start
        if not 0 <= at < count:
            last = part.first_id + count - 1
            raise SpecError(f"request={request}: the log holds {part.first_id} to {last}; take one of these")
        times, _ = self._emissions.of(slice(part.rows.start + at, part.rows.start + at + 1))
        listed: list[float] = times.tolist()
        return listed

    @cached_property
    def _emissions(self) -> Emissions:
        return emissions(self._parts[0])

    def requests(self) -> pd.DataFrame:
        """One row a request of the window, in dispatch order; see `columns.request_frame`. `arrival_ms` is when it was due, where clients may
        keep requests back.
        """
        from passcal.columns import request_frame

        frame = request_frame(self._parts)
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
        return self._labelled(turn_frame(self._parts[0]))

    def _labelled(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Sessions by what the caller calls them."""
        return frame if self._labels is None else frame.assign(session=self._labels[frame["session"]])

    def passes(self) -> pd.DataFrame:
        """One row a pass of the window; see `columns.PASS_COLUMNS`."""
        from passcal.columns import pass_frame

        return pass_frame(self._parts)

    def to_columns(self) -> dict[str, Any]:
        """One flat dict with the exact column names of the product; milliseconds."""
        from passcal.columns import to_columns

        return to_columns(self)

    def __repr__(self) -> str:
        return (
            f"Report({self.window.kind}, ttft mean {self.ttft_ms.mean:.4g} ms p99 {self.ttft_ms.quantile(0.99):.4g} ms, "
            f"itl mean {self.itl_ms.mean:.4g} ms, {self.throughput_per_s:.4g} req/s, binding {self.binding})"
        )


def tokens(part: Measured) -> int:
    """Tokens emitted in the window."""
    osl = part.state.requests["osl"][part.rows]
    return int(osl.sum()) if part.window.kind != "window" else round(float(osl.mean()) * part.done)


def share_of_kv(part: Measured, blocks: float) -> float:
    """So many blocks, over all ranks, as a share of what there is; NaN where KV is not counted."""
    ranks = part.state.ranks
    return blocks / float(ranks["usable"].sum()) if ranks["memory"][0] else float("nan")
