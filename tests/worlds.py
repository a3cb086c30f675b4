"""Small worlds to evaluate: strategies that draw them, and what can be read off a report."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import strategies as st

import passcal as pc

CLOCK = pc.LinearTiming(prefill=(5.0, 0.0203, 1.3e-6, 2.1e-7), decode=(8.0, 0.0517, 2.3e-6))


@dataclass(frozen=True)
class World:
    """A question, as keyword arguments so that a test can vary them."""

    closed: bool
    traffic: dict[str, Any]
    engine: dict[str, Any]
    timing: pc.LinearTiming = CLOCK

    @cached_property
    def workload(self) -> Any:
        """The workload."""
        return (pc.Workload.closed_loop if self.closed else pc.Workload.replay)(**self.traffic)

    @cached_property
    def spec(self) -> pc.Vllm:
        """The engine; without a prefix cache unless told otherwise."""
        return pc.Vllm(**{"enable_prefix_caching": False} | self.engine)

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
def shapes(draw: st.DrawFn, most: int) -> list[tuple[int, int, int]]:
    """Rows (isl, prefix, osl)."""
    rows = []
    for _ in range(draw(st.integers(1, most))):
        isl = draw(st.integers(1, 700))
        prefix = draw(st.one_of(st.just(0), st.integers(0, isl - 1)))
        rows.append((isl, prefix, draw(st.one_of(st.integers(1, 6), st.integers(20, 90)))))
    return rows


@st.composite
def engines(draw: st.DrawFn, rows: list[tuple[int, int, int]]) -> dict[str, Any]:
    """Options under which all of these rows can run; KV is often tight."""
    seats = draw(st.sampled_from([64, 5, 2, 1]))
    chunked = draw(st.booleans())
    longest = max(isl + osl for isl, _, osl in rows)
    options: dict[str, Any] = {
        "async_scheduling": draw(st.booleans()),
        "max_num_seqs": seats,
        "max_num_batched_tokens": draw(st.integers(max(seats, 1 if chunked else longest), 1500)),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 0, 64, 256])),
    }
    if draw(st.sampled_from([True, True, False])):
        size = draw(st.sampled_from([1, 16, 32]))
        needed = -(-longest // size) + 1
        options |= {
            "block_size": size,
            "num_gpu_blocks": draw(st.integers(needed, 2 * needed)),
            "scheduler_reserve_full_isl": draw(st.booleans()),
            "watermark": draw(st.sampled_from([0.0, 0.0, 0.05])),
        }
    return options


@st.composite
def closed_worlds(draw: st.DrawFn, endless: bool = False) -> World:
    """Clients in a closed loop."""
    rows = draw(shapes(5 if not endless else 2))
    traffic = {"shapes": rows, "concurrency": draw(st.integers(1, 12))} | draw(planes)
    traffic |= {} if endless else {"requests": draw(st.integers(1, 40))}
    traffic |= draw(st.sampled_from([{}, {}, {"stagger_ms": 13.0}]))
    return World(True, traffic, draw(engines(rows)))


@st.composite
def replay_worlds(draw: st.DrawFn) -> World:
    """Requests at given times, often at the same."""
    rows = draw(shapes(30))
    sent, now = [], 0.0
    for isl, prefix, osl in rows:
        now += draw(st.sampled_from([0.0, 0.0, 1.7, 23.1, 23.1, 400.3]))
        sent.append((now, isl, prefix, osl))
    return World(False, {"rows": sent} | draw(planes), draw(engines(rows)))


worlds = st.one_of(closed_worlds(), replay_worlds())


def token_times(report: pc.Report) -> list[np.ndarray]:
    """When each token of each request appears, in the order of `requests()`."""
    return [np.array(report.token_ms(int(number))) for number in report.requests()["request"]]


def times(report: pc.Report) -> pd.DataFrame:
    """The requests without their lengths: what a scheduler decides."""
    return report.requests()[["dispatch_ms", "visible_ms", "admitted_ms", "first_ms", "done_ms", "preemptions"]]


def same(one: pc.Report, other: pc.Report) -> bool:
    """Whether two reports hold the same requests and passes, bit for bit."""
    return one.requests().equals(other.requests()) and one.passes().equals(other.passes())
