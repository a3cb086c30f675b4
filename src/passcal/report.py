"""Log to report: latencies, rates and what binds, as array functions of the tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from passcal.core.plan import PassShape
from passcal.core.rank import HELD_BLOCKS, HELD_BUDGET, HELD_SEATS
from passcal.distribution import Distribution
from passcal.errors import SpecError
from passcal.passes import expand, gaps
from passcal.stopping import Measured, WindowInfo
from passcal.timing.base import TimingModel

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Attractor", "Binding", "Report"]

HELD = {HELD_SEATS: "seats", HELD_BUDGET: "budget", HELD_BLOCKS: "kv"}
OFTEN = 0.05  # of the time: less is an accident, not a limit


class Binding(str):
    """The limit that binds: `clients`, `seats`, `budget`, `kv`, `prefill` or `decode`; `why` says what was seen."""

    why: str

    def __new__(cls, limit: str, why: str) -> Binding:
        binding = super().__new__(cls, limit)
        binding.why = why
        return binding


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
        timing: TimingModel,
        *,
        closed: bool,
        fidelity: str,
        again: Callable[[int | None, str | None], Report],
        notes: tuple[str, ...] = (),
    ) -> None:
        self._parts = parts
        self._timing = timing
        self._closed = closed
        self._again = again
        self.fidelity = fidelity
        """The traffic tier that was used, W0 to W4."""
        self.notes = (*notes, *(note for part in parts for note in part.notes))
        """What a reader should know, one line each."""

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
            Report((p,), self._timing, closed=self._closed, fidelity=self.fidelity, again=self._again)
            for p in self._parts
        )

    # ---- latencies

    def _mixed(self, measure: Callable[[Measured], Distribution]) -> Distribution:
        return Distribution.mix([measure(part) for part in self._parts])

    @cached_property
    def ttft_ms(self) -> Distribution:
        """First token less dispatch."""
        return self._mixed(lambda part: Distribution(since_dispatch(part, part.rows, "first_ms")))

    @cached_property
    def e2e_ms(self) -> Distribution:
        """Last token less dispatch."""
        return self._mixed(lambda part: Distribution(since_dispatch(part, part.rows, "done_ms")))

    @cached_property
    def queue_ms(self) -> Distribution:
        """Start of the first pass that carries the request, less when the scheduler could see it."""
        return self._mixed(queue)

    @cached_property
    def tpot_ms(self) -> Distribution:
        """(last token - first token) / (osl - 1), one value a request; none for an osl of 1."""
        return self._mixed(tpot)

    @property
    def itl_request_mean_ms(self) -> Distribution:
        """A request's mean gap, one value a request, as some tools report ITL; the same number as TPOT."""
        return self.tpot_ms

    @cached_property
    def itl_ms(self) -> Distribution:
        """Gaps between successive tokens of a request, pooled over all tokens of the window."""
        return self._mixed(itl)

    @cached_property
    def startup_ttft_ms(self) -> Distribution:
        """TTFT of the first request of every client of a closed loop; empty for other traffic."""
        return self._mixed(lambda part: Distribution(part.startup_ttft_ms))

    # ---- rates

    @cached_property
    def throughput_per_s(self) -> float:
        """Requests completed a second."""
        return float(np.mean([1000.0 * part.done / part.window.length_ms for part in self._parts]))

    @cached_property
    def output_tokens_per_s(self) -> float:
        """Tokens emitted a second."""
        return float(np.mean([1000.0 * tokens(part) / part.window.length_ms for part in self._parts]))

    @cached_property
    def utilisation(self) -> float:
        """Share of the window in which the engine runs a pass."""
        return float(np.mean([busy_ms(part) / part.window.length_ms / len(part.state.ranks) for part in self._parts]))

    @cached_property
    def preemptions(self) -> int:
        """Preemptions of the window's requests."""
        return int(sum(part.state.requests["preemptions"][part.rows].sum() for part in self._parts))

    @cached_property
    def binding(self) -> Binding:
        """Which limit binds, and why: the first to lift for more throughput."""
        return binding(self._parts[0], self._timing, self._closed)

    # ---- other views

    def benchmark(self, requests: int) -> Report:
        """What a client that sends this many requests to an empty system would measure: start-up, middle and drain, exactly.

        Raises:
            SpecError: fewer than one request, or a workload that is not a closed loop.
        """
        if isinstance(requests, bool) or int(requests) != requests or requests < 1:
            raise SpecError(f"benchmark(requests={requests!r}): must be a whole number, at least 1")
        if not self._closed:
            raise SpecError("benchmark: a replay is its own benchmark; read this report instead")
        return self._again(int(requests), None)

    @cached_property
    def attractors(self) -> tuple[Attractor, ...]:
        """The limit cycles that a burst and a spread start lead to; one if they agree. Empty unless `window.kind` is `cycle`."""
        if self.window.kind != "cycle":
            return ()
        found: list[Attractor] = []
        for start in ("burst", "spread"):
            other = self._again(None, start)
            new = Attractor(start, other.ttft_ms.mean, other.throughput_per_s)
            if all(abs(new.ttft_mean_ms / old.ttft_mean_ms - 1) > 1e-6 for old in found):
                found.append(new)
        return tuple(found)

    def token_ms(self, request: int) -> list[float]:
        """When each output token of a request appears; `request` as in `requests()`.

        Raises:
            SpecError: a request that the log does not hold.
        """
        return [float(t) for t in self._token_times(self._parts[0], request)]

    def _token_times(self, part: Measured, request: int) -> Any:
        at = request - part.first_id
        if not 0 <= at < part.rows.stop - part.rows.start:
            last = part.first_id + part.rows.stop - part.rows.start - 1
            raise SpecError(f"request={request}: the log holds {part.first_id} to {last}; take one of these")
        row = part.state.requests[part.rows.start + at]
        numbers, ends = self._pass_ends
        first = int(row["first_pass"])
        low = int(np.searchsorted(numbers, first))
        high = int(np.searchsorted(ends, row["done_ms"] * (1 - 1e-12)))
        keep = ~self._pauses[low : high + 1]
        keep[0] = True
        for stall in part.state.stalls[: int(part.state.world[0]["stalls"])]:
            if stall["request"] == part.rows.start + at:
                resumed = int(stall["to_pass"]) - first
                keep[int(stall["from_pass"]) - first + 1 : resumed] = False
                keep[resumed] = True
        return ends[low : high + 1][keep]

    @cached_property
    def _pass_ends(self) -> tuple[Any, Any]:
        part = self._parts[0]
        last = slice(part.runs.start, logged_runs(part))
        row, _, ends = expand(part.state, last)
        heads = np.cumsum(part.state.runs["count"][last]) - part.state.runs["count"][last]
        offset = np.arange(len(row)) - heads[row - last.start]
        return part.state.runs["number"][row] + offset, ends

    @cached_property
    def _pauses(self) -> Any:
        """For every pass of the log, whether it pauses all running requests: the next pass with decode rows ends late gaps."""
        part = self._parts[0]
        row, _, _ = expand(part.state, slice(part.runs.start, logged_runs(part)))
        decodes = part.state.runs["decode_requests"][row] > 0
        late = np.append(part.state.runs["late_gaps"][row[decodes]] > 0, False)
        return ~decodes & late[np.cumsum(decodes)]

    def requests(self) -> pd.DataFrame:
        """One row a request of the window, in dispatch order; see `columns.REQUEST_COLUMNS`."""
        from passcal.columns import request_frame

        return request_frame(self._parts)

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


