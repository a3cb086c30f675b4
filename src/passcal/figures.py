"""What a run comes to: latencies, rates, memory, and what binds, each an array function of the log."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

from passcal import samples, splits
from passcal.binding import Binding, binding, thrash
from passcal.binding_apart import binding_apart
from passcal.distribution import Distribution
from passcal.passes import Usage, together, usage
from passcal.timing.base import TimingModel
from passcal.window import Measured, WindowInfo

__all__ = ["Figures"]


class Figures:
    """Distributions are in milliseconds; a sample is what `window` says. `parts` holds one `Measured` for each phase, which count equally;
    `timings` the timing model of each stage.
    """

    def __init__(
        self, parts: tuple[Measured, ...], timings: tuple[TimingModel, ...], closed: bool, arrivals_ms: Any = None
    ) -> None:
        self.parts = parts
        self.timings = timings
        self.closed = closed
        self.arrivals_ms = arrivals_ms
        """When each request of the run was due (ms), by its number, where clients may keep requests back; None: all are sent when due."""

    @property
    def window(self) -> WindowInfo:
        """What the figures are averages over (of the first phase, if there are several)."""
        return self.parts[0].window

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages that requests pass, in order."""
        state = self.parts[0].state
        if len(state.stages) == 1:
            return ("engine",)
        return (
            ("encoder", "engine") if state.hops["fresh"][-1] else ("encoder", "prefill", "decode")[-len(state.stages) :]
        )

    # ---- latencies

    def _mixed(self, sample: Callable[[Measured], Distribution]) -> Distribution:
        return Distribution.mix([sample(part) for part in self.parts])

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
    def ttft_split_ms(self) -> dict[str, Distribution]:
        """TTFT in the parts that add up to it, request by request: `plane` (until the scheduler sees it), `queue`, `encode`, `prefill`, and, where the
        first token is shown on the decode side, `hold`, `transfer`, `attach` and `first_pass` (D2); zero where a part does not apply.
        """
        found = [splits.ttft_split(part) for part in self.parts]
        return {name: Distribution.mix([Distribution(parts[name]) for parts in found]) for name in splits.SPLIT}

    @cached_property
    def hand_off_ms(self) -> dict[str, Distribution]:
        """Of the requests that went from prefill to decode: `hold` (from the end of prefill to the transfer), `transfer`, and `attach` (until a decode
        pass carries it), wherever the first token is shown; empty where nothing is handed over.
        """
        if "decode" not in self.stages:
            return {}
        found = [splits.hand_off(part) for part in self.parts]
        return {name: Distribution.mix([Distribution(parts[name]) for parts in found]) for name in splits.HAND_OFF}

    @cached_property
    def staging_stalls(self) -> int:
        """Hand-offs of the window that had to wait for memory of their decode rank (D6)."""
        return sum(map(splits.staging_stalls, self.parts))

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
        found = [figure(part, used) for part, used in zip(self.parts, map(together, self.usages), strict=True)]
        return sum(found) / len(found)

    @cached_property
    def usages(self) -> tuple[tuple[Usage, ...], ...]:
        """Sums over the passes of each phase and stage."""
        stages = range(len(self.stages))
        return tuple(tuple(usage(part.state, part.runs, stage) for stage in stages) for part in self.parts)

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
        ranks = self.parts[0].state.stages["ranks"].tolist()
        return sum(n * int(getattr(timing, "gpus", 1)) for n, timing in zip(ranks, self.timings, strict=True))

    @property
    def output_tokens_per_s_per_gpu(self) -> float:
        """Tokens emitted a second, divided by `gpus` (E3)."""
        return self.output_tokens_per_s / self.gpus

    @cached_property
    def utilisation(self) -> float:
        """Share of the window in which a rank runs a pass."""
        return self._mean(lambda part, used: part.window.share(used.busy_ms) / len(part.state.ranks))

    @cached_property
    def stage_utilisation(self) -> dict[str, float]:
        """By stage: the share of the window in which a rank runs a pass."""
        phases = range(len(self.parts))
        return {
            name: sum(self._busy(phase, stage) for phase in phases) / len(phases)
            for stage, name in enumerate(self.stages)
        }

    def _busy(self, phase: int, stage: int) -> float:
        part = self.parts[phase]
        return part.window.share(self.usages[phase][stage].busy_ms) / int(part.state.stages["ranks"][stage])

    @cached_property
    def binding(self) -> Binding:
        """Which limit binds, and why: the first to lift for more throughput."""
        part, usages = self.parts[0], self.usages[0]
        if "decode" in self.stages and not thrash((part,), (together(usages),)):
            return binding_apart(part, usages, self.timings, self.closed)
        return binding(part, usages[-1], self.timings[-1], self.closed)

    # ---- memory

    @cached_property
    def preemptions(self) -> int:
        """Evictions of the window's requests against their will, whatever the engine calls them: preemptions (vLLM, V8), retractions
        (SGLang, S13), pauses (TensorRT-LLM, T12).
        """
        return sum(int(part.state.requests["preemptions"][part.rows].sum()) for part in self.parts)

    @property
    def retractions(self) -> int:
        """The same number as `preemptions`, by SGLang's name."""
        return self.preemptions

    @cached_property
    def recomputed_tokens(self) -> int:
        """Tokens of prompts and outputs whose KV was lost to an eviction and computed again in the window's passes."""
        return int(sum(used.recomputed for usages in self.usages for used in usages))

    @cached_property
    def wasted_prefill_share(self) -> float:
        """Recomputed tokens as a share of all tokens that the window's chunks computed."""
        return self._mean(lambda _, used: used.recomputed / (used.prefill_tokens or 1.0))

    @cached_property
    def block_utilisation(self) -> float:
        """Share of KV (of the decode pool, if it is apart) that requests hold, averaged over the window's time; NaN where KV is not counted."""
        shares = [
            share_of_kv(part, part.window.share(usages[-1].block_ms))
            for part, usages in zip(self.parts, self.usages, strict=True)
        ]
        return sum(shares) / len(shares)

    @cached_property
    def block_utilisation_peak(self) -> float:
        """The largest share of a rank's KV (of the decode pool, if it is apart) that its requests hold at a time; NaN where KV is not counted."""
        return max(
            share_of_kv(part, usages[-1].peak_blocks * int(part.state.stages["ranks"][-1]))
            for part, usages in zip(self.parts, self.usages, strict=True)
        )


def tokens(part: Measured) -> int:
    """Tokens emitted in the window."""
    osl = part.state.requests["osl"][part.rows]
    return int(osl.sum()) if part.window.kind != "window" else round(float(osl.mean()) * part.done)


def share_of_kv(part: Measured, blocks: float) -> float:
    """So many blocks, over all ranks, as a share of what there is; NaN where KV is not counted."""
    ranks = part.state.ranks[int(part.state.stages["first"][-1]) :]
    return blocks / float(ranks["usable"].sum()) if ranks["memory"][0] else float("nan")
