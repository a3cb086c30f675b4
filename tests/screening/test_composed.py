"""Prefill and decode apart in the screener: exact where nothing waits, near where one stage binds, and nothing ignored."""

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.columns import COLUMNS
from tools.screening.apart import draw_apart, truth_apart

TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 5e-7), decode=(8.0, 0.05, 2e-6))
APART = {"kind": "disaggregated", "backend": "vllm"}
LINK = {"link.gb_per_s": 1.0, "link.efficiency": 1.0, "link.kv_bytes_per_token": 1e6}
LOOP = pc.Workload.closed_loop(isl=128, osl=9, concurrency=1)
FIGURES = ("throughput_rps", "ttft_steady_mean", "itl_mean", "e2e_mean", "transfer_mean")


def one(row, workload=LOOP, timing=TIMING) -> pd.Series:
    """The only row of a screen."""
    return pc.screen([row], workload, timing).iloc[0]


def evaluated(row, workload=LOOP, timing=TIMING) -> pd.Series:
    """What the evaluator says of it."""
    return pc.sweep([row], workload, timing).iloc[0]


@pytest.mark.parametrize("first_token", ["prefill", "decode"])
@pytest.mark.parametrize("backend", ["vllm", "trtllm"])
def test_a_lone_client_is_exact(first_token, backend):
    """Nobody waits for anybody: every figure is the evaluator's."""
    row = {**APART, "backend": backend, "first_token": first_token, "link.latency_ms": 3.0, "decode_workers": 2, **LINK}
    found, want = one(row), evaluated(row)
    for name in FIGURES:
        assert found[name] == pytest.approx(want[name], rel=1e-9), name
    assert found["ttft_steady_p99_lo"] <= want["ttft_steady_p99"] and found["binding"] == "clients"


def test_the_hand_off_of_the_rules():
    """1 GB/s, 1 MB a token, 128 tokens: 128 ms."""
    assert one({**APART, **LINK})["transfer_mean"] == pytest.approx(128.0)
    assert one({**APART, **LINK, "link.latency_ms": 7.0})["transfer_mean"] == pytest.approx(135.0)
    assert one({**APART, **LINK, "link.transfer": "missing", "prefix": 108})["transfer_mean"] == pytest.approx(20.0)


BINDS = {  # what binds, and a row and lengths where it does
    "prefill": ({}, (2048, 4, 24)),
    "decode": ({"decode.max_num_seqs": 4, "prefill_workers": 3}, (128, 96, 32)),
    "fabric": ({**LINK, "prefill_workers": 2}, (512, 8, 16)),
    "staging": ({"decode.num_gpu_blocks": 90, "prefill_workers": 2}, (256, 64, 24)),
    "clients": ({"prefill_workers": 2, "decode_workers": 2}, (128, 128, 6)),
}


@pytest.mark.parametrize("binds", BINDS)
def test_the_stage_that_binds_sets_the_rate(binds):
    """It is named as the evaluator names it, and the rate is the evaluator's to a few percent."""
    row, (isl, osl, clients) = BINDS[binds]
    workload = pc.Workload.closed_loop(isl=isl, osl=osl, concurrency=clients)
    found, want = one({**APART, **row}, workload), evaluated({**APART, **row}, workload)
    assert found["binding"] == want["binding"] == binds
    assert found["throughput_rps"] == pytest.approx(want["throughput_rps"], rel=0.06)
    assert found["ttft_steady_mean"] == pytest.approx(want["ttft_steady_mean"], rel=0.25)
    assert found["e2e_mean"] == pytest.approx(1000 * clients / found["throughput_rps"])


@pytest.mark.slow
def test_it_stays_near_the_evaluator():
    """On candidates that nothing was fitted to."""
    frame = draw_apart(150, 23)
    found, true = pc.screen(frame), truth_apart(frame)
    limits = {"throughput_rps": (0.01, 0.3), "ttft_steady_mean": (0.03, 0.6), "itl_mean": (0.01, 0.35)}
    for name, (median, most) in limits.items():
        error = (found[name] / true[name] - 1).abs()
        assert error.median() < median and error.quantile(0.95) < most, name
    assert (found["ttft_steady_p99_lo"] <= true["ttft_steady_p99"] * (1 + 1e-9)).all()
    assert (found["binding"].astype(str) == true["binding"]).mean() > 0.8


def test_a_table_of_both_kinds():
    """Each row as in a table of its own, in its place, with its tier."""
    rows = [{"backend": "vllm"}, {**APART, "decode_workers": 2}, {"backend": "sglang", "kind": "aggregated"}]
    found = pc.screen(rows, LOOP, TIMING)
    assert list(found["queueing_tier"]) == list(
        found["regime"].map(lambda r: "composed" if r == "composed" else "screening")
    )
    assert list(found["queueing_tier"]) == ["screening", "composed", "screening"]
    for place, row in enumerate(rows):
        alone = one(row)
        for name in COLUMNS:
            assert found[name].iloc[place] == alone[name] or np.isnan(alone[name]), name


