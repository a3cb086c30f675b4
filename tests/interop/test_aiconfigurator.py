"""The fifteen columns on frames of the installed aiconfigurator, and on rows written by hand where the arithmetic is the point."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.interop.aiconfigurator import SUMMARY_COLUMNS, add_columns
from passcal.timing.aiconfigurator import AiconfiguratorTiming

NAMES = [
    *(f"ttft_steady_{name}" for name in ("mean", "p50", "p75", "p90", "p95", "p99", "p999", "p99_lo", "p99_hi")),
    *("ttft_transient_mean", "ttft_transient_max", "itl_mean", "itl_p50", "itl_p99", "queueing_tier"),
]
MODEL, SYSTEM = "meta-llama/Meta-Llama-3.1-8B", "h100_sxm"
TIMING = pc.LinearTiming(prefill=(5.0, 0.02), decode=(8.0, 0.05, 2e-6), combine="shared")
AGGREGATED = {
    "model": "m", "isl": 1024, "osl": 64, "prefix": 0, "concurrency": 8, "bs": 8, "ttft": 1.0, "tpot": 1.0, "encoder_latency": 0.0,
    "tp": 1, "pp": 1, "dp": 1, "cp": 1, "moe_tp": None, "moe_ep": None, "gemm": None, "kvcache": None, "fmha": None, "moe": None, "comm": None,
    "ctx_tokens": 2048, "gen_tokens": 6.0, "backend": "vllm", "version": "0", "system": "s",
}  # fmt: skip
DISAGGREGATED = {
    "model": "m", "isl": 1000, "osl": 101, "prefix": 0, "concurrency": 12, "ttft": 99.0, "tpot": 10.0, "encoder_latency": 0.0,
    "(p)bs": 1, "(p)workers": 2, "(p)seq/s/worker": 20.0, "(p)tp": 1, "(p)pp": 1, "(p)dp": 1, "(p)cp": 1, "(p)moe_tp": None, "(p)moe_ep": None,
    "(p)gemm": None, "(p)kvcache": None, "(p)fmha": None, "(p)moe": None, "(p)comm": None, "(p)backend": "vllm", "(p)version": "0", "(p)system": "s",
    "(d)bs": 12, "(d)workers": 1,
}  # fmt: skip
STATIC = {"osl": 64, "ttft": 30.5, "tpot": 7.25, "context_latency": 30.5, "generation_latency": 456.75}


def frame(row, **columns):
    """Rows that differ from a row in these columns."""
    rows = max((len(values) for values in columns.values() if isinstance(values, list)), default=1)
    return pd.DataFrame({name: columns.get(name, value) for name, value in row.items()}, index=range(rows))


@pytest.fixture(scope="module")
def package():
    """The installed package: summaries of one model by run_agg and run_static."""
    pytest.importorskip("aiconfigurator_core")
    from aiconfigurator_core.sdk.backends.factory import get_backend
    from aiconfigurator_core.sdk.config import ModelConfig, RuntimeConfig
    from aiconfigurator_core.sdk.models import get_model
    from aiconfigurator_core.sdk.perf_database import get_database, get_latest_database_version

    class Package:
        """Summaries of one backend; its classes keep answers of one model only, so each question has its own."""

        def __init__(self, name):
            self.name, version = name, get_latest_database_version(SYSTEM, name)
            self.database = get_database(SYSTEM, name, version)

        def aggregated(self, bs, ctx_tokens, tp=1, isl=1024, osl=64, prefix=0):
            model, asked = self.asked(tp, bs, isl, osl, prefix)
            found = get_backend(self.name).run_agg(model, self.database, asked, ctx_tokens=ctx_tokens)
            return found.get_summary_df()

        def static(self, bs, mode="static"):
            model, asked = self.asked(1, bs, 1024, 64, 0)
            return get_backend(self.name).run_static(model, self.database, asked, mode).get_summary_df()

        def asked(self, tp, bs, isl, osl, prefix):
            runtime = RuntimeConfig(batch_size=bs, isl=isl, osl=osl, prefix=prefix)
            return get_model(MODEL, ModelConfig(tp_size=tp), self.name), runtime

    return Package


@pytest.fixture(scope="module")
def summary(package):
    """An aggregated summary of vLLM, its index not the usual one."""
    vllm = package("vllm")
    asked = ((1, 1024), (8, 2048), (8, 2048), (16, 512), (8, 2048, 2), (8, 2048, 1, 1024, 64, 512))
    return pd.concat([vllm.aggregated(*one) for one in asked], ignore_index=True).set_axis([30, 10, 20, 20, 5, 7])


def test_the_columns_are_the_fifteen():
    assert list(SUMMARY_COLUMNS) == NAMES


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["quantitative", "screening"])
def test_a_summary_keeps_its_rows_index_and_columns(summary, tier):
    before = summary.copy(deep=True)
    added = add_columns(summary, tier=tier)
    pd.testing.assert_frame_equal(summary, before)
    pd.testing.assert_frame_equal(added[list(summary.columns)], before)
    assert list(added.columns) == [*summary.columns, *NAMES]
    assert set(added["queueing_tier"]) == {tier}
    assert added[NAMES[:-1]].notna().all(axis=None)
    assert added.iloc[1].equals(added.iloc[2].rename(10))


@pytest.mark.slow
def test_more_gpus_and_a_cached_prefix_are_seen(summary):
    """Half of the tokens, or twice the GPUs, for the eight prompts of the start."""
    last = add_columns(summary)["ttft_transient_max"].to_numpy()
    assert 0.4 * last[1] < last[4] < 0.7 * last[1]
    assert 0.4 * last[1] < last[5] < 0.7 * last[1]


@pytest.mark.slow
def test_a_saved_summary_gives_the_same_figures(summary, tmp_path):
    summary.to_csv(tmp_path / "pareto.csv", index=False)
    again = add_columns(pd.read_csv(tmp_path / "pareto.csv"))
    pd.testing.assert_frame_equal(again[NAMES], add_columns(summary)[NAMES].reset_index(drop=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ttft", "tpot"])
def test_a_summary_of_other_prices_is_refused(summary, name):
    """Such as one of drafts, which no column tells."""
    wrong = summary.assign(**{name: summary[name] * [1, 1, 1, 0.7, 1, 1]})
    with pytest.raises(pc.SpecError, match=f"row 20: {name}=.*the installed database says"):
        add_columns(wrong)
    assert add_columns(wrong, timing=TIMING)["itl_mean"].notna().all()
    kept = add_columns(wrong, unpriced="keep")
    assert kept["itl_mean"].isna().tolist() == [False, False, False, True, False, False]


@pytest.mark.slow
def test_a_rows_figures_are_the_evaluators(summary):
    added = add_columns(summary)
    row = added.iloc[3]
    timing = AiconfiguratorTiming(MODEL, SYSTEM, "vllm", row["version"], gemm="bfloat16", kvcache="bfloat16", fmha="bfloat16", moe="bfloat16", comm="half")  # fmt: skip
    engine = pc.Vllm(max_num_batched_tokens=512 + int(row["gen_tokens"]), max_num_seqs=16)
    report = pc.evaluate_closed_loop(pc.Workload.closed_loop(isl=1024, osl=64, concurrency=16), engine, timing)
    told = report.to_columns()
    assert {name: row[name] for name in NAMES} == {name: told[name] for name in NAMES}
    assert row["ttft_transient_max"] > row["ttft_steady_mean"]


@pytest.mark.slow
def test_a_lone_client_sees_the_databases_own_figures(summary, package):
    lone, static = add_columns(summary).iloc[0], package("vllm").static(1).iloc[0]
    assert lone["bs"] == 1
    assert lone["ttft_steady_mean"] == pytest.approx(static["ttft"], abs=5e-4)
    assert lone["itl_mean"] == pytest.approx(static["tpot"], rel=2e-3)  # the database steps 32 tokens at a time


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_token_times_are_near_the_summarys_own(package, backend):
    """Its mean-field TPOT and the calendar's, on the same prices."""
    added = add_columns(package(backend).aggregated(8, 2048, osl=256)).iloc[0]
    assert added["itl_mean"] == pytest.approx(added["tpot"], rel=0.1)


