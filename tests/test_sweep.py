"""Sweeps answer what evaluating every candidate would."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.bounding import bounds_of
from passcal.bounds import Bounds, keeps_for_sure
from passcal.columns import COLUMNS
from passcal.meets import figure, keeps
from passcal.points import read_points
from passcal.refining import OBJECTIVES
from tests.sweeps import TIMING, candidates

LEVELS = (pc.Sla("ttft", 0.99, 120), pc.Sla("e2e", 0.5, 400))
LOOP = pc.Workload.closed_loop(isl=256, osl=16, concurrency=8)


def evaluated(frame: pd.DataFrame, timing: Callable[[pd.Series], object] = lambda row: TIMING) -> list[pc.Report]:
    """Every candidate through `pc.evaluate`."""
    reports = []
    for _, row in frame.iterrows():
        options = {name: row[name] for name in row.index if name in pc.engine(row["backend"]).model_dump()}
        given = {name: value for name, value in options.items() if value == value}
        loop = {name: row[name] for name in ("isl", "osl", "concurrency", "turnaround_ms") if name in row.index}
        workers = pc.Aggregated(pc.engine(**given), replicas=row.get("replicas", 1))
        reports.append(pc.evaluate(pc.Workload.closed_loop(**loop), workers, timing(row)))
    return reports


def brute_force(frame, sla, objective, top):
    """The best rows, by sorting all."""
    ranked = []
    for row, report in enumerate(evaluated(frame)):
        kept = True
        latencies = []
        for target in sla:
            if isinstance(target, pc.Floor):
                kept &= keeps(figure(report, target), target)
                continue
            latency = getattr(report, f"{target.metric}_ms")
            level = target.quantile
            kept &= keeps(latency.mean if level == "mean" else latency.quantile(level), target)
            each = report.requests()
            if target.metric not in ("ttft", "e2e"):
                continue
            end = each["first_ms"] if target.metric == "ttft" else each["done_ms"]
            latencies.append(end - each["dispatch_ms"] <= target.limit_ms)
        tpot = report.tpot_ms.mean
        worth = {
            "throughput": report.output_tokens_per_s,
            "per_gpu": report.output_tokens_per_s / report.gpus,
            "per_user": 1000 / tpot if tpot > 0 else -np.inf,
            "fewest_gpus": -report.gpus,
            "goodput": report.throughput_per_s * np.logical_and.reduce(latencies or [True]).mean(),
        }[objective]
        if kept:
            ranked.append((-worth, -report.output_tokens_per_s, row))
    return [row for *_, row in sorted(ranked)[:top]]


@pytest.mark.slow
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_best_are_those_of_brute_force(objective):
    """Whatever is left out or not asked about, none of it would have been among them."""
    frame = candidates(150, 3, replicas=(1, 2), turnaround_ms=(0.0, 30.0))
    sla = (*LEVELS, pc.Floor("throughput_rps", 15))
    found = pc.sweep(frame, None, TIMING, sla=sla, objective=objective, top=5)
    assert found.index.tolist() == brute_force(frame, sla, objective, 5)
    counts = found.attrs["counts"]
    assert counts["rejected_by_bracket"] > 0 and counts["rejected_by_evaluator"] > 0 and len(found) == 5


@pytest.mark.slow
@pytest.mark.parametrize("limit", [9.5, 11.0, 14.0, 20.0])
def test_targets_that_cannot_hold_together(limit):
    """Of TTFT and of gaps: the best are the same."""
    frame = candidates(150, 8)
    sla = (pc.Sla("ttft", 0.99, 150), pc.Sla("itl", "mean", limit), pc.Sla("e2e", 0.95, 20 * limit))
    found = pc.sweep(frame, None, TIMING, sla=sla, top=5)
    assert found.index.tolist() == brute_force(frame, sla, "throughput", 5)
    alone = [pc.sweep(frame, None, TIMING, sla=target, top=5).attrs["counts"]["rejected_by_bracket"] for target in sla]
    assert found.attrs["counts"]["rejected_by_bracket"] > max(alone)


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.5, 0.9, 0.99, "mean"])
def test_targets_on_gaps_and_waits(level):
    """Any quantile of them, whose bounds in closed form say little: what is gone through decides, and the best are the same."""
    frame = candidates(150, 21, turnaround_ms=(0.0, 30.0))
    sla = (pc.Sla("itl", level, 14), pc.Sla("queue", level, 60), pc.Floor("output_tokens_per_s_per_gpu", 30))
    found = pc.sweep(frame, None, TIMING, sla=sla, top=5)
    assert found.index.tolist() == brute_force(frame, sla, "throughput", 5)
    counts = found.attrs["counts"]
    assert counts["refined"] < 100 and counts["rejected_by_bracket"] > 30


@pytest.mark.slow
def test_no_evaluation_betters_a_bound():
    """Of any objective or latency, for every way in which passes combine."""
    for seed, combine in enumerate(("sum", "shared", "max")):
        timing = pc.LinearTiming(
            prefill=(9.0 * seed + 1, 0.02, 2e-6, 1e-6 * seed), decode=(8.0, 0.05, 2e-6), combine=combine
        )
        frame = candidates(120, seed, replicas=(1, 2), turnaround_ms=(0.0, 0.0, 60.0))
        columns = {name: [None if v != v else v for v in frame[name].tolist()] for name in frame}
        bounds = bounds_of(frame, read_points(columns, None, timing), None)
        found = pc.sweep(frame, None, timing, top=None).sort_index()
        assert len(found) == len(frame) and np.isfinite(bounds.most_per_s).all()
        assert (found["throughput_rps"] <= bounds.most_per_s).all()
        assert np.median(bounds.most_per_s / found["throughput_rps"]) < 1.5  # and bounds say something
        assert (found["ttft_steady_p50"] >= bounds.ttft_ms).all()
        assert (found["e2e_mean"] >= bounds.e2e_mean_ms * (1 - 1e-9)).all()
        assert (found["ttft_steady_p999"] <= bounds.longest_ttft_ms).all() and np.isfinite(bounds.longest_ttft_ms).any()
        more = frame["osl"] > 1
        assert (found["itl_p99"] <= bounds.longest_gap_ms)[more].all()
        assert (found["tpot_p50"] >= bounds.tpot_ms)[more].all() and (found["itl_p50"] >= bounds.gap_ms)[more].all()


@pytest.mark.slow
def test_no_target_is_kept_for_sure_that_is_not_kept():
    """A limit just below the figure is never said to be kept; one far above is, for most candidates."""
    frame = candidates(150, 11, turnaround_ms=(0.0, 0.0, 60.0))
    columns = {name: [None if v != v else v for v in frame[name].tolist()] for name in frame}
    bounds = bounds_of(frame, read_points(columns, None, TIMING), None, [pc.Sla("itl", 1, 1e6)])._replace(
        figures=np.full((len(frame), 1), np.nan)
    )
    found = pc.sweep(frame, None, TIMING, top=None).sort_index()
    for metric in ("ttft", "queue", "e2e", "tpot", "itl"):
        for name, level in {"mean": "mean", "p50": 0.5, "p99": 0.99, "p999": 0.999}.items():
            figures = found.get(f"{metric}_{name}", found.get(f"{metric}_steady_{name}"))
            if figures is None:
                continue
            for row, value in figures.items():
                one = Bounds._make(known[row : row + 1] for known in bounds)
                assert not value > 0 or not keeps_for_sure([pc.Sla(metric, level, value * (1 - 1e-6))], 0, one)
            assert keeps_for_sure([pc.Sla(metric, level, 1e5)], 0, bounds).mean() > 0.5


def test_rows_are_what_evaluate_answers():
    """Column by column, with the candidate's own columns first and its index kept."""
    frame = candidates(8, 5).set_index(pd.Index(list("abcdefgh")))
    found = pc.sweep(frame, None, TIMING, top=2)
    assert found.columns.tolist()[: len(frame.columns) + len(COLUMNS)] == [*frame.columns, *COLUMNS]
    pd.testing.assert_frame_equal(found[frame.columns], frame.loc[found.index])
    (report,) = evaluated(frame.loc[found.index[:1]])
    assert found.iloc[0][list(COLUMNS)].to_dict() == {
        k: pytest.approx(v, nan_ok=True) for k, v in report.to_columns().items()
    }
    assert (found["queueing_tier"] == "quantitative").all()


