"""Conversions between what tools mean by TPOT and ITL: worked numbers, inverses, and sums over token times."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from passcal import definitions as of

gaps = st.lists(st.integers(0, 9).map(float), max_size=12)
request = st.tuples(st.floats(1, 1e4), gaps)  # TTFT, gaps between tokens


def tokens(drawn: list[tuple[float, list[float]]]) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
    """Token times of these requests: one after the other, where each begins, and one array a request."""
    listed = [ttft + np.cumsum([0.0, *after]) for ttft, after in drawn]
    counts = [len(one) for one in listed]
    return np.concatenate(listed), np.cumsum(counts) - counts, listed


def test_worked_numbers():
    """A request of 5 tokens: the first after 100 ms, the last after 180."""
    assert of.tpot(100.0, 180.0, 5) == 20
    assert of.tpot_with_first(180.0, 5) == 36
    assert of.tpot_without_first(36.0, 100.0, 5) == 20
    assert of.tpot_to_with_first(20.0, 100.0, 5) == 36
    assert of.tpot(100.0, 180.0, 5, first_chunk_tokens=3) == 40
    assert of.pooled_itl_mean([20.0, 5.0], [5, 21]) == pytest.approx((4 * 20 + 20 * 5) / 24)
    assert of.itl_from_chunks(60.0, 3) == 20


def test_one_token_has_no_gap():
    assert math.isnan(of.tpot(100.0, 100.0, 1))
    assert math.isnan(of.itl_request_mean([5.0]))
    assert math.isnan(of.pooled_itl_mean([math.nan], [1]))
    assert of.pooled_itl_mean([math.nan, 7.0], [1, 2]) == 7


@given(st.floats(0, 1e4), st.floats(0, 1e3), st.integers(2, 5000))
def test_with_and_without_the_first_token_are_inverses(ttft: float, spent: float, osl: int):
    with_first = of.tpot_to_with_first(spent, ttft, osl)
    assert with_first == pytest.approx(of.tpot_with_first(ttft + (osl - 1) * spent, osl))
    assert of.tpot_without_first(with_first, ttft, osl) == pytest.approx(spent, rel=1e-9, abs=1e-9 * osl)


@given(st.lists(request, min_size=1, max_size=6))
def test_means_are_what_the_gaps_say(drawn: list[tuple[float, list[float]]]):
    """The mean over requests, weighted by gaps, is the mean of all gaps; and GuideLLM's two means convert into each other."""
    _, _, listed = tokens(drawn)
    ttft, e2e = np.array([one[0] for one in listed]), np.array([one[-1] for one in listed])
    osl = np.array([len(one) for one in listed])
    spent = of.tpot(ttft, e2e, osl)
    np.testing.assert_allclose(spent, [of.itl_request_mean(one) for one in listed], atol=1e-9)
    pooled = np.concatenate([np.diff(one) for one in listed])
    if pooled.size:
        assert of.pooled_itl_mean(spent, osl) == pytest.approx(pooled.mean(), abs=1e-9)
        guidellm = np.average(of.tpot_with_first(e2e, osl), weights=osl)
        assert of.tpot_without_first(guidellm, ttft.mean(), osl.mean()) == pytest.approx(pooled.mean(), abs=1e-6)


def streamed(times: np.ndarray, tokens_per_chunk: int) -> list[float]:
    """Messages by the rule of a stream interval, token by token: the first at once, then every so many, and the rest at the end."""
    sent, held = [], 0
    for number, when in enumerate(times):
        held += 1
        if number == 0 or held == tokens_per_chunk or number == len(times) - 1:
            sent.append(when)
            held = 0
    return sent


@given(st.lists(request, min_size=1, max_size=6), st.integers(1, 5))
def test_chunks_are_messages(drawn: list[tuple[float, list[float]]], tokens_per_chunk: int):
    times, heads, listed = tokens(drawn)
    wanted = [gap for one in listed for gap in np.diff(streamed(one, tokens_per_chunk)) if gap > 0]
    assert of.chunk_gaps(times, heads, tokens_per_chunk).tolist() == wanted
    if tokens_per_chunk == 1:
        pooled = pc.Distribution(np.concatenate([np.diff(one) for one in listed]))
        assert of.chunk_itl(pooled).values.tolist() == wanted


def test_a_mean_over_full_messages_converts():
    """13 tokens 10 ms apart, four a message: three gaps of 40 ms."""
    found = of.chunk_gaps(np.arange(13) * 10.0, np.array([0]), 4)
    assert found.tolist() == [40.0] * 3
    assert of.itl_from_chunks(found.mean(), 4) == 10


def test_bounds_are_included():
    values = np.array([9.0, 10.0, 11.0, math.nan])
    assert of.within(values, 10.0).tolist() == [True, True, False, True]
    assert of.within(values, 10.0, absent=False).tolist() == [True, True, False, False]
    assert of.within(values, None).all()