@pytest.mark.slow
def test_a_static_summary_is_its_own_answer(package):
    added = add_columns(pd.concat([package("vllm").static(bs) for bs in (1, 16)], ignore_index=True))
    assert (added[NAMES[:11]].to_numpy() == added[["ttft"]].to_numpy()).all()
    assert (added[NAMES[11:14]].to_numpy() == added[["tpot"]].to_numpy()).all()
    assert (added["queueing_tier"] == "static").all()


@pytest.mark.slow
def test_pools_of_the_installed_package(package):
    """A disaggregated row as the package composes it: rates of a prefill and a decode summary, TTFT raised by 1.8 for queues."""
    columns = pytest.importorskip("aiconfigurator_core.sdk.common").ColumnsDisagg
    vllm = package("vllm")
    prefill, decode = vllm.static(2, "static_ctx").iloc[0], vllm.static(64, "static_gen").iloc[0]
    row = {f"(p){name}": prefill[name] for name in prefill.index} | {
        f"(d){name}": decode[name] for name in decode.index
    }
    row |= {"(p)workers": 4, "(d)workers": 2, "(p)seq/s/worker": prefill["seq/s"], "(d)seq/s/worker": decode["seq/s"]}
    row |= {"ttft": 1.8 * prefill["ttft"], "tpot": decode["tpot"], "concurrency": 2 * decode["concurrency"]}
    row |= {name: prefill[name] for name in ("model", "isl", "osl", "prefix", "encoder_latency")} | {"(e)workers": 0}
    added = add_columns(pd.DataFrame([row]).reindex(columns=columns)).iloc[0]
    assert added["ttft_steady_mean"] == pytest.approx(prefill["ttft"], rel=1e-4)  # the burst left its prompts in pairs
    assert added["ttft_transient_max"] == pytest.approx(16 * prefill["ttft"], rel=1e-4)  # of 128, 8 at a time
    assert added["queueing_tier"] == "composed"
    assert added["itl_mean"] == added["itl_p99"] == decode["tpot"]


