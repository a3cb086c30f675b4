"""The timing of aiconfigurator's database against the installed package's own answers."""

import pickle
import sys

import pytest

import passcal as pc
from passcal.timing import aiconfigurator
from passcal.timing.aiconfigurator import AiconfiguratorTiming

MODEL, SYSTEM, BACKEND = "meta-llama/Meta-Llama-3.1-8B", "h100_sxm", "vllm"
TIMING = AiconfiguratorTiming(MODEL, SYSTEM, BACKEND)


@pytest.fixture(scope="module")
def engine():
    """The package's engine, made here by its own door."""
    step = pytest.importorskip("aiconfigurator_core.sdk.engine")
    return step.EngineHandle.compile(MODEL, SYSTEM, BACKEND)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "context"), [(1, 300), (16, 1025), (200, 4000)])
def test_a_decode_pass_is_the_databases_step(engine, rows, context):
    """A step of the database whose prompts have n tokens writes token n + 1: a context of n + 1 here."""
    asked = TIMING.pass_ms(pc.PassShape.of((), rows, rows * context))
    assert asked == engine.decode_step_latency(rows, context - 1, 1) > 0
    assert asked == pytest.approx(engine.run_static(batch_size=rows, isl=context - 1, osl=2)[1], rel=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "new", "past"), [(1, 1024, 0), (4, 1024, 0), (2, 512, 1536), (1, 1, 900)])
def test_a_batch_of_prompts_is_the_databases_prefill(engine, count, new, past):
    asked = TIMING.pass_ms(pc.PassShape.of(((new, past),) * count))
    assert asked == engine.predict_prefill_latency(count, past + new, past) > 0


@pytest.mark.slow
@pytest.mark.parametrize(("count", "isl", "rows", "osl"), [(1, 1024, 20, 100), (2, 1024, 64, 256), (1, 4000, 95, 500)])
def test_a_mixed_pass_of_whole_prompts_is_the_databases_mixed_step(engine, count, isl, rows, osl):
    """The database has its rows halfway through their outputs, with the token that is written on top."""
    shape = pc.PassShape.of(((isl, 0),) * count, rows, rows * (isl + osl // 2 + 1))
    assert TIMING.pass_ms(shape) == pytest.approx(engine.mixed_step_latency(count * isl, rows, isl, osl), rel=1e-12)


@pytest.mark.slow
def test_a_chunk_costs_attention_to_what_precedes_it_and_rows_their_own_context(engine):
    fresh, later = (TIMING.pass_ms(pc.PassShape.of(((512, past),), 8, 8 * 100)) for past in (0, 30_000))
    attention = [engine.mixed_step_breakdown(512 + past, 0, 512 + past, 1, past)[2] for past in (0, 30_000)]
    assert later - fresh == pytest.approx(attention[1] - attention[0], rel=1e-9)
    assert later - fresh > 1.0
    longer = TIMING.pass_ms(pc.PassShape.of(((512, 0),), 8, 8 * 100_000))
    assert longer - fresh == pytest.approx(
        engine.decode_step_latency(8, 99_999, 1) - engine.decode_step_latency(8, 99, 1), rel=1e-9
    )


@pytest.mark.slow
def test_chunks_that_hardly_differ_are_nearly_a_batch_of_equals(engine):
    asked = TIMING.pass_ms(pc.PassShape.of(((2000, 0), (2001, 0))))
    assert asked == pytest.approx(engine.predict_prefill_latency(2, 2000), rel=2e-3)


@pytest.mark.slow
def test_attention_grows_with_the_pairs_that_attend(engine):
    """A long prompt and a short one attend more than two of their mean."""
    uneven, even = (
        TIMING.pass_ms(pc.PassShape.of(chunks)) for chunks in (((30_000, 0), (2000, 0)), ((16_000, 0),) * 2)
    )
    attention = engine.mixed_step_breakdown(32_000, 0, 16_000, 1, 0)[2]
    assert uneven - even == pytest.approx(attention * ((30**2 + 2**2) / (2 * 16**2) - 1), rel=1e-3)


@pytest.mark.slow
def test_chunks_that_differ_pay_the_weights_once(engine):
    both = TIMING.pass_ms(pc.PassShape.of(((300, 0), (40, 700))))
    one, other = (TIMING.pass_ms(pc.PassShape.of((chunk,))) for chunk in ((300, 0), (40, 700)))
    weights = TIMING.pass_ms(pc.PassShape.of(((1, 0),)))
    assert both < one + other - 0.9 * weights


@pytest.mark.slow
@pytest.mark.parametrize("make", [pc.Vllm, pc.Sglang, pc.Trtllm])
def test_a_lone_client_waits_for_the_databases_prefill(engine, make):
    report = pc.evaluate_closed_loop(pc.Workload.closed_loop(isl=1024, osl=16, concurrency=1), make(), TIMING)
    assert report.ttft_ms.mean == pytest.approx(engine.predict_prefill_latency(1, 1024), rel=1e-12)


@pytest.mark.slow
def test_more_gpus_are_another_engine(engine):
    shape = pc.PassShape.of(((2048, 0),))
    split = AiconfiguratorTiming(MODEL, SYSTEM, BACKEND, tensor_parallel=2)
    assert split.pass_ms(shape) < TIMING.pass_ms(shape)
    assert (TIMING.gpus, split.gpus) == (1, 2)


@pytest.mark.slow
def test_it_crosses_processes(engine):
    shape = pc.PassShape.of(((100, 0),), 3, 900)
    assert pickle.loads(pickle.dumps(TIMING)).pass_ms(shape) == TIMING.pass_ms(shape)


def test_nothing_takes_no_time():
    pytest.importorskip("aiconfigurator_core")
    assert TIMING.pass_ms(pc.PassShape()) == 0.0


def test_drafts_are_refused():
    with pytest.raises(pc.Unsupported, match="draft_tokens=3"):
        TIMING.pass_ms(pc.PassShape.of((), 1, 100)._replace(draft_tokens=3))


@pytest.mark.slow
@pytest.mark.parametrize(
    "wrong",
    [{"system": "abacus"}, {"backend": "pencil"}, {"version": "0.0.1"}, {"tensor_parallel": 3}, {"gemm": "int1"}],
)
def test_an_engine_that_the_database_lacks_is_named(engine, wrong):
    timing = AiconfiguratorTiming(**{"model": MODEL, "system": SYSTEM, "backend": BACKEND, **wrong})
    with pytest.raises(pc.SpecError, match="aiconfigurator has no such engine") as caught:
        timing.pass_ms(pc.PassShape.of(((10, 0),)))
    assert len(str(caught.value)) < 200
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_price_that_the_database_lacks_is_named(engine):
    timing = AiconfiguratorTiming(MODEL, "a100_sxm", BACKEND, gemm="fp8_block")
    with pytest.raises(
        pc.SpecError, match=r"on a100_sxm with vllm: aiconfigurator has no price \(.*fp8_block"
    ) as caught:
        timing.pass_ms(pc.PassShape.of(((10, 0),)))
    assert len(str(caught.value)) < 200


def test_without_the_package_the_extra_is_named(monkeypatch):
    aiconfigurator.database_engine.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "aiconfigurator_core"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "aiconfigurator_core", None)
    with pytest.raises(pc.Unsupported, match=r"pip install 'passcal\[aic\]'"):
        TIMING.pass_ms(pc.PassShape.of(((10, 0),)))


@pytest.mark.slow
def test_the_package_is_imported_when_it_is_asked():
    import subprocess

    code = "import sys, passcal.interop.aiconfigurator; sys.exit('aiconfigurator_core' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
