"""Laws of lengths: what they accept, and that what is dealt from them has their moments and the correlation that was asked for."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.traffic import dealt
from tests.test_bad_input import refused
from tests.worlds import CLOCK

L = pc.Lengths
LOOP, OPEN = pc.Workload.closed_loop, pc.Workload.open_loop
LAWS = [
    L.fixed(7),
    L.samples([3, 1, 1]),
    L.strata({8: 0.25, 90: 0.75}),
    L.lognormal(800, 1.5),
    L.gamma(800, 2),
    L.uniform(3, 9),
    L.joint([(8, 1), (9, 3, 2)]),
]


@pytest.mark.parametrize("law", LAWS, ids=lambda law: type(law).__name__)
def test_laws_are_values(law: Any):
    for other in (copy.deepcopy(law), pickle.loads(pickle.dumps(law)), law.model_copy()):
        assert other == law
        assert hash(other) == hash(law)


def test_samples_are_shares_whatever_their_order():
    assert L.samples([3, 1, 1]) == L.samples(np.array([1, 3, 1])) == L.strata([(1, 2.0), (3, 1.0)])


@pytest.mark.parametrize("count", [500, 8192, 50_000])
@pytest.mark.parametrize(
    ("law", "mean", "cv"),
    [
        (L.lognormal(800, 0.3), 800, 0.3),
        (L.lognormal(2000, 1.5), 2000, 1.5),
        (L.gamma(800, 0.5), 800, 0.5),
        (L.gamma(3000, 2.0), 3000, 2.0),
        (L.uniform(101, 1100), 600.5, 1000 / 12**0.5 / 600.5),
        (L.strata({100: 3, 500: 1}), 200, 300**0.5 * 10 / 200),
    ],
)
def test_strata_have_the_moments_of_their_law(law: Any, mean: float, cv: float, count: int):
    """Better than draws: the mean to a third of what `count` draws would scatter, the spread to a few percent."""
    isl = dealt(LOOP(law, 1).shapes, count)["isl"]
    assert isl.mean() == pytest.approx(mean, abs=max(0.01, mean * cv / count**0.5 / 3))
    assert isl.std() == pytest.approx(mean * cv, rel=0.15 if count == 500 else 0.06)


@pytest.mark.parametrize("count", [100, 1024, 20_000])
@pytest.mark.parametrize("asked", [-0.4, 0.0, 0.3, 0.8])
@pytest.mark.parametrize("isl", [L.lognormal(800, 1.2), L.gamma(800, 1), L.uniform(1, 4000)])
def test_the_sample_correlation_is_the_asked_one(isl: Any, asked: float, count: int):
    rows = dealt(LOOP(isl, L.lognormal(200, 0.8), correlation=asked).shapes, count)
    assert abs(np.corrcoef(rows["isl"], rows["osl"])[0, 1] - asked) <= 2 / count**0.5


def test_neighbours_are_not_correlated():
    """An order of low discrepancy would alternate; this one does not know what came before."""
    rows = dealt(LOOP(L.lognormal(800, 0.5), L.uniform(1, 100)).shapes, 20_000)
    for name in ("isl", "osl"):
        assert abs(np.corrcoef(rows[name][1:], rows[name][:-1])[0, 1]) <= 3 / 20_000**0.5


def test_a_correlation_out_of_reach_is_refused():
    loop = LOOP(L.lognormal(800, 3), L.uniform(1, 100), correlation=-0.9)
    refused(lambda: pc.evaluate(loop, pc.Vllm(), CLOCK), "correlation=-0.9", "at most")


def test_joint_rows_stay_together():
    rows = [(10, 2), (300, 20, 40), (90, 7)]
    found = dealt(LOOP(shapes=L.joint(rows)).shapes, 3000)
    whole, counts = np.unique(found, return_counts=True)
    assert sorted((int(r["isl"]), int(r["osl"])) for r in whole) == [(10, 2), (90, 7), (300, 40)]
    assert counts.tolist() == [1000, 1000, 1000]


@pytest.mark.parametrize(
    "law", [L.fixed(300), L.samples([300, 300]), L.uniform(300, 300), L.lognormal(300, 0), L.gamma(300.4, 0)]
)
def test_one_stratum_is_a_fixed_length(law: Any):
    """Bit for bit, in a closed and in an open loop."""
    for made in (lambda isl: LOOP(isl, 20, 6), lambda isl: OPEN(isl, 20, 8.0)):
        one, other = (pc.evaluate(made(isl), pc.Vllm(), CLOCK) for isl in (law, 300))
        assert one.requests().equals(other.requests())
        assert one.passes().equals(other.passes())
        assert one.fidelity == other.fidelity


def test_joint_rows_that_are_alike_are_a_fixed_length():
    loops = (LOOP(shapes=L.joint([(300, 20)] * 5), concurrency=6), LOOP(300, 20, 6))
    one, other = (pc.evaluate(loop, pc.Vllm(), CLOCK).requests() for loop in loops)
    assert one.equals(other)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: L.samples([]), "at least one value"),
        (lambda: L.samples(3), "at least one value"),
        (lambda: L.samples([5, 0]), "tokens"),
        (lambda: L.samples([5, 1.5]), "row 1"),
        (lambda: L.strata([]), "at least one"),
        (lambda: L.strata({8: 0.0}), "weights"),
        (lambda: L.strata([8, 9]), "pairs"),
        (lambda: L.lognormal(0.5, 1), "mean=0.5"),
        (lambda: L.lognormal(100, -1), "cv=-1"),
        (lambda: L.gamma(100, float("nan")), "cv=nan"),
        (lambda: L.gamma("100", 1), "mean='100'"),
        (lambda: L.uniform(0, 5), "low=0"),
        (lambda: L.uniform(6, 5), "high=5"),
        (lambda: L.joint([]), "at least one row"),
        (lambda: L.joint([(5, 5, 1)]), "prefix=5"),
        (lambda: LOOP(L.joint([(5, 1)]), 3), "as shapes"),
        (lambda: LOOP(L.uniform(5, 6), "3"), "tokens"),
        (lambda: LOOP(L.uniform(5, 6), 0), "tokens"),
        (lambda: LOOP(shapes=L.uniform(5, 6)), "Lengths.joint"),
        (lambda: LOOP(L.uniform(5, 6), 3, shapes=[(5, 3)]), "both given"),
        (lambda: LOOP(L.uniform(5, 6), 3, correlation=0.5), "both vary"),
        (lambda: LOOP(5, 6, correlation=0.5), "both vary"),
        (lambda: LOOP(L.uniform(5, 6), L.uniform(5, 6), correlation=1.5), "correlation=1.5"),
        (lambda: pc.evaluate(LOOP(L.uniform(5, 6), 3, prefix=5), pc.Vllm(), CLOCK), "prefix=5"),
    ],
)
def test_what_no_law_is_is_refused(ask: Any, words: str):
    refused(ask, words)