def test_a_pool_that_is_fast_enough_makes_nobody_wait():
    """Twelve clients are away for a second; two workers of 50 ms a prompt are busy less than a third of the time."""
    added = add_columns(frame(DISAGGREGATED)).iloc[0]
    assert added[NAMES[:9]].tolist() == pytest.approx([50.0] * 9, rel=1e-9)
    assert added["ttft_transient_max"] == pytest.approx(6 * 50.0)
    assert added[["itl_mean", "itl_p50", "itl_p99", "queueing_tier"]].tolist() == [10.0, 10.0, 10.0, "composed"]


def test_a_pool_that_is_too_slow_keeps_littles_identity():
    """C = X (TTFT + time away), X what the pool can do."""
    added = add_columns(frame(DISAGGREGATED, concurrency=[100], **{"(p)dp": [2]}))
    assert added["ttft_steady_mean"].iloc[0] == pytest.approx(100 / (2 * 20.0) * 1e3 - 1000.0, rel=1e-9)


def test_a_batch_of_prompts_costs_what_its_rate_says():
    """By the timing a batch of four takes 5 + 80 ms, by the row 170: every price is doubled."""
    row = frame(
        DISAGGREGATED,
        osl=[100_001],
        concurrency=[1],
        **{"(p)bs": [4], "(p)workers": [1], "(p)seq/s/worker": [4 / 0.170]},
    )
    assert add_columns(row, timing=TIMING)["ttft_steady_mean"].iloc[0] == pytest.approx(2 * 25.0)


def test_what_a_static_row_does_not_price_has_no_figure():
    rows = frame(STATIC, ttft=[30.5, 0.0], tpot=[0.0, 7.25])
    added = add_columns(rows)
    assert added[NAMES[:11]].isna().all(axis=1).tolist() == [False, True]
    assert added[NAMES[11:14]].isna().all(axis=1).tolist() == [True, False]