def test_nothing_is_dropped_silently():
    """Counts add up; what has no answer is counted by why."""
    frame = candidates(40, 7)
    frame["concurrency"] = frame["concurrency"].astype(float)
    frame.loc[0, ["backend", "concurrency"]] = ["vllm", 0]
    frame.loc[0, ["max_num_seqs", "max_num_batched_tokens"]] = [8, 4]
    frame.loc[0, ["max_running_requests", "chunked_prefill_size", "max_batch_size", "max_num_tokens"]] = np.nan
    frame["prefix"] = 0
    trtllm = frame.index[frame["backend"] == "trtllm"][0]
    frame.loc[trtllm, "prefix"] = 8
    counts = pc.sweep(frame, None, TIMING, sla=LEVELS, top=3).attrs["counts"]
    told = ("rejected_by_bracket", "rejected_by_evaluator", "confirmed", "cannot_better")
    refused = sum(counts["unsupported"].values()) + sum(counts["errors"].values())
    assert sum(counts[name] for name in told) + refused == counts["candidates"] == 40
    assert any("block reuse" in why for why in counts["unsupported"]) and len(counts["errors"]) == 1
    assert "max_num_batched_tokens=4" in next(iter(counts["errors"]))


def test_what_the_closed_form_does_not_know_is_evaluated():
    """Rates, several ranks and timing without a formula: no bound, and an answer all the same."""
    engine = {"backend": "vllm", "max_num_seqs": 8}
    rates = pc.sweep(
        [{**engine, "rate_per_s": 2.0}, {**engine, "rate_per_s": 900.0}], pc.Workload.open_loop(64, 4, 1.0), TIMING
    )
    assert rates.index.tolist() == [0] and len(rates.attrs["counts"]["errors"]) == 1
    ranks = pc.sweep(
        [{**engine, "data_parallel_size": k} for k in (1, 2)], LOOP, TIMING, objective="fewest_gpus", top=1
    )
    assert ranks["gpus"].tolist() == [1] and ranks.attrs["counts"]["refined"] == 2
    phased = pc.PhaseTiming(prefill_ms=lambda n, isl, prefix: 5 + n * isl / 50, decode_ms=lambda n, context: 8 + n / 20)
    assert len(pc.sweep([engine], LOOP, phased)) == 1


