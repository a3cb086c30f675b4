"""Candidates with prefill and decode apart, alone and among aggregated ones."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.bounding import bounds_of
from passcal.deployments import COLUMNS_OF
from passcal.meets import keeps
from passcal.points import read_points
from passcal.spec.deployment import Disaggregated, Link
from tests.sweeps import TIMING
from tools.screening.apart import draw_apart
from tools.screening.draw import a_model

LOOP = pc.Workload.closed_loop(isl=256, osl=12, concurrency=6)
SLOW = pc.LinearTiming(prefill=(9.0, 0.05, 1e-6, 0.0), decode=(15.0, 0.1, 2e-6), gpus=2)
APART = {"kind": "disaggregated", "backend": "vllm"}
MIXED = pd.DataFrame(
    [
        {"backend": "vllm", "max_num_seqs": 8, "max_num_batched_tokens": 512, "replicas": 2},
        {**APART, "prefill.max_num_seqs": 4, "decode.max_num_seqs": 8, "prefill_workers": 2},
        {**APART, "link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e5, "first_token": "decode"},
        {"kind": "aggregated", "backend": "sglang", "chunked_prefill_size": 512},
        {"kind": "disaggregated", "prefill.backend": "trtllm", "decode.backend": "sglang", "decode_workers": 3},
    ]
)
BOTH = {"prefill": TIMING, "decode": SLOW}


def test_each_row_is_what_evaluate_answers():
    """Of both kinds, in one table."""
    seats = pc.Vllm(max_num_seqs=8)
    deployments = [
        pc.Aggregated(pc.Vllm(max_num_seqs=8, max_num_batched_tokens=512), replicas=2),
        Disaggregated(prefill=pc.Vllm(max_num_seqs=4), decode=seats, prefill_workers=2),
        Disaggregated(
            prefill=pc.Vllm(),
            decode=pc.Vllm(),
            link=Link(gb_per_s=1.0, kv_bytes_per_token=1e5),
            first_token="decode",
        ),
        pc.Aggregated(pc.Sglang(chunked_prefill_size=512)),
        Disaggregated(prefill=pc.Trtllm(), decode=pc.Sglang(), decode_workers=3),
    ]
    found = pc.sweep(MIXED, LOOP, TIMING, top=None).sort_index()
    assert found.index.tolist() == [*range(5)] and found["gpus"].tolist() == [2, 3, 2, 1, 4]
    for (_, row), deployment in zip(found.iterrows(), deployments, strict=True):
        report = pc.evaluate(LOOP, deployment, TIMING)
        want = report.to_columns()
        assert row[list(want)].to_dict() == {name: pytest.approx(value, nan_ok=True) for name, value in want.items()}
        assert row["gpus"] == report.gpus


def test_what_is_empty_is_the_default():
    """A table with columns that no row of this kind fills says what one without them says."""
    bare = pc.sweep([APART], LOOP, TIMING).drop(columns=list(APART))
    full = pd.DataFrame([APART]).reindex(columns=sorted(COLUMNS_OF["disaggregated"] | COLUMNS_OF["aggregated"]))
    pd.testing.assert_frame_equal(pc.sweep(full, LOOP, TIMING)[bare.columns], bare)


def test_timing_of_each_pool():
    """For all rows, by name, or by a function; GPUs are of both pools."""
    want = pc.evaluate(LOOP, Disaggregated(prefill=pc.Vllm(), decode=pc.Vllm()), BOTH)
    rows = [{**APART, "timing": "both"}, {"backend": "vllm", "timing": "one"}]
    by_name = pc.sweep(rows, LOOP, {"both": BOTH, "one": TIMING}).sort_index()
    by_function = pc.sweep([{**APART, "fast": 1}], LOOP, lambda row: BOTH if row["fast"] else SLOW)
    for found in (pc.sweep([APART], LOOP, BOTH), by_name[:1], by_function):
        assert found["throughput_rps"].iloc[0] == want.throughput_per_s and found["gpus"].iloc[0] == want.gpus == 3
    counts = pc.sweep([APART, {"backend": "vllm"}], LOOP, BOTH).attrs["counts"]
    assert "one timing model" in next(iter(counts["errors"]))


REFUSED = {
    "max_num_seqs=8: a row of kind=disaggregated has no such column; give prefill.max_num_seqs": {"max_num_seqs": 8},
    "replicas=2: a row of kind=disaggregated has no such column": {"replicas": 2},
    "prefill_workers=2: a row of kind=aggregated has no such column": {"kind": "aggregated", "prefill_workers": 2},
    "link.gb_per_s=1.0: a row of kind=aggregated": {"kind": "aggregated", "link.gb_per_s": 1.0},
    "kind='both': must be one of": {"kind": "both"},
    "column 'prefill.max_seqs': nothing reads it": {"prefill.max_seqs": 8},
    "column 'link.gbps': nothing reads it": {"link.gbps": 8},
    "column 'encoder': nothing reads it": {"encoder": 8},
    "prefill: Vllm has no option 'max_batch_size'": {"prefill.max_batch_size": 8},
    "decode: Vllm.max_num_seqs=0": {"decode.max_num_seqs": 0},
    "Link.kv_bytes_per_token is missing": {"link.gb_per_s": 8.0},
    "prefill.backend and decode.backend say otherwise": {"prefill.backend": "vllm", "decode.backend": "vllm"},
    "Disaggregated.first_token='never'": {"first_token": "never"},
    "routing='prefix_affinity'": {"routing": "prefix_affinity"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(pc.SpecError) as caught:
        pc.sweep([{**APART, **REFUSED[message]}], LOOP, TIMING)
    assert message in str(caught.value) and len(str(caught.value)) < 200


def test_a_bad_row_among_good_ones_is_counted():
    """Under its message; the others have their answer."""
    found = pc.sweep([APART, {**APART, "max_num_seqs": 8.0}], LOOP, TIMING)
    assert len(found) == 1 and "max_num_seqs=8.0" in next(iter(found.attrs["counts"]["errors"]))


def test_a_backend_is_needed():
    for row in ({"kind": "disaggregated"}, {"kind": "disaggregated", "prefill.backend": "vllm"}):
        with pytest.raises(pc.SpecError, match="backend"):
            pc.sweep([row], LOOP, TIMING)


CHANGES = {  # columns of this kind alone, two values each, and what else a row needs for them to matter
    "prefill_workers": (1, 3, {}),
    "decode_workers": (1, 3, {}),
    "first_token": ("prefill", "decode_pass", {}),
    "hold": (
        "none",
        "blocks_and_seat",
        {"prefill.max_num_seqs": 1, "link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e6},
    ),
    "prefill_inflight_cap": (None, 1, {}),
    "num_reserved_decode_tokens": (0, 900, {"backend": "sglang", "decode.max_total_tokens": 1300}),
    "prefill.max_num_batched_tokens": (256, 2048, {}),
    "decode.max_num_seqs": (2, 64, {}),
    "link.gb_per_s": (1.0, 9.0, {"link.kv_bytes_per_token": 1e6}),
    "link.kv_bytes_per_token": (1e5, 1e6, {"link.gb_per_s": 1.0}),
    "link.efficiency": (0.5, 1.0, {"link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e6}),
    "link.latency_ms": (0.0, 70.0, {"link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e6}),
    "link.max_transfers_per_worker": (
        1,
        9,
        {"link.gb_per_s": 1.0, "link.kv_bytes_per_token": 0.0, "link.latency_ms": 70.0},
    ),
    "link.transfer": ("full", "missing", {"link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e6, "prefix": 128}),
    "link.transfer_start": (
        "last_chunk",
        "each_chunk",
        {
            "link.gb_per_s": 1.0,
            "link.kv_bytes_per_token": 1e6,
            "prefill.max_num_batched_tokens": 64,
            "prefill.max_num_seqs": 8,
        },
    ),
}


@pytest.mark.parametrize("column", CHANGES)
def test_no_column_is_ignored(column):
    first, second, more = CHANGES[column]
    rows = [{**APART, **more, column: value} for value in (first, second)]
    answers = [pc.sweep([row], LOOP, TIMING).iloc[0] for row in rows]
    names = ("e2e_mean", "ttft_steady_mean", "ttft_transient_mean", "itl_mean")
    assert any(answers[0][name] != answers[1][name] for name in names)


def test_routing_and_a_backend_reach_the_deployment():
    columns = {
        name: [value] for name, value in {**APART, "routing": "least_loaded", "decode.backend": "trtllm"}.items()
    }
    deployment = read_points(columns, LOOP, TIMING).rows[0].deployment
    assert deployment.routing == "least_loaded"
    assert (deployment.prefill, deployment.decode) == (pc.Vllm(), pc.Trtllm())


def many() -> pd.DataFrame:
    """Of both kinds."""
    rng = np.random.default_rng(5)
    frame = MIXED.loc[rng.integers(0, len(MIXED), 40)].reset_index(drop=True)
    frame["concurrency"] = rng.integers(1, 30, 40)
    return frame


def test_executors_agree():
    """To the bit."""
    sla = pc.Sla("ttft", 0.9, 60)
    asked = {"candidates": many(), "workload": LOOP, "timing": TIMING, "sla": sla, "top": 6}
    serial = pc.sweep(**asked, executor="serial")
    assert len(serial) == 6 and serial["kind"].isin(["disaggregated"]).any()
    pd.testing.assert_frame_equal(pc.sweep(**asked, executor="threads"), serial, check_exact=True)
    with ThreadPoolExecutor(2) as executor:
        pd.testing.assert_frame_equal(pc.sweep(**asked, executor=executor), serial, check_exact=True)


def test_a_checkpoint_knows_what_changed(tmp_path, monkeypatch):
    """Any column of a pool, of the link, or the timing of either pool; the same question is answered from the file."""
    rows = [{**APART, "link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e5, "decode.max_num_seqs": 8}]
    first = pc.sweep(rows, LOOP, BOTH, checkpoint=tmp_path)
    for changes in ({"link.gb_per_s": 1.5}, {"decode.max_num_seqs": 9}, {"hold": "blocks"}, {"prefill_workers": 1}):
        with pytest.raises(pc.SpecError, match="candidates changed"):
            pc.sweep([{**rows[0], **changes}], LOOP, BOTH, checkpoint=tmp_path)
    for timing in (TIMING, {"prefill": SLOW, "decode": TIMING}, {"prefill": TIMING, "decode": TIMING}):
        with pytest.raises(pc.SpecError, match="timing changed"):
            pc.sweep(rows, LOOP, timing, checkpoint=tmp_path)
    monkeypatch.setattr("passcal.refining.evaluate", None)
    pd.testing.assert_frame_equal(pc.sweep(rows, LOOP, BOTH, checkpoint=tmp_path), first, check_exact=True)


@pytest.mark.slow
def test_no_evaluation_betters_a_bound():
    """Of cycles and of windows; and bounds say something."""
    frame = draw_apart(250, 31)
    columns = {name: [None if v is None or v != v else v for v in frame[name]] for name in frame}
    bounds = bounds_of(frame, read_points(columns, None, a_model), None)
    found = pc.sweep(frame, None, a_model, top=None).sort_index()
    assert len(found) == len(frame) and np.isfinite(bounds.most_per_s).all()
    assert set(found["window_kind"]) == {"cycle", "window"}
    assert (found["throughput_rps"] <= bounds.most_per_s).all()
    assert np.median(found["throughput_rps"] / bounds.most_per_s) > 0.8
    assert (found["ttft_steady_p50"] >= bounds.ttft_ms).all() and (found["ttft_steady_p99"] >= bounds.p99_low_ms).all()
    assert (found["tpot_p50"] >= bounds.tpot_ms).all() and (found["itl_p50"] >= bounds.gap_ms).all()
    assert (found["e2e_mean"] >= bounds.e2e_mean_ms).all()
    assert np.isinf(bounds.longest_ttft_ms).all() and np.isinf(bounds.p99_high_ms).all()


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["throughput", "per_gpu", "per_user", "goodput"])
def test_the_best_are_those_of_evaluating_all(objective):
    """Bounds leave out some of them, and nothing that would have been among the best."""
    frame = pd.concat([draw_apart(120, 37), pd.DataFrame([{"backend": "vllm", **LINEAR, **SENT}])], ignore_index=True)
    sla = (pc.Sla("ttft", 0.9, 400), pc.Sla("tpot", "mean", 14))
    whole = pc.sweep(frame, None, a_model, sla=sla, objective=objective, top=None)
    best = pc.sweep(frame, None, a_model, sla=sla, objective=objective, top=4)
    every = pc.sweep(frame, None, a_model, top=None)
    kept = [keeps(row["ttft_steady_p90"], sla[0]) and keeps(row["tpot_mean"], sla[1]) for _, row in every.iterrows()]
    assert sorted(whole.index) == sorted(every.index[kept])
    assert best.index.tolist() == whole.index[:4].tolist()
    counts = best.attrs["counts"]
    assert counts["rejected_by_bracket"] > 0 and (objective == "goodput" or counts["cannot_better"] > 0)


LINEAR = {"a0": 5.0, "a1": 0.02, "a2": 0.0, "a3": 0.0, "d0": 8.0, "d1": 0.05, "d2": 0.0, "combine": "sum"}
SENT = {"isl": 256, "osl": 16, "concurrency": 8}


def test_no_estimate_decides(monkeypatch):
    """A sweep asks for bounds, never for composed figures."""
    monkeypatch.setattr("passcal.screening.screen.composed_figures", None)
    counts = pc.sweep([APART], LOOP, TIMING, sla=pc.Sla("ttft", 0.5, 1.0)).attrs["counts"]
    assert counts["rejected_by_bracket"] == 1 and counts["refined"] == 0


def test_what_has_no_bound_is_evaluated():
    """Timing without a formula in one pool, and options outside the closed form."""
    phased = pc.PhaseTiming(prefill_ms=lambda n, isl, prefix: 5 + n * isl / 50, decode_ms=lambda n, context: 8 + n / 20)
    target = pc.Sla("ttft", 0.5, 1.0)
    for row, timing in (
        (APART, {"prefill": phased, "decode": TIMING}),
        ({**APART, "decode.data_parallel_size": 2}, TIMING),
    ):
        counts = pc.sweep([row], LOOP, timing, sla=target).attrs["counts"]
        assert counts["refined"] == counts["rejected_by_evaluator"] == 1
