"""A benchmark's eyes: what the clients that send N requests to an empty system would have noted.

What words mean stands in `definitions`, what each tool prints in `printed`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from passcal.definitions import chunk_gaps, chunk_itl, tpot, tpot_with_first, within
from passcal.distribution import Distribution
from passcal.errors import SpecError
from passcal.report import Report
from passcal.stopping import require_whole
from passcal.timing.base import TimingModel
from passcal.tokens import emissions
from passcal.window import Measured, ended_by

__all__ = ["Benchmark", "counted"]


class Benchmark(Report):
    """A finite run as its clients see it: a report of the counted requests, and the figures that benchmark tools print of them.

    Made by `Report.benchmark`. Latencies are of counted requests, gaps too; rates are over `duration_ms`.

    Attributes:
        part: the counted rows of the log.
        include_client_queue: whether TTFT and E2E count from when a request was due, not from its dispatch.
    """

    def __init__(
        self, part: Measured, timings: tuple[TimingModel, ...], *, include_client_queue: bool, **kept: Any
    ) -> None:
        super().__init__((part,), timings, **kept)
        self.part = part
        self.include_client_queue = include_client_queue

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know, one line each."""
        said = super().notes
        if not self.include_client_queue or self.client_queue_ms.max > 0:
            return said
        return (*said, "include_client_queue: no request waited at its client, so nothing is added")

    # ---- what clients noted

    @property
    def noted(self) -> Any:
        """The counted rows of the request table, in dispatch order."""
        return self.part.state.requests[self.part.rows]

    @cached_property
    def osl(self) -> Any:
        """Output tokens of each counted request."""
        return self.noted["osl"].astype(np.int64)

    @cached_property
    def token_times(self) -> tuple[Any, Any]:
        """When every token of the counted requests appears (ms), one request after the other, and where each request's begin."""
        return emissions(self.part).of(self.part.rows)

    def since_due(self, field: str) -> Distribution:
        """An event of the counted requests less their dispatch, or less when they were due."""
        waited = self.client_queue_ms.values if self.include_client_queue else 0.0
        return Distribution(self.noted[field] - self.noted["dispatch_ms"] + waited)

    @cached_property
    def ttft_ms(self) -> Distribution:
        """First token less dispatch; with the client's queue included, less when the request was due."""
        return self.since_due("first_ms")

    @cached_property
    def e2e_ms(self) -> Distribution:
        """Last token less dispatch; with the client's queue included, less when the request was due."""
        return self.since_due("done_ms")

    @cached_property
    def itl_ms(self) -> Distribution:
        """Gaps between successive tokens of the counted requests, pooled."""
        if self.part.rows.start == 0:
            return super().itl_ms  # nothing is left out, so the passes hold every gap
        times, heads = self.token_times
        later = np.ones(len(times), bool)
        later[heads] = False
        return Distribution(np.diff(times, prepend=0.0)[later])

    def chunk_itl_ms(self, tokens_per_chunk: int = 1) -> Distribution:
        """Gaps between streamed messages, pooled; see `definitions.chunk_gaps`.

        Raises:
            SpecError: fewer than one token a message.
        """
        require_whole("tokens_per_chunk", tokens_per_chunk, 1)
        if tokens_per_chunk == 1:
            return chunk_itl(self.itl_ms)
        return Distribution(chunk_gaps(*self.token_times, tokens_per_chunk))

    @cached_property
    def tpot_with_first_ms(self) -> Distribution:
        """E2E / osl, one value a request, each weighted by its tokens: GuideLLM's time per output token."""
        return Distribution(tpot_with_first(self.e2e_ms.values, self.osl), self.osl)

    # ---- rates

    @property
    def duration_ms(self) -> float:
        """First counted dispatch to last token."""
        return self.window.length_ms

    @property
    def total_tokens_per_s(self) -> float:
        """Prompt and output tokens of the counted requests a second."""
        return self.window.per_s(float(self.noted["isl"].sum() + self.osl.sum()))

    @property
    def concurrency(self) -> float:
        """Counted requests between dispatch and last token, averaged over the duration."""
        return self.window.share(float((self.noted["done_ms"] - self.noted["dispatch_ms"]).sum()))

    @property
    def peak_concurrency(self) -> int:
        """The most counted requests between dispatch and last token at a time."""
        return most_out(self.noted)

    def goodput_per_s(
        self,
        *,
        ttft_ms: float | None = None,
        tpot_ms: float | None = None,
        e2e_ms: float | None = None,
        without_tpot: bool = True,
    ) -> float:
        """Requests a second that keep every bound given, bounds included (B7).

        Args:
            ttft_ms: most for TTFT.
            tpot_ms: most for TPOT, which in the goodput of all three tools leaves the first token out.
            e2e_ms: most for E2E.
            without_tpot: whether a one-token output keeps a bound on TPOT: yes to vLLM, no to aiperf and to GuideLLM's rate.

        Raises:
            SpecError: no bound is given.
        """
        if ttft_ms is None and tpot_ms is None and e2e_ms is None:
            raise SpecError("goodput_per_s(): needs a bound; give ttft_ms, tpot_ms or e2e_ms")
        ttft, e2e = self.ttft_ms.values, self.e2e_ms.values
        good = within(ttft, ttft_ms) & within(e2e, e2e_ms) & within(tpot(ttft, e2e, self.osl), tpot_ms, without_tpot)
        return self.window.per_s(float(good.sum()))

    # ---- what tools print

    def vllm(self, percentiles: Iterable[float] = (99,)) -> dict[str, float]:
        """The figures of `vllm bench serve`, by its own names; see `printed.vllm`."""
        from passcal.printed import vllm

        return vllm(self, percentiles)

    def guidellm(self) -> dict[str, dict[str, float]]:
        """The figures of GuideLLM, by its own names; see `printed.guidellm`."""
        from passcal.printed import guidellm

        return guidellm(self)

    def aiperf(self) -> dict[str, dict[str, float]]:
        """The figures of aiperf, by its own names; see `printed.aiperf`."""
        from passcal.printed import aiperf

        return aiperf(self)


