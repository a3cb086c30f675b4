"""Streams of arrivals: their law to the eye, at every scale; and the same at every call."""

import numpy as np
import pytest
from scipy import special, stats

from passcal.sources.streams import gamma_levels, strata, unit_gaps

COUNT = 1 << 16


def dispersion(gaps: np.ndarray, window: float) -> float:
    """Variance over mean of the arrivals in windows of so many mean gaps; 1 for Poisson."""
    at = np.cumsum(gaps)
    counts = np.bincount((at / window).astype(int))[:-1]
    return float(counts.var() / counts.mean())


@pytest.mark.parametrize("cv", [0, 0.3, 1, 2.5])
@pytest.mark.parametrize("count", [1, 63, 64, 1000, 8192])
def test_gaps_have_mean_one_and_are_the_same_again(count: int, cv: float):
    gaps = unit_gaps(count, cv)
    assert len(gaps) == count
    assert gaps.mean() == pytest.approx(1, rel=1e-12)
    assert (gaps > 0).all()
    np.testing.assert_array_equal(gaps, unit_gaps(count, cv))


def test_constant_gaps_are_all_one():
    assert set(unit_gaps(1000, 0)) == {1.0}


@pytest.mark.parametrize("cv", [0.4, 1.0, 2.0])
def test_gaps_follow_their_law(cv: float):
    """Closer than draws: Kolmogorov's distance is a third of what draws show in one case of a hundred, and rare gaps are there."""
    gaps, shape = unit_gaps(COUNT, cv), cv**-2
    assert stats.kstest(gaps, stats.gamma(shape, scale=cv**2).cdf).statistic < 1.63 / COUNT**0.5 / 3
    assert gaps.std() == pytest.approx(cv, rel=0.02)
    assert gaps.max() > stats.gamma(shape, scale=cv**2).ppf(1 - 2 / COUNT)


@pytest.mark.parametrize("window", [2, 8, 32, 128, 512])
def test_arrivals_cluster_as_poisson_does(window: int):
    """At every scale up to a hundredth of the run: neither anti-clustered (golden-ratio orders: 0.25) nor bursty."""
    windows = COUNT / window
    assert dispersion(unit_gaps(COUNT, 1), window) == pytest.approx(1, abs=3 * (2 / windows) ** 0.5)


def test_bursty_arrivals_cluster_more():
    assert dispersion(unit_gaps(COUNT, 2), 256) == pytest.approx(4, rel=0.25)


def test_successive_gaps_are_independent():
    gaps = unit_gaps(COUNT, 1)
    for lag in (1, 2, 5, 63, 64, 65):
        assert abs(np.corrcoef(gaps[lag:], gaps[:-lag])[0, 1]) < 4 / COUNT**0.5


def test_longer_streams_are_renewed():
    """Not the shorter one again: strata move with the number of them."""
    short, long = unit_gaps(4096, 1), unit_gaps(8192, 1)
    assert not np.intersect1d(short, long).size
    assert long.max() > short.max() - 1


@pytest.mark.parametrize("shape", [0.05, 0.25, 1.0, 3.0, 400.0])
def test_interpolated_quantiles_are_those_of_the_gamma(shape: float):
    levels = strata(30_000, np.random.default_rng(3))
    exact = special.gammaincinv(shape, levels)
    np.testing.assert_allclose(gamma_levels(shape, levels), exact, rtol=2e-4, atol=1e-12)
