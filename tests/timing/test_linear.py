"""Coefficients: the formula by hand, and the kernel charging exactly what the model says."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc

COMBINES = ("sum", "max", "shared")
PREFILL, DECODE = (5.0, 0.02, 1e-3, 3e-4), (7.0, 0.5, 0.01)
coefficients = st.integers(0, 2000).map(lambda v: v / 128)
timings = st.builds(
    pc.LinearTiming,
    st.tuples(*[coefficients] * 4),
    st.tuples(*[coefficients] * 3),
    st.sampled_from(COMBINES),
    st.sampled_from([(), (1, 2, 4, 8), (3,), (16,)]),
)


@pytest.mark.parametrize(("combine", "both"), [("sum", 9.0 + 13.0), ("max", 13.0), ("shared", 9.0 + 13.0 - 2.0)])
def test_the_formula_by_hand(combine: Any, both: float):
    """Chunks (2, 3) and (1, 0): 2 + 3 + 0.5 * 6 + 0.2 * 5 = 9; two rows of 4: 3 + 2 * 1 + 8 = 13."""
    timing = pc.LinearTiming((2.0, 1.0, 0.5, 0.2), (3.0, 1.0, 1.0), combine)
    chunks = ((2, 3), (1, 0))
    assert timing.pass_ms(pc.PassShape.of(chunks)) == 9
    assert timing.pass_ms(pc.PassShape.of((), 2, 8)) == 13
    assert timing.pass_ms(pc.PassShape.of(chunks, 2, 8)) == pytest.approx(both)


@pytest.mark.parametrize(("rows", "padded"), [(1, 2), (2, 2), (3, 8), (8, 8), (9, 9), (50, 50)])
def test_rows_are_padded_to_captured_sizes(rows: int, padded: int):
    """Up to the next captured size; beyond the last they are not."""
    timing = pc.LinearTiming(decode=(0.0, 1.0, 0.0), capture_sizes=(2, 8))
    assert timing.pass_ms(pc.PassShape.of((), rows, 100)) == padded


def test_left_out_coefficients_are_zero():
    assert pc.LinearTiming((5.0,), (8.0, 0.1)) == pc.LinearTiming((5.0, 0.0, 0.0, 0.0), (8.0, 0.1, 0.0))


@pytest.mark.slow
@given(timings, st.booleans(), st.sampled_from([64, 200]))
def test_the_kernel_charges_what_the_model_says(timing: pc.LinearTiming, lookahead: bool, budget: int):
    """Every pass of a run costs `pass_ms` of its shape, whether priced inside or asked."""
    seen: list[pc.PassShape] = []

    class Listening:
        def pass_ms(self, shape: pc.PassShape) -> float:
            seen.append(shape)
            return timing.pass_ms(shape)

    rows = [(37 + 53 * k % 211, k % 5, 1 + 7 * k % 29) for k in range(17)]
    loop = pc.Workload.closed_loop(shapes=rows, concurrency=7, requests=17)
    engine = pc.Vllm(max_num_seqs=16, max_num_batched_tokens=budget, async_scheduling=lookahead)
    asked, inside = (pc.evaluate(loop, engine, model).passes() for model in (Listening(), timing))
    assert len(seen) == len(asked) == len(inside)
    took = inside["end_ms"] - inside["start_ms"]
    np.testing.assert_allclose(took, [timing.pass_ms(shape) for shape in seen], rtol=1e-9, atol=1e-9)
    for name in ("prefill_tokens", "prefill_requests", "decode_requests", "decode_kv_tokens"):
        assert inside[name].tolist() == [getattr(shape, name) for shape in seen]
    for shape in seen:
        assert shape.prefill_tokens == sum(new for new, _ in shape.chunks)
        assert shape.prefill_kv_tokens == sum(past for _, past in shape.chunks)


@pytest.mark.parametrize("combine", COMBINES)
def test_combining_changes_mixed_passes_only(combine: Any):
    """A pass of one kind costs the same however parts combine."""
    timing = pc.LinearTiming(PREFILL, DECODE, combine)
    plain = pc.LinearTiming(PREFILL, DECODE)
    for shape in (pc.PassShape.of(((100, 7),)), pc.PassShape.of((), 4, 400)):
        assert timing.pass_ms(shape) == plain.pass_ms(shape)
