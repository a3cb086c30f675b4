"""What holds for ranks that pass together, on every backend, whatever the traffic (E1, S18, T7)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES
from tests.worlds import CLOCK, World, shapes, token_times

pytestmark = pytest.mark.slow

WIDTH = {"vllm": "data_parallel_size", "sglang": "dp_size", "trtllm": "attention_dp"}
TIMEOUT = {"timeout_iters": 4, "batching_wait_iters": 2}


@st.composite
def grouped_worlds(draw: st.DrawFn, name: str) -> tuple[World, int]:
    """Clients of one worker with several ranks, and how many; options are drawn as for one rank, and a worker's are its ranks' together."""
    mode, ranks = MODES[name], draw(st.integers(2, 4))
    rows = draw(shapes(5, mode.prefixes))
    engine: dict[str, Any] = draw(mode.options(rows)) | {WIDTH[mode.backend]: ranks}
    for option in ("max_running_requests", "chunked_prefill_size"):
        if engine.get(option, 0) > 0:
            engine[option] *= ranks
    if mode.backend == "trtllm":
        engine["batch_wait_timeout_iters"] = 0
        if draw(st.booleans()):
            engine["attention_dp_balance"] = TIMEOUT
    traffic = {"shapes": rows, "concurrency": draw(st.integers(1, 16)), "requests": draw(st.integers(1, 40))}
    return World(True, traffic, engine, backend=mode.backend), ranks


@pytest.mark.parametrize("name", MODES)
def test_ranks_pass_together_and_lose_nothing(name: str):
    """Passes of one start have one end; requests get their tokens on their rank; latencies are those of the tokens."""

    @given(grouped_worlds(name))
    def holds(asked: tuple[World, int]) -> None:
        world, ranks = asked
        report = world.ask()
        frame, passes, tokens = report.requests(), report.passes(), token_times(report)
        assert (passes.groupby("start_ms")["end_ms"].nunique() == 1).all()
        ordered = passes.drop_duplicates("start_ms").sort_values("start_ms")
        assert (ordered["start_ms"].to_numpy()[1:] >= ordered["end_ms"].to_numpy()[:-1]).all()
        assert not passes.duplicated(["engine", "start_ms"]).any() and frame["rank"].max() < ranks
        assert [len(row) for row in tokens] == frame["osl"].tolist()
        ends = {engine: group["end_ms"].to_numpy() for engine, group in passes.groupby("engine")}
        for rank, times in zip(frame["rank"], tokens, strict=True):
            assert np.isin(times, ends[rank]).all() and (np.diff(times) > 0).all()
        gaps = np.sort(np.concatenate([np.diff(row) for row in tokens]))
        pooled = np.sort(np.repeat(report.itl_ms.values, report.itl_ms.weights))
        np.testing.assert_allclose(pooled, gaps, rtol=1e-9, atol=1e-9)
        if not report.preemptions:
            cached = world.cached(frame["prefix"])
            assert passes["prefill_tokens"].sum() == (frame["isl"] - cached).sum()
            assert passes["decode_requests"].sum() == (frame["osl"] - 1).sum()

    holds()


@pytest.mark.parametrize("name", MODES)
def test_a_lone_client_is_one_ranks(name: str):
    """Beside ranks without work it is served as by a worker of one rank, where an empty pass costs no more than its own."""
    mode = MODES[name]
    engine = pc.engine(mode.backend, **mode.fixed)
    group = pc.engine(mode.backend, **mode.fixed | {WIDTH[mode.backend]: 3})
    loop = pc.Workload.closed_loop(shapes=[(300, 20), (200, 3)], concurrency=1, requests=9)
    alone, among = (pc.evaluate(loop, spec, CLOCK).requests() for spec in (engine, group))
    assert among[list(alone.columns)].equals(alone)