def since_dispatch(part: Measured, rows: slice, field: str) -> Any:
    """An event of these requests less their dispatch."""
    table = part.state.requests
    return table[field][rows] - table["dispatch_ms"][rows]


def queue(part: Measured) -> Distribution:
    """Wait of the window's requests from visibility to the start of their first pass."""
    table = part.state.requests[part.rows]
    return Distribution(table["admitted_ms"] - table["visible_ms"])


def tpot(part: Measured) -> Distribution:
    """Time per output token of the window's requests."""
    table = part.state.requests[part.rows]
    more = table["osl"] > 1
    if not more.all():
        table = table[more]
    return Distribution((table["done_ms"] - table["first_ms"]) / (table["osl"] - 1))


def itl(part: Measured) -> Distribution:
    """Gaps of the window: every pass stands for its rows whose token before came one pass earlier, and for those that prefill passes
    paused since; the others are listed.
    """
    values, weights = gaps(part.state, part.runs)
    runs, listed = part.state.runs[part.runs], part.state.stalls["gap_ms"][part.stalls]
    late = runs[runs["late_gaps"] > 0]
    if not len(listed) and not len(late):
        return Distribution(values, weights)
    return Distribution(
        np.concatenate([values, late["late_gap_ms"], listed]),
        np.concatenate([weights, late["late_gaps"], np.ones(len(listed), weights.dtype)]),
    )


def tokens(part: Measured) -> int:
    """Tokens emitted in the window."""
    if part.window.kind != "window":
        return int(part.state.requests["osl"][part.rows].sum())
    table = part.state.requests
    mean = float(table["osl"][part.rows].mean())
    return round(mean * part.done)


def busy_ms(part: Measured) -> float:
    """Time that the window's passes take."""
    return float((part.state.runs["end_ms"][part.runs] - part.state.runs["start_ms"][part.runs]).sum())


def logged_runs(part: Measured) -> int:
    """Rows of the log in use."""
    return int(part.state.world[0]["runs"])


def binding(part: Measured, timing: TimingModel, closed: bool) -> Binding:
    """What kept the queue's head out most of the time; if nothing did, what the passes spend their time on."""
    runs = part.state.runs[part.runs]
    took = runs["end_ms"] - runs["start_ms"]
    length = part.window.length_ms
    shares = {name: float(took[runs["held_by"] == code].sum()) / length for code, name in HELD.items()}
    worst = max(shares, key=lambda name: shares[name])
    if shares[worst] > OFTEN:
        return Binding(worst, f"{worst} keep requests waiting {shares[worst]:.0%} of the time")
    busy = float(took.sum())
    if busy < 0.95 * length:
        return Binding("clients", f"nothing waits, and the engine idles {1 - busy / length:.0%} of the time")
    count = runs["count"]
    rows = runs["decode_requests"]
    decoding = count[rows > 0].sum()
    mixed = runs["prefill_requests"] > 0
    if not decoding or float(took[mixed].sum()) == busy:
        return Binding("prefill", "every pass carries prompt tokens")
    mean_rows = max(1, round(float((rows * count).sum()) / float(decoding)))
    context = int(float((runs["decode_kv_tokens"] * count).sum()) / float(decoding))
    many = timing.pass_ms(PassShape(decode_requests=mean_rows, decode_kv_tokens=context))
    one = timing.pass_ms(PassShape(decode_requests=1, decode_kv_tokens=context // mean_rows))
    prefill = max(0.0, busy - many * float(decoding)) / busy
    if prefill > 0.5:
        return Binding("prefill", f"{prefill:.0%} of the time goes into prompts")
    if many > 2.0 * one:
        return Binding("decode", f"a pass of {mean_rows} rows takes {many / one:.1f} times one of a lone row")
    who = "one more client" if closed else "one more request"
    return Binding("clients", f"nothing waits, and {who} shares passes that are mostly fixed cost")
