"""What screen() takes and gives: every column is read or refused, and a row does not depend on the others."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.columns import COLUMNS
from tools.screening.draw import EXTRA, draw

WORKLOAD = pc.Workload.closed_loop(isl=1000, osl=50, concurrency=20)
TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 5e-7), decode=(8.0, 0.05, 2e-6), combine="shared")


def figures(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[[*COLUMNS, "regime"]]


@pytest.mark.slow
def test_the_uncompiled_screener_says_the_same():
    code = (
        "import sys, passcal as pc\n"
        "from tools.screening.draw import EXTRA, draw\n"
        "pc.screen(draw(40, 4).drop(columns=[*EXTRA])).to_pickle(sys.argv[1])"
    )
    found = []
    for mode in ("", "1"):
        with tempfile.TemporaryDirectory() as folder:
            place = Path(folder) / "found"
            subprocess.run(
                [sys.executable, "-c", code, place], env=os.environ | {"PASSCAL_INTERPRET": mode}, check=True
            )
            found.append(pd.read_pickle(place))
    pd.testing.assert_frame_equal(*found, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "times"), [(None, 2500), ("few", 4200), (500, 4200)])
def test_a_row_is_the_same_alone_as_among_many(steps, times):
    candidates = draw(4, 9).drop(columns=[*EXTRA])
    many = pc.screen(pd.concat([candidates] * times, ignore_index=True), steps=steps)
    for k in range(len(candidates)):
        alone = pc.screen(candidates.iloc[[k]], steps=steps)
        for at in (k, k + 4 * (times - 1)):  # of 16,800 rows beyond a chunk
            row = many.iloc[[at]].reset_index(drop=True)
            pd.testing.assert_frame_equal(figures(row), figures(alone.reset_index(drop=True)), check_exact=True)


@pytest.mark.slow
def test_small_tables_are_gone_through_and_large_ones_a_little():
    """Left alone, 10,000 rows are what 60,000 steps say, and a row more is what a few say; a column tells which rows are cycles."""
    row = draw(30, 9).drop(columns=[*EXTRA]).iloc[[28]]
    kinds = {steps: figures(pc.screen(row, steps=steps)).reset_index(drop=True) for steps in ("few", 60_000)}
    assert not kinds["few"].equals(kinds[60_000])
    for count, steps in ((10_000, 60_000), (10_001, "few")):
        found = pc.screen(row.loc[row.index.repeat(count)])
        pd.testing.assert_frame_equal(figures(found.iloc[[-1]]).reset_index(drop=True), kinds[steps])
        assert set(found["window_kind"]) == {"cycle" if steps == 60_000 else "closed form"}


def test_columns_and_index():
    found = pc.screen(pd.DataFrame({"backend": ["vllm", "sglang"]}, index=["a", "b"]), WORKLOAD, TIMING)
    assert list(found.columns) == ["backend", *COLUMNS, "regime"]
    assert list(found.index) == ["a", "b"]
    assert set(found["queueing_tier"]) == {"screening"}


def test_columns_replace_workload_and_timing():
    names = {"isl": 1000, "osl": 50, "concurrency": 20, "a0": 5.0, "a1": 0.02, "a2": 1e-6, "a3": 5e-7}
    row = {"backend": "vllm", **names, "d0": 8.0, "d1": 0.05, "d2": 2e-6, "combine": "shared"}
    pd.testing.assert_frame_equal(
        figures(pc.screen([row])), figures(pc.screen([{"backend": "vllm"}], WORKLOAD, TIMING))
    )
    other = pc.screen([row | {"isl": 2000}], WORKLOAD, TIMING)
    assert other["ttft_steady_mean"][0] > pc.screen([row])["ttft_steady_mean"][0]


def test_no_value_is_the_engines_default():
    told = [{"backend": "vllm", "max_num_seqs": 256, "async_scheduling": True}, {"backend": "trtllm"}]
    left = [{"backend": "vllm", "max_num_seqs": None}, {"backend": "trtllm", "max_batch_size": 256}]
    pd.testing.assert_frame_equal(
        figures(pc.screen(told, WORKLOAD, TIMING)), figures(pc.screen(left, WORKLOAD, TIMING))
    )


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ({"backend": "tgi"}, "backend"),
        ({}, "backend"),
        ({"backend": "vllm", "max_batch_size": 4}, "max_batch_size"),
        ({"backend": "vllm", "colour": 4}, "colour"),
        ({"backend": "vllm", "throughput_rps": 4.0}, "throughput_rps"),
        ({"backend": "vllm", "isl": 0}, "isl"),
        ({"backend": "vllm", "osl": 2.5}, "osl"),
        ({"backend": "vllm", "prefix": 1000}, "prefix"),
        ({"backend": "vllm", "concurrency": 0}, "concurrency"),
        ({"backend": "vllm", "turnaround_ms": -1.0}, "turnaround_ms"),
        ({"backend": "vllm", "rate_per_s": -1.0}, "rate_per_s"),
        ({"backend": "vllm", "rate_per_s": 1.0, "concurrency": 4}, "rate_per_s"),
        ({"backend": "vllm", "max_num_batched_tokens": 100}, "max_num_batched_tokens"),
        ({"backend": "vllm", "max_num_seqs": "many"}, "max_num_seqs"),
        ({"backend": "trtllm", "max_num_tokens": 20}, "max_num_tokens"),
        ({"backend": "vllm", "a0": 1.0, "d0": 1.0, "combine": "most"}, "combine"),
        ({"backend": "vllm", "a0": -1.0, "d0": 1.0}, "a0"),
        ({"backend": "vllm", "a1": 1.0}, "timing"),
    ],
)
def test_what_cannot_be_is_refused_by_name(row, text):
    with pytest.raises(pc.SpecError, match=text) as refusal:
        pc.screen(pd.DataFrame([row], index=[0]), WORKLOAD, TIMING)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    "workload",
    [
        pc.Workload.closed_loop(shapes=((1000, 50), (200, 9)), concurrency=3),
        pc.Workload.closed_loop(isl=10, osl=5, concurrency=3, requests=30),
        pc.Workload.closed_loop(isl=10, osl=5, concurrency=3, stagger_ms=1.0),
        pc.Workload.replay([(0.0, 10, 5)]),
        pc.Workload.open_loop(isl=10, osl=5, rate_per_s=1.0, arrivals="constant"),
        pc.Workload.open_loop(isl=10, osl=5, rate_per_s=1.0, horizon_requests=10),
        pc.Workload.closed_loop(isl=pc.Lengths.uniform(10, 20), osl=5, concurrency=3),
    ],
)
def test_other_traffic_is_refused(workload):
    with pytest.raises(pc.Unsupported, match="closed loop"):
        pc.screen([{"backend": "vllm"}], workload, TIMING)


def test_a_prefix_on_trtllm_is_refused_as_the_evaluator_does():
    with pytest.raises(pc.Unsupported, match="prefix"):
        pc.screen([{"backend": "trtllm", "prefix": 8}], WORKLOAD, TIMING)


@pytest.mark.parametrize(
    "options",
    [
        {"backend": "vllm", "enable_chunked_prefill": False},
        {"backend": "vllm", "long_prefill_token_threshold": 64},
        {"backend": "vllm", "data_parallel_size": 2},
        {"backend": "vllm", "speculation": pc.Speculation(drafts=2, accepted=1)},
        {"backend": "vllm", "max_model_len": 1020},
        {"backend": "sglang", "page_size": 16},
        {"backend": "sglang", "chunked_prefill_size": -1},
        {"backend": "sglang", "prefill_decode_interval": 2},
        {"backend": "trtllm", "capacity_policy": "STATIC_BATCH"},
        {"backend": "trtllm", "chunk_policy": "EQUAL_PROGRESS"},
    ],
)
def test_an_option_outside_the_closed_form_leaves_the_row_to_the_evaluator(options):
    found = pc.screen([options], WORKLOAD, TIMING).iloc[0]
    assert found["regime"] == "refine"
    assert np.isnan(found["throughput_rps"])
    assert (found["ttft_steady_p99_lo"], found["ttft_steady_p99_hi"]) == (0.0, np.inf)


@pytest.mark.parametrize(
    ("backend", "name", "enough", "few"),
    [
        ("vllm", "num_gpu_blocks", 20 * 66 + 1, 400),
        ("sglang", "max_total_tokens", 20 * 1052 + 1, 6000),
        ("trtllm", "max_tokens_in_kv", 20 * 1056, 6000),
    ],
)
def test_kv_that_holds_all_changes_nothing_and_less_of_it_binds(backend, name, enough, few):
    free = pc.screen([{"backend": backend}], WORKLOAD, TIMING)
    wide, tight = (pc.screen([{"backend": backend, name: size}], WORKLOAD, TIMING) for size in (enough, few))
    pd.testing.assert_frame_equal(figures(free), figures(wide))
    row = tight.iloc[0]
    assert (row["regime"], row["binding"]) == ("kv", "kv")
    assert np.isinf(row["ttft_steady_p99_hi"])
    report = pc.evaluate_closed_loop(WORKLOAD, pc.engine(backend, **{name: few}), TIMING)
    assert row["throughput_rps"] == pytest.approx(report.throughput_per_s, rel=0.25)


def test_callbacks_are_asked_where_a_candidate_runs():
    phase = pc.PhaseTiming(
        lambda batch, isl, prefix: 5.0 + 0.02 * batch * (isl - prefix),
        lambda batch, context: 8.0 + batch * (0.05 + 2e-6 * context),
    )
    linear = pc.LinearTiming(prefill=(5.0, 0.02), decode=(8.0, 0.05, 2e-6))
    asked, known = (pc.screen([{"backend": "vllm"}], WORKLOAD, timing).iloc[0] for timing in (phase, linear))
    for name in ("throughput_rps", "ttft_steady_mean", "itl_p99"):
        assert asked[name] == pytest.approx(known[name], rel=1e-6)
    assert (asked["ttft_steady_p99_lo"], asked["ttft_steady_p99_hi"]) == (0.0, np.inf)


def test_passes_that_cost_nothing_are_left_to_the_evaluator():
    found = pc.screen([{"backend": "vllm"}], WORKLOAD, pc.LinearTiming(prefill=(0.0,), decode=(0.0,))).iloc[0]
    assert (found["regime"], found["ttft_steady_p99_lo"]) == ("refine", 0.0)


def test_an_empty_table_stays_empty():
    candidates = draw(2, 1).drop(columns=[*EXTRA]).iloc[:0]
    assert len(pc.screen(candidates)) == 0
