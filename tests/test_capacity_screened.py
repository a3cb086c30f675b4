"""A search for capacity that screens loads first says what one that evaluates them all says."""

import sys
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.bounding import Verdict, nothing_known, verdicts
from tests.worlds import CLOCK

ASKED = {
    "deployment": pc.Vllm(max_num_seqs=64),
    "timing": CLOCK,
    "sla": [pc.Sla("ttft", 0.99, 400)],
    "workload": pc.Workload.closed_loop(1024, 128),
    "most": 96,
}


def found(screen: Any, monkeypatch: pytest.MonkeyPatch, asked: dict[str, Any]) -> Any:
    """Of a search that knows what `screen` answers with."""
    monkeypatch.setattr(sys.modules["passcal.capacity"], "verdicts", screen)
    asked = dict(asked)
    return pc.capacity(asked.pop("deployment"), asked.pop("timing"), **asked)


def unscreened(*_: Any) -> Any:
    """Knows nothing."""
    return nothing_known


def said(answer: Any) -> str:
    """All of an answer but what was tried; figures to the bit."""
    figures = answer.report and answer.report.to_columns()
    return repr((answer.load, answer.violated_load, answer.binds, answer.reason, answer.notes, figures))


def evaluated(answer: Any) -> set[float]:
    """Loads that were."""
    return {point.load for point in answer.tried if point.queueing_tier == "quantitative"}


def an_engine(rng: Any, tokens: int) -> Any:
    """Of three, with seats, budgets and at times KV that bind; a request has so many tokens."""
    seats, ahead = int(2 ** rng.uniform(3, 8)), bool(rng.integers(2))
    budget = max(int(2 ** rng.uniform(8, 13)), seats)
    kind = rng.integers(4)
    if kind == 0:
        blocks = int((tokens / 16 + 2) * rng.integers(2, 40)) if rng.random() < 0.3 else None
        return pc.Vllm(max_num_seqs=seats, max_num_batched_tokens=budget, async_scheduling=ahead, num_gpu_blocks=blocks)
    if kind == 1:
        return pc.Trtllm(max_batch_size=seats, max_num_tokens=budget, overlap_scheduler=ahead)
    options = {"max_running_requests": seats, "chunked_prefill_size": budget, "disable_overlap_schedule": not ahead}
    return pc.Sglang(**options, enable_mixed_chunk=kind == 2)


def a_question(seed: int) -> dict[str, Any]:
    """An engine, a timing, a workload, and targets that its figures at some load just keep, or nearly."""
    rng = np.random.default_rng(seed)
    isl, osl = int(2 ** rng.uniform(5, 12)), int(2 ** rng.uniform(0, 7))
    engine = an_engine(rng, isl + osl)
    timing = pc.LinearTiming(
        prefill=(rng.uniform(1, 10), rng.uniform(0.005, 0.05), float(rng.choice([0.0, 1e-6])), 0.0),
        decode=(rng.uniform(2, 12), rng.uniform(0.01, 0.1), float(rng.choice([0.0, 2e-6]))),
        combine=str(rng.choice(["sum", "max", "shared"])),
    )
    loop = pc.Workload.closed_loop(isl, osl, turnaround_ms=float(rng.choice([0.0, 0.0, 37.0])))
    most = int(rng.choice([48, 200]))
    at = int(rng.integers(1, most + 1))
    report = pc.evaluate_closed_loop(loop.model_copy(update={"concurrency": at}), engine, timing)
    sla: list[Any] = []
    for metric in rng.choice(["ttft", "ttft", "itl", "tpot", "e2e", "queue"], int(rng.integers(1, 3))):
        level = ["mean", 0.5, 0.9, 0.99, 0.999, 1.0][rng.integers(6)]
        measured = getattr(report, f"{metric}_ms")
        limit = measured.mean if level == "mean" else measured.quantile(level)
        if limit == limit:
            sla.append(pc.Sla(str(metric), level, float(limit * rng.choice([1.0, 1.0, rng.uniform(0.7, 2)]))))
    if not sla or rng.random() < 0.4:
        sla.append(pc.Floor("throughput_rps", float(report.throughput_per_s * rng.choice([0.9, 1.0, 1.05]))))
    return {"deployment": engine, "timing": timing, "sla": sla, "workload": loop, "most": most}