def test_timing_by_key_and_by_function():
    """A column chooses a model, or a function of the row makes one; a column that it reads may have any name."""
    slow = pc.LinearTiming(prefill=(5.0, 0.04, 1e-6, 0.0), decode=(16.0, 0.1, 2e-6), gpus=1)
    fast = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6), gpus=4)
    rows = [{"backend": "vllm", "timing": "slow"}, {"backend": "vllm", "timing": "fast"}]
    models = {"slow": slow, "fast": fast}
    assert pc.sweep(rows, LOOP, models)["timing"].tolist() == ["fast", "slow"]
    assert pc.sweep(rows, LOOP, models, objective="per_gpu")["timing"].tolist() == ["slow", "fast"]
    assert pc.sweep(rows, LOOP, models, objective="fewest_gpus")["gpus"].tolist() == [1, 4]
    renamed = [{"backend": "vllm", "tp": 1}, {"backend": "vllm", "tp": 4}]
    assert pc.sweep(renamed, LOOP, lambda row: fast if row["tp"] == 4 else slow)["tp"].tolist() == [4, 1]


def test_a_pareto_front():
    """Nobody on it is bettered in both; everybody off it is."""
    frame = candidates(30, 11)
    found = pc.sweep(frame, None, TIMING, top=None)
    gpu, user = found["output_tokens_per_s_per_gpu"].to_numpy(), found["output_tokens_per_s_per_user"].to_numpy()
    for row, on in enumerate(found["pareto"]):
        bettered = ((gpu >= gpu[row]) & (user >= user[row]) & ((gpu > gpu[row]) | (user > user[row]))).any()
        assert on == (not bettered and user[row] == user[row])
    assert 0 < found["pareto"].sum() < len(found)