def test_a_row_as_a_mapping():
    added = add_columns(STATIC)
    assert isinstance(added, dict)
    assert list(added) == [*STATIC, *NAMES]
    assert (added["ttft_steady_p999"], added["itl_mean"], added["queueing_tier"]) == (30.5, 7.25, "static")


def test_points_that_are_alike_are_evaluated_once(monkeypatch):
    from passcal.interop import answers

    asked = []
    plain = answers.refine
    monkeypatch.setattr(answers, "refine", lambda points, wanted: asked.extend(points) or plain(points, wanted))
    added = add_columns(frame(AGGREGATED, tp=[1, 2, 4, 1], bs=[8, 8, 8, 4]), timing=TIMING)
    assert len(asked) == 2
    assert added["ttft_steady_mean"].nunique() == 2
    assert added["ttft_steady_mean"].iloc[0] == added["ttft_steady_mean"].iloc[2]


def test_a_timing_may_depend_on_the_row():
    rows = frame(AGGREGATED, tp=[1, 2], bs=[1, 1])
    added = add_columns(rows, timing=lambda row: pc.LinearTiming(prefill=(100.0 / row["tp"],), decode=(1.0,)))
    assert added["ttft_steady_mean"].tolist() == pytest.approx([100.0, 50.0])


def test_options_lie_over_what_a_row_tells():
    """Two prompts at once, or one after the other."""
    rows = frame(AGGREGATED, bs=[2], concurrency=[2])
    both, one = (add_columns(rows, timing=TIMING, options=options).iloc[0] for options in ({}, {"max_num_seqs": 1}))
    assert one["ttft_transient_max"] > 2 * both["ttft_transient_max"]


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
def test_the_closed_form_is_near_the_evaluation(backend):
    rows = frame(AGGREGATED, backend=[backend])
    screened, evaluated = (
        add_columns(rows, timing=TIMING, tier=tier).iloc[0] for tier in ("screening", "quantitative")
    )
    assert (screened["queueing_tier"], evaluated["queueing_tier"]) == ("screening", "quantitative")
    assert screened["ttft_steady_mean"] == pytest.approx(evaluated["ttft_steady_mean"], rel=0.1)
    assert screened["ttft_steady_p99_lo"] <= evaluated["ttft_steady_p99"] <= screened["ttft_steady_p99_hi"]


def test_rows_outside_the_closed_form_are_evaluated():
    rows = frame(AGGREGATED, backend=["trtllm"])
    added = add_columns(rows, timing=TIMING, tier="screening", options={"enable_chunked_prefill": False})
    assert added["queueing_tier"].tolist() == ["quantitative"]
    assert np.isfinite(added["ttft_steady_p99_hi"]).all()


def test_an_executor_gives_the_same_figures():
    rows = frame(AGGREGATED, bs=[1, 2, 3, 4])
    with ThreadPoolExecutor(2) as executor:
        pd.testing.assert_frame_equal(
            add_columns(rows, timing=TIMING, executor=executor), add_columns(rows, timing=TIMING)
        )


@pytest.mark.parametrize("tier", ["quantitative", "screening"])
def test_a_row_without_an_answer_may_stay(tier):
    """The second and fourth are alike: both say why."""
    rows = frame(AGGREGATED, isl=[64, 0, 64, 0, 128]).set_axis(list("abcde"))
    added = add_columns(rows, timing=TIMING, tier=tier, unpriced="keep")
    assert added[NAMES[:-1]].isna().all(axis=1).tolist() == [False, True, False, True, False]
    assert added["queueing_tier"].isna().tolist() == [False, True, False, True, False]
    assert [why[:8] for why in added.attrs["refused"]] == ["row 'b':", "row 'd':"]
    assert all("isl=0" in why for why in added.attrs["refused"])
    without = add_columns(rows.drop(index=["b", "d"]), timing=TIMING, tier=tier)
    pd.testing.assert_frame_equal(added.dropna(subset=["itl_mean"]), without)


def test_an_empty_summary_has_the_columns():
    assert list(add_columns(frame(AGGREGATED).head(0)).columns)[-15:] == NAMES


