"""Small worlds to evaluate: strategies that draw them in every mode of every backend, and what can be read off a report."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, update_wrapper
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES, Limits, Mode, limits, pooled

CLOCK = pc.LinearTiming(prefill=(5.0, 0.0203, 1.3e-6, 2.1e-7), decode=(8.0, 0.0517, 2.3e-6))


@dataclass(frozen=True)
class World:
    """A question, as keyword arguments so that a test can vary them."""

    closed: bool
    traffic: dict[str, Any]
    engine: dict[str, Any]
    timing: pc.LinearTiming = CLOCK
    backend: str = "vllm"

    @cached_property
    def workload(self) -> Any:
        """The workload."""
        if "lanes" in self.traffic:
            return pc.Workload.sessions(**self.traffic)
        return (pc.Workload.closed_loop if self.closed else pc.Workload.replay)(**self.traffic)

    @property
    def requests(self) -> int:
        """How many requests are sent."""
        return self.traffic.get("requests") or len(self.workload.rows)

    @property
    def plane(self) -> dict[str, float]:
        """The arrival plane."""
        return {name: self.traffic[name] for name in ("turnaround_ms", "ingest_us_per_token") if name in self.traffic}

    @cached_property
    def spec(self) -> Any:
        """The engine; vLLM without a prefix cache unless told otherwise."""
        quiet = {"enable_prefix_caching": False} if self.backend == "vllm" else {}
        return pc.engine(self.backend, **quiet | self.engine)

    @cached_property
    def limits(self) -> Limits:
        """What no pass may exceed."""
        return limits(self.spec)

    def cached(self, prefix: Any) -> Any:
        """Tokens of a prefix that are hit: SGLang takes whole pages."""
        return prefix // self.spec.page_size * self.spec.page_size if self.backend == "sglang" else prefix

    def with_kv(self, tokens: int | None) -> "World":
        """The same world with so many tokens of KV, or memory that never binds."""
        return self.but(engine=pooled(self.spec, tokens))

    def ask(self, **options: Any) -> pc.Report:
        """The report."""
        return pc.evaluate(self.workload, self.spec, self.timing, **options)

    def but(
        self, traffic: dict[str, Any] | None = None, engine: dict[str, Any] | None = None, **fields: Any
    ) -> "World":
        """The same world with some arguments changed."""
        return replace(self, traffic=self.traffic | (traffic or {}), engine=self.engine | (engine or {}), **fields)

    def __hash__(self) -> int:
        return id(self)


planes = st.fixed_dictionaries(
    {},
    optional={"turnaround_ms": st.sampled_from([0.0, 2.5, 40.0]), "ingest_us_per_token": st.sampled_from([0.0, 3.6])},
)


@st.composite
def shapes(draw: st.DrawFn, most: int, prefixes: bool = True) -> list[tuple[int, int, int]]:
    """Rows (isl, prefix, osl)."""
    rows = []
    for _ in range(draw(st.integers(1, most))):
        isl = draw(st.one_of(st.integers(1, 60), st.integers(1, 700)))
        prefix = draw(st.one_of(st.just(0), st.integers(0, isl - 1))) if prefixes else 0
        rows.append((isl, prefix, draw(st.one_of(st.integers(1, 6), st.integers(20, 90)))))
    return rows


@st.composite
def closed_worlds(draw: st.DrawFn, mode: Mode, endless: bool = False) -> World:
    """Clients in a closed loop."""
    rows = draw(shapes(2 if endless else 5, mode.prefixes))
    traffic = {"shapes": rows, "concurrency": draw(st.integers(1, 12))} | draw(planes)
    traffic |= {} if endless else {"requests": draw(st.integers(1, 40))}
    traffic |= draw(st.sampled_from([{}, {}, {"stagger_ms": 13.0}]))
    return World(True, traffic, draw(mode.options(rows)), backend=mode.backend)


@st.composite
def pressed_worlds(draw: st.DrawFn, mode: Mode, endless: bool = False) -> World:
    """Clients in a closed loop whose outputs outgrow the KV, so that engines that may evict do."""
    rows = [(draw(st.integers(1, 120)), 0, draw(st.integers(30, 90))) for _ in range(draw(st.integers(1, 3)))]
    needed = max(isl + osl for isl, _, osl in rows) + 64
    traffic = {"shapes": rows, "concurrency": draw(st.integers(4, 12))} | draw(planes)
    traffic |= {} if endless else {"requests": draw(st.integers(8, 30))}
    budget, kv = draw(st.integers(128, 600)), draw(st.integers(needed, 2 * needed))
    engine = mode.pressed(draw(st.sampled_from([64, 8])), budget, kv, draw(st.sampled_from([1, 16])))
    return World(True, traffic, engine, backend=mode.backend)


def endless_worlds(mode: Mode) -> st.SearchStrategy[World]:
    """Clients that go on for ever."""
    return st.one_of(closed_worlds(mode, endless=True), pressed_worlds(mode, endless=True))


@st.composite
def replay_worlds(draw: st.DrawFn, mode: Mode) -> World:
    """Requests at given times, often at the same."""
    rows = draw(shapes(30, mode.prefixes))
    sent, now = [], 0.0
    for isl, prefix, osl in rows:
        now += draw(st.sampled_from([0.0, 0.0, 1.7, 23.1, 23.1, 400.3]))
        sent.append((now, isl, prefix, osl))
    return World(False, {"rows": sent} | draw(planes), draw(mode.options(rows)), backend=mode.backend)


@st.composite
def limited_worlds(draw: st.DrawFn, mode: Mode) -> World:
    """The same through a client that sends only so many at a time."""
    return draw(replay_worlds(mode)).but({"max_concurrency": draw(st.sampled_from([1, 2, 5, 12, 40]))})


@st.composite
def session_worlds(draw: st.DrawFn, mode: Mode) -> World:
    """Lanes of turns, some with calls; several often send at one instant."""
    lanes: list[list[dict[str, Any]]] = []
    rows = []
    for _ in range(draw(st.integers(1, 6))):
        lanes.append([])
        for isl, prefix, osl in draw(shapes(4, mode.prefixes)):
            calls = draw(st.one_of(st.just([]), st.just([]), shapes(2, mode.prefixes)))
            think = draw(st.sampled_from([0.0, 0.0, 1.7, 23.1, 400.3]))
            lanes[-1].append({"isl": isl, "prefix": prefix, "osl": osl, "think_ms": think, "calls": calls})
            rows += [(isl, prefix, osl), *calls]
    traffic = {"lanes": lanes} | draw(planes) | draw(st.sampled_from([{}, {}, {"stagger_ms": 13.0}]))
    return World(False, traffic, draw(mode.options(rows)), backend=mode.backend)


def worlds(mode: Mode) -> st.SearchStrategy[World]:
    """All of these."""
    drawn = closed_worlds, replay_worlds, pressed_worlds, limited_worlds, session_worlds
    return st.one_of(*(make(mode) for make in drawn))


def everywhere(
    strategy: Callable[[Mode], st.SearchStrategy[World]], *more: st.SearchStrategy[Any], share: float = 1.0
) -> Callable[[Callable[..., None]], Callable[[str], None]]:
    """Hold a property of worlds (and of what `more` draws) in every mode of every backend; `share`: of the profile's examples."""

    def decorate(test: Callable[..., None]) -> Callable[[str], None]:
        held: dict[str, Callable[[], None]] = {}
        for name, mode in MODES.items():
            examples = settings(max_examples=round(settings.default.max_examples * mode.share * share))
            held[name] = examples(given(strategy(mode), *more)(test))

        def in_mode(mode: str) -> None:
            held[mode]()

        update_wrapper(in_mode, test)
        del in_mode.__wrapped__  # or pytest would ask for the test's own arguments
        return pytest.mark.parametrize("mode", MODES)(in_mode)

    return decorate


def token_times(report: pc.Report) -> list[np.ndarray]:
    """When each token of each request appears, in the order of `requests()`."""
    return [np.array(report.token_ms(int(number))) for number in report.requests()["request"]]


def times(report: pc.Report) -> pd.DataFrame:
    """The requests without their lengths: what a scheduler decides."""
    return report.requests()[["dispatch_ms", "visible_ms", "admitted_ms", "first_ms", "done_ms", "preemptions"]]


def same(one: pc.Report, other: pc.Report) -> bool:
    """Whether two reports hold the same requests and passes, bit for bit."""
    return one.requests().equals(other.requests()) and one.passes().equals(other.passes())