ROW = {"backend": "vllm"}
REFUSED = {
    "backend is missing": {"candidates": [{"isl": 4}]},
    "column 'max_num_seq': nothing reads it": {"candidates": [{**ROW, "max_num_seq": 4}]},
    "column 'tp': nothing reads it": {"candidates": [{**ROW, "tp": 4}], "timing": lambda row: TIMING},
    "column 'itl_p99': is a figure": {"candidates": [{**ROW, "itl_p99": 4}]},
    "Vllm has no option 'max_batch_size'": {"candidates": [{**ROW, "max_batch_size": 4}]},
    "objective='best': must be one of": {"objective": "best"},
    "objective='goodput': counts": {"objective": "goodput"},
    "objective='goodput': itl": {"objective": "goodput", "sla": pc.Sla("itl", 0.9, 5)},
    "top=0": {"top": 0},
    "executor='dask'": {"executor": "dask"},
    "sla=5": {"sla": [5]},
    "timing is missing": {"timing": None},
    "need a column 'timing'": {"timing": {"a": TIMING}},
    "timing='b': must be one of a": {"candidates": [{**ROW, "timing": "b"}], "timing": {"a": TIMING}},
    "row 0: timing=Roofline": {"timing": lambda row: pc.Roofline(model="llama-3.1-8b", gpu="h100")},
    "timing=7": {"timing": 7},
    "has no option 'rate_per_s'": {"candidates": [{**ROW, "rate_per_s": 4.0}]},
    "lengths of its own": {
        "candidates": [{**ROW, "isl": 4}],
        "workload": pc.Workload.closed_loop(shapes=[(4, 5), (6, 7)]),
    },
    "different workloads": {
        "candidates": [{**ROW, "isl": 4, "osl": 5, "concurrency": 2, "rate_per_s": 1.0}],
        "workload": None,
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_bad_input_is_refused(message):
    asked = {"candidates": [ROW], "workload": LOOP, "timing": TIMING, **REFUSED[message]}
    with pytest.raises(pc.SpecError) as caught:
        pc.sweep(**asked)
    assert message in str(caught.value) and len(str(caught.value)) < 200


CHANGES = {  # every column and argument that changes the answer, and two values of it
    "replicas": (1, 3),
    "isl": (64, 700),
    "osl": (4, 9),
    "prefix": (0, 200),
    "concurrency": (2, 7),
    "turnaround_ms": (0.0, 55.0),
    "max_num_seqs": (1, 8),
}


@pytest.mark.parametrize("column", CHANGES)
def test_no_column_is_ignored(column):
    first, second = (pc.sweep([{**ROW, column: value}], LOOP, TIMING)["e2e_mean"][0] for value in CHANGES[column])
    assert first != second


def test_routing_is_read():
    """A router that does not exist is refused, so the column reaches the deployment."""
    assert len(pc.sweep([{**ROW, "routing": "least_loaded", "replicas": 2}], LOOP, TIMING)) == 1
    with pytest.raises(pc.SpecError, match="routing"):
        pc.sweep([{**ROW, "routing": "nearest"}], LOOP, TIMING)