def test_columns_are_added_once():
    added = add_columns(frame(STATIC))
    with pytest.raises(pc.SpecError, match="'ttft_steady_mean': is a figure of this table; drop it"):
        add_columns(added)


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        (frame({"isl": 1}), pc.SpecError, "no frame of aiconfigurator"),
        (frame(AGGREGATED).drop(columns="isl"), pc.SpecError, "column 'isl' is missing"),
        (frame(AGGREGATED).drop(columns="moe_ep"), pc.SpecError, "column 'moe_ep' is missing"),
        (frame(DISAGGREGATED).drop(columns="(p)seq/s/worker"), pc.SpecError, r"column '\(p\)seq/s/worker' is missing"),
        (frame(AGGREGATED, bs=[4, None]), pc.SpecError, "row 1: column 'bs': nan must be a whole number"),
        (frame(AGGREGATED, isl=[10.5]), pc.SpecError, "row 0: column 'isl': 10.5 must be a whole number"),
        (frame(AGGREGATED, isl=["long"]), pc.SpecError, "row 0: column 'isl': 'long' must be a whole number"),
        (frame(AGGREGATED, system=[None]), pc.SpecError, "row 0: column 'system': None must be a name"),
        (frame(STATIC, ttft=[1.0, np.nan]), pc.SpecError, "row 1: column 'ttft': nan must be a finite number"),
        (frame(STATIC, tpot=[np.inf]), pc.SpecError, "row 0: column 'tpot': inf must be a finite number"),
        (frame(DISAGGREGATED, **{"(p)seq/s/worker": [0.0]}), pc.SpecError, r"row 0: column '\(p\)seq/s/worker': 0"),
        (frame(AGGREGATED, encoder_latency=[3.0]), pc.Unsupported, "'encoder_latency': images"),
        (frame(AGGREGATED, cp=[2]), pc.Unsupported, "row 0: cp=2: context parallelism"),
        (frame(AGGREGATED | {"(e)workers": 1}), pc.Unsupported, r"'\(e\)workers': a pool of encoders"),
        (frame({"(a)nodes": 1}), pc.Unsupported, r"'\(a\)nodes': attention and experts"),
    ],
)  # fmt: skip
def test_what_cannot_be_priced_is_named(rows, error, says):
    with pytest.raises(error, match=says) as caught:
        add_columns(rows)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    ("rows", "how", "error", "says"),
    [
        (frame(AGGREGATED), {"tier": "best"}, pc.SpecError, "tier='best'"),
        (frame(AGGREGATED), {"unpriced": "drop"}, pc.SpecError, "unpriced='drop'"),
        (frame(AGGREGATED), {"timing": 5}, pc.SpecError, "row 0: timing=5: must be a timing model"),
        (frame(AGGREGATED, backend=["abacus"]), {}, pc.SpecError, "row 0: backend='abacus'"),
        (frame(AGGREGATED, isl=[64, 0]), {}, pc.SpecError, "row 1: .*isl=0"),
        (frame(AGGREGATED), {"options": {"page_size": 4}}, pc.SpecError, "page_size"),
        (frame(AGGREGATED, backend=["trtllm"], prefix=[64]), {}, pc.Unsupported, "row 0: .*prefix"),
        (frame(STATIC), {}, pc.SpecError, "timing=, options=: a static summary is its own answer"),
        ([1, 2], {}, pc.SpecError, "summary=list"),
    ],
)
def test_what_is_asked_wrongly_is_named(rows, how, error, says):
    with pytest.raises(error, match=says) as caught:
        add_columns(rows, **{"timing": TIMING, **how})
    assert len(str(caught.value)) < 200


@pytest.mark.slow
def test_an_engine_that_the_database_lacks_names_the_row(summary):
    with pytest.raises(pc.SpecError, match=r"row 10: .*abacus.*no such engine"):
        add_columns(summary.assign(system=[SYSTEM] + ["abacus"] * 5))


@pytest.mark.slow
def test_data_that_the_database_lacks_name_the_row(summary):
    with pytest.raises(pc.SpecError, match=r"row 30: the installed database has no answer \(.*nvfp4"):
        add_columns(summary.assign(gemm="nvfp4"))