def test_each_pool_has_its_timing():
    """A mapping, or coefficients of one pool in columns."""
    slow = pc.LinearTiming(prefill=(9.0, 0.05, 0.0, 0.0), decode=(15.0, 0.1, 0.0))
    found = one(APART, timing={"prefill": TIMING, "decode": slow})
    want = evaluated(APART, timing={"prefill": TIMING, "decode": slow})
    for name in FIGURES:
        assert found[name] == pytest.approx(want[name], rel=1e-9), name
    shared = {"a0": 5.0, "a1": 0.02, "a2": 1e-6, "a3": 5e-7, "d0": 8.0, "d1": 0.05, "d2": 2e-6}
    columns = one({**APART, **shared, "decode.d0": 15.0, "decode.d1": 0.1, "decode.d2": 0.0}, timing=None)
    assert columns["itl_mean"] == found["itl_mean"] and columns["ttft_steady_mean"] == found["ttft_steady_mean"]


def test_what_is_not_composed_is_said_so():
    """An option outside the closed form: no figure at all."""
    for more in ({"decode.data_parallel_size": 2}, {"prefill.enable_chunked_prefill": False}):
        found = one({**APART, **more})
        assert found["regime"] == "refine" and np.isnan(found["throughput_rps"])
        assert found["ttft_steady_p99_lo"] == 0 and found["ttft_steady_p99_hi"] == np.inf


BUSY = pc.Workload.closed_loop(isl=256, osl=12, concurrency=24)
SMALL = {"prefill.max_num_batched_tokens": 64, "prefill.max_num_seqs": 8}
CHANGES = {  # columns, two values each, and what else a row needs for them to matter
    "prefill_workers": (1, 3, {}),
    "decode_workers": (1, 3, {}),
    "first_token": ("prefill", "decode_pass", {}),
    "hold": ("none", "blocks_and_seat", {"prefill.max_num_seqs": 1, **LINK}),
    "prefill_inflight_cap": (None, 1, {}),
    "num_reserved_decode_tokens": (0, 900, {"backend": "sglang", "decode.max_total_tokens": 1300}),
    "prefill.max_num_batched_tokens": (256, 2048, {}),
    "decode.max_num_seqs": (2, 64, {}),
    "decode.async_scheduling": (True, False, {"decode.max_num_seqs": 4}),
    "decode.num_gpu_blocks": (60, 6000, {}),
    "link.gb_per_s": (1.0, 9.0, {"link.kv_bytes_per_token": 1e6}),
    "link.kv_bytes_per_token": (1e5, 1e6, {"link.gb_per_s": 1.0}),
    "link.efficiency": (0.5, 1.0, LINK),
    "link.latency_ms": (0.0, 70.0, LINK),
    "link.max_transfers_per_worker": (1, 9, {**LINK, "link.latency_ms": 70.0}),
    "link.transfer": ("full", "missing", {**LINK, "prefix": 128}),
    "link.transfer_start": (
        "last_chunk",
        "each_chunk",
        {"link.gb_per_s": 99.0, "link.kv_bytes_per_token": 1e6, **SMALL},
    ),
    "turnaround_ms": (0.0, 400.0, {}),
    "concurrency": (3, 40, {}),
}


@pytest.mark.parametrize("column", CHANGES)
def test_no_column_is_ignored(column):
    first, second, more = CHANGES[column]
    answers = [one({**APART, **more, column: value}, BUSY) for value in (first, second)]
    assert any(answers[0][name] != answers[1][name] for name in FIGURES)


REFUSED = {
    "row 0: max_num_seqs: a row of kind=disaggregated": {"max_num_seqs": 8},
    "row 0: prefill_workers: a row of kind=aggregated": {"kind": "aggregated", "prefill_workers": 8},
    "kind='both': must be one of": {"kind": "both"},
    "column 'prefill.max_seqs' is no option": {"prefill.max_seqs": 8},
    "column 'encoder' is no option": {"encoder": 8},
    "prefill: row 0: max_batch_size is no option of vllm": {"prefill.max_batch_size": 8},
    "first_token='never'": {"first_token": "never"},
    "prefill_workers: must be whole numbers": {"prefill_workers": 0},
    "link.kv_bytes_per_token: must be given": {"link.gb_per_s": 8.0},
    "prefill.backend and decode.backend say otherwise": {"prefill.backend": "vllm", "decode.backend": "vllm"},
    "decode.backend": {"backend": None, "prefill.backend": "vllm"},
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused_by_name(message):
    with pytest.raises(pc.SpecError) as caught:
        one({**APART, **REFUSED[message]})
    assert message in str(caught.value) and len(str(caught.value)) < 200


def test_what_the_evaluator_refuses_is_refused():
    for more in ({"rate_per_s": 3.0}, {"num_reserved_decode_tokens": 64}):
        with pytest.raises(pc.Unsupported):
            one({**APART, **more}, None if "rate_per_s" in more else LOOP)