def counted(part: Measured, warmup: int, max_concurrency: int | None) -> Measured:
    """A drained run without its first requests: rows, passes and stalls from the first counted dispatch on.

    Raises:
        SpecError: nothing would be counted, or the run has more requests out at a time than `max_concurrency`.
    """
    require_whole("benchmark: warmup", warmup, 0)
    requests = part.state.requests[part.rows]
    if warmup >= len(requests):
        raise SpecError(f"benchmark: warmup={warmup}: must be below the {len(requests)} requests; some must count")
    if max_concurrency is not None:
        require_whole("benchmark: max_concurrency", max_concurrency, 1)
        if (most := most_out(requests)) > max_concurrency:
            raise SpecError(
                f"benchmark: max_concurrency={max_concurrency}: this run has {most} requests out at a time; bound its workload instead"
            )
    if warmup == 0:
        return part
    requests = requests[warmup:]
    start = float(requests["dispatch_ms"].min())
    runs = slice(part.runs.start + int(ended_by(part.state.runs["end_ms"][part.runs], start)), part.runs.stop)
    stalls = slice(part.stalls.start + int(ended_by(part.state.stalls["end_ms"][part.stalls], start)), part.stalls.stop)
    window = replace(
        part.window,
        start_ms=start,
        length_ms=float(requests["done_ms"].max()) - start,
        requests=len(requests),
        passes=int(part.state.runs["count"][runs].sum()),
    )
    rows = slice(part.rows.start + warmup, part.rows.stop)
    return replace(
        part, window=window, rows=rows, runs=runs, stalls=stalls, done=len(requests), first_id=part.first_id + warmup
    )


def most_out(requests: Any) -> int:
    """The most of these requests between dispatch and last token at a time; one that ends makes room for one sent at that instant."""
    sent, done = np.sort(requests["dispatch_ms"]), np.sort(requests["done_ms"])
    left = np.searchsorted(done, sent, side="right")
    return int((np.arange(1, len(sent) + 1) - left).max())
