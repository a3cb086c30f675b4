"""Weighted atoms against a brute force that writes every measurement out."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc

values = st.lists(st.integers(-50, 50).map(lambda v: v / 4), min_size=1, max_size=12)
weighted = st.lists(st.tuples(st.integers(-50, 50).map(lambda v: v / 4), st.integers(1, 5)), min_size=1, max_size=12)
levels = st.fractions(0, 1, max_denominator=100)
SUMMARIES = ("mean", "std", "min", "max")


def written_out(atoms: list[tuple[float, int]]) -> list[float]:
    """Each value as often as it counts, sorted."""
    return sorted(value for value, weight in atoms for _ in range(weight))


@given(weighted, levels)
def test_quantiles_are_the_left_continuous_inverse(atoms: list[tuple[float, int]], level: Fraction):
    """The least value at or below which at least this share lies, in exact arithmetic."""
    everything = written_out(atoms)
    rank = max(1, math.ceil(level * len(everything)))
    distribution = pc.Distribution(*zip(*atoms, strict=True))
    assert distribution.quantile(float(level)) == everything[rank - 1]


@given(weighted, st.lists(st.floats(0, 1), min_size=1, max_size=4))
def test_interpolated_quantiles_are_numpys(atoms: list[tuple[float, int]], several: list[float]):
    distribution = pc.Distribution(*zip(*atoms, strict=True))
    wanted = np.quantile(written_out(atoms), several)
    assert distribution.interpolated(several) == pytest.approx(wanted.tolist(), rel=1e-9, abs=1e-9)
    plain = pc.Distribution(written_out(atoms))
    assert plain.interpolated(several) == distribution.interpolated(several)


def test_a_mixture_has_no_order_statistics():
    mixed = pc.Distribution.mix([pc.Distribution([1.0, 2.0]), pc.Distribution([5.0, 6.0, 7.0])])
    with pytest.raises(pc.SpecError, match="whole weights"):
        mixed.interpolated((0.5,))


@given(values, levels)
def test_unweighted_values_count_once(given_values: list[float], level: Fraction):
    plain, ones = pc.Distribution(given_values), pc.Distribution(given_values, [1] * len(given_values))
    assert plain.quantile(float(level)) == ones.quantile(float(level))
    for name in SUMMARIES:
        assert getattr(plain, name) == pytest.approx(getattr(ones, name), rel=1e-12, abs=1e-12)


@given(weighted)
def test_summaries(atoms: list[tuple[float, int]]):
    everything = np.array(written_out(atoms))
    found = pc.Distribution(*zip(*atoms, strict=True))
    assert found.count == len(everything)
    assert found.mean == pytest.approx(everything.mean(), rel=1e-12, abs=1e-12)
    assert found.std == pytest.approx(everything.std(), rel=1e-9, abs=1e-9)
    assert found.min == everything.min()
    assert found.max == everything.max()


@given(weighted, st.integers(-60, 60).map(lambda v: v / 4))
def test_shares_and_the_cdf_agree(atoms: list[tuple[float, int]], limit: float):
    everything = np.array(written_out(atoms))
    found = pc.Distribution(*zip(*atoms, strict=True))
    share = (everything <= limit).mean()
    assert found.share_within(limit) == pytest.approx(share, abs=1e-12)
    at, upto = found.cdf()
    assert (np.diff(at) > 0).all()
    assert upto[-1] == pytest.approx(1)
    below = np.searchsorted(at, limit, side="right")
    assert (upto[below - 1] if below else 0.0) == pytest.approx(share, abs=1e-12)


@given(st.lists(values, min_size=1, max_size=4), levels)
def test_a_mixture_gives_each_part_the_same_share(parts: list[list[float]], level: Fraction):
    mixed = pc.Distribution.mix([pc.Distribution(part) for part in parts])
    assert mixed.mean == pytest.approx(np.mean([np.mean(part) for part in parts]), abs=1e-9)
    common = math.lcm(*map(len, parts))
    everything = sorted(value for part in parts for value in part for _ in range(common // len(part)))
    rank = max(1, math.ceil(level * len(everything)))
    assert mixed.quantile(float(level)) == everything[rank - 1]


def test_an_empty_part_has_no_share():
    mixed = pc.Distribution.mix([pc.Distribution([]), pc.Distribution([1.0, 3.0])])
    assert mixed.mean == 2
    assert len(pc.Distribution.mix([pc.Distribution([]), pc.Distribution([])])) == 0


@pytest.mark.parametrize("empty", [pc.Distribution([]), pc.Distribution([1.0], [0])])
def test_nothing_measured_is_nan(empty: pc.Distribution):
    assert all(math.isnan(getattr(empty, name)) for name in SUMMARIES)
    assert all(math.isnan(q) for q in (*empty.quantiles((0, 0.5, 1)), *empty.interpolated((0, 0.5, 1))))
    assert math.isnan(empty.share_within(5))


def test_ninety_percent_of_ten_is_the_ninth():
    """0.1 + 0.2 and its kin must not push a level over a step."""
    ten = pc.Distribution(range(1, 11))
    assert [ten.quantile(k / 10) for k in range(11)] == [1, *range(1, 11)]
    assert ten.quantile(0.1 + 0.2) == 3
    assert ten.quantile(0.3001) == 4


@pytest.mark.parametrize("level", [-0.1, 1.01, 99, math.nan, math.inf])
def test_levels_lie_between_0_and_1(level: float):
    for ask in (pc.Distribution([1.0]).quantile, lambda q: pc.Distribution([1.0]).interpolated((q,))):
        with pytest.raises(pc.SpecError, match="must lie in"):
            ask(level)


def test_one_weight_a_value():
    with pytest.raises(pc.SpecError, match="one a value"):
        pc.Distribution([1.0, 2.0], [1])


def test_it_prints():
    assert "p99=2" in repr(pc.Distribution([1.0, 2.0], [1, 3]))


def test_atoms_of_no_weight_do_not_count():
    found = pc.Distribution([0.0, 5.0, 9.0], [0, 1, 0])
    assert (found.min, found.quantile(0), found.max) == (5, 5, 5)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_weights_are_counts(weight: float):
    with pytest.raises(pc.SpecError):
        pc.Distribution([1.0, 2.0], [1.0, weight])