@pytest.mark.slow
def test_the_answer_is_that_of_evaluating_every_load(monkeypatch: pytest.MonkeyPatch):
    """On drawn questions: the load, its neighbour, what binds, notes and the report, to the bit; and fewer loads are evaluated."""
    fewer = all_of_them = 0
    for seed in range(100):
        asked = a_question(seed)
        slow, quick = (found(screen, monkeypatch, asked) for screen in (unscreened, verdicts))
        assert said(quick) == said(slow), seed
        assert {point.load for point in quick.tried} == {point.load for point in slow.tried}
        assert evaluated(quick) <= evaluated(slow)
        assert {quick.load or quick.violated_load, quick.violated_load} - {None} <= evaluated(quick)
        fewer, all_of_them = fewer + len(evaluated(quick)), all_of_them + len(evaluated(slow))
    assert fewer < 0.8 * all_of_them


def test_only_what_bounds_leave_open_is_evaluated(monkeypatch: pytest.MonkeyPatch):
    """Cohorts have a narrow bracket: most loads need no evaluation."""
    slow, quick = (found(screen, monkeypatch, ASKED) for screen in (unscreened, verdicts))
    assert said(quick) == said(slow) and len(evaluated(slow)) > 50
    assert evaluated(quick) >= {quick.load, quick.violated_load} and len(evaluated(quick)) < 20


def test_the_table_says_which_were_screened():
    """They have no figures."""
    asked = dict(ASKED)
    frame = pc.capacity(asked.pop("deployment"), asked.pop("timing"), **asked).points()
    screened = frame.queueing_tier == "screening"
    assert screened.any() and set(frame.queueing_tier[~screened]) == {"quantitative"}
    figures = frame[["throughput_rps", "ttft:p99<=400", "ttft_p99_half_width_ms"]]
    assert figures[screened].isna().all(axis=None) and figures[~screened].notna().all(axis=None)
    assert (frame.kept == (frame.violated == "")).all()


def test_bounds_tell_nothing_of_floors_that_may_be_kept(monkeypatch: pytest.MonkeyPatch):
    """`kept` is missing there, and the answer keeps the floor as evaluated."""
    four = pc.evaluate_closed_loop(
        ASKED["workload"].model_copy(update={"concurrency": 4}), ASKED["deployment"], ASKED["timing"]
    )
    asked = {**ASKED, "sla": [*ASKED["sla"], pc.Floor("throughput_rps", four.throughput_per_s)]}
    slow, quick = (found(screen, monkeypatch, asked) for screen in (unscreened, verdicts))
    assert said(quick) == said(slow) and quick.report.throughput_per_s >= four.throughput_per_s
    frame = quick.points()
    assert frame.kept.isna().any() and not frame.kept.isna()[frame.queueing_tier == "quantitative"].any()


@pytest.mark.parametrize("lie", [True, False])
def test_bounds_that_do_not_hold_are_found_out(lie: bool, monkeypatch: pytest.MonkeyPatch):
    """The answer is that of the evaluator, and a note says so."""

    def lying(*_: Any) -> Any:
        return lambda load: Verdict(lie, lie, () if lie else tuple(ASKED["sla"]))

    slow, misled = found(unscreened, monkeypatch, ASKED), found(lying, monkeypatch, ASKED)
    assert (misled.load, misled.violated_load, misled.binds) == (slow.load, slow.violated_load, slow.binds)
    assert len(evaluated(misled)) >= len(evaluated(slow))
    assert any("bounds of the closed form do not hold at load" in note for note in misled.notes)


UNCOVERED: dict[str, dict[str, Any]] = {
    "spread": {"start": "spread"},
    "phases": {"phases": 2},
    "a window": {"stop": pc.Window(requests=50)},
    "callbacks": {"timing": pc.PhaseTiming(lambda n, isl, prefix: 5.0, lambda n, context: 8.0 + n, pure=True)},
    "several shapes": {"workload": pc.Workload.closed_loop(shapes=[(512, 64), (900, 32)], concurrency=1)},
    "ranks": {"deployment": pc.Vllm(data_parallel_size=2)},
}


@pytest.mark.parametrize("case", UNCOVERED)
def test_what_the_closed_form_does_not_cover_is_evaluated(case: str):
    asked = {**ASKED, "most": 6, **UNCOVERED[case]}
    answer = pc.capacity(asked.pop("deployment"), asked.pop("timing"), **asked)
    assert len(evaluated(answer)) == len(answer.tried)
