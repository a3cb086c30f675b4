"""The fitting procedure on runs that the product itself made: what priced the passes is found again."""

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from tools.validation.fit import alternate, fit, regress
from tools.validation.held_out import as_predicted
from tools.validation.lives import coefficients, linear, lives, planned, replay, terms

TRUE = np.array([7.0, 0.03, 2e-6, 1e-6, 9.0, 0.12, 6e-5])
ENGINE = pc.Vllm(max_num_batched_tokens=512, max_num_seqs=24)
TIGHT = ENGINE.model_copy(update={"num_gpu_blocks": 500})
SYNC = ENGINE.model_copy(update={"async_scheduling": False})


def asked(requests: int = 120) -> pd.DataFrame:
    """Requests of many lengths that come fast enough to queue, and then slowly enough to drain."""
    draw = np.random.default_rng(7)
    gaps = np.where(np.arange(requests) < requests // 2, 40.0, 400.0) * draw.exponential(size=requests)
    return pd.DataFrame(
        {
            "dispatch_ms": np.cumsum(gaps),
            "isl": draw.integers(20, 1500, requests),
            "osl": draw.integers(2, 150, requests),
        }
    )


def measured(timing: pc.LinearTiming, engine: pc.Vllm = ENGINE) -> pd.DataFrame:
    """What a log of such a run would say."""
    requests = asked()
    calendar = replay(requests, engine, timing)
    scheduled = calendar.passes["start_ms"].to_numpy()[planned(calendar)]
    told = calendar.requests
    return requests.assign(scheduled_ms=scheduled, first_ms=told["first_ms"], last_ms=told["done_ms"])


def half(run: pd.DataFrame) -> np.ndarray:
    """Mask of every second request, so that the slow part is seen too."""
    return np.arange(len(run)) % 2 == 0


@pytest.mark.parametrize("engine", [ENGINE, TIGHT], ids=["seats", "memory"])
@pytest.mark.parametrize("combine", ["sum", "max", "shared"])
def test_terms_price_the_passes(combine, engine):
    timing = linear(TRUE, combine)
    calendar = replay(asked(60), engine, timing)
    passes = calendar.passes
    assert ((passes["prefill_requests"] > 0) & (passes["decode_requests"] > 0)).sum() > 20
    took = (passes["end_ms"] - passes["start_ms"]).to_numpy()
    assert terms(calendar.shapes, timing) @ TRUE == pytest.approx(took, rel=1e-9)


@pytest.mark.parametrize("engine", [ENGINE, SYNC], ids=["async", "sync"])
def test_lives_add_up(engine):
    """Between planning and tokens no pass is left out, and none is counted twice."""
    timing = linear(TRUE, "sum")
    calendar = replay(asked(60), engine, timing)
    sums, told = lives(calendar, timing), calendar.requests
    assert sums.to_last @ TRUE == pytest.approx((told["done_ms"] - told["first_ms"]).to_numpy(), rel=1e-9)
    since = calendar.passes["start_ms"].to_numpy()[planned(calendar)]
    assert sums.to_first @ TRUE == pytest.approx((told["first_ms"] - since).to_numpy(), rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [ENGINE, TIGHT], ids=["seats", "memory"])
@pytest.mark.parametrize("combine", ["sum", "max", "shared"])
def test_coefficients_are_found_again(combine, engine):
    run = measured(linear(TRUE, combine), engine)
    found = alternate(run, engine, half(run), combine)
    assert found.error < 1e-3
    assert coefficients(found.timing) == pytest.approx(TRUE, rel=0.02, abs=1e-7)


@pytest.mark.slow
def test_the_way_of_combining_is_found_again():
    run = measured(linear(TRUE, "max"))
    assert fit(run, ENGINE, half(run)).timing.combine == "max"


@pytest.mark.slow
def test_times_of_other_requests_are_not_looked_at():
    run = measured(linear(TRUE, "sum"))
    used = half(run)
    spoilt, times = run.copy(), ["scheduled_ms", "first_ms", "last_ms"]
    spoilt.loc[~used, times] = np.nan
    assert alternate(spoilt, ENGINE, used, "sum") == alternate(run, ENGINE, used, "sum")
    slower = run.copy()
    slower.loc[used, "last_ms"] += 0.5 * (slower["last_ms"] - slower["first_ms"])[used]
    assert alternate(slower, ENGINE, used, "sum") != alternate(run, ENGINE, used, "sum")


def test_outlying_rows_and_noisy_kinds_weigh_less():
    """One row in ten is wrong by a factor, and one kind errs a hundred times as much as the other."""
    draw = np.random.default_rng(3)
    sums, kind = draw.uniform(1, 100, (400, 7)), np.repeat([0, 1], 200)
    took = sums @ TRUE * (1 + np.where(kind == 0, 0.05, 0.0005) * draw.standard_normal(400))
    took[::10] *= 3
    found = regress(sums, took, kind)
    plain = np.linalg.lstsq(sums / took[:, None], np.ones(400), rcond=None)[0]
    assert found[4] == pytest.approx(TRUE[4], rel=0.01)
    assert sums @ found == pytest.approx(sums @ TRUE, rel=0.01)
    assert np.abs(sums @ plain / (sums @ TRUE) - 1).max() > 0.1


def test_queue_times_by_hand():
    """A pass costs 10 ms. Under lookahead an arrival during the first pass is picked up when the second starts, and runs in the third.

    With one seat it is planned when the first request's five passes are over and nobody is left.
    """
    requests = pd.DataFrame({"dispatch_ms": [0.0, 4.0], "isl": [8, 8], "osl": [5, 2]})
    calendar = replay(requests, ENGINE, pc.LinearTiming(prefill=(10.0,), decode=(10.0,), combine="max"))
    told = as_predicted(calendar)
    assert told["pick_up"].tolist() == [0.0, 6.0]
    assert told["queue"].tolist() == [0.0, 0.0]
    assert told["ttft"].tolist() == [10.0, 26.0]
    one_seat = ENGINE.model_copy(update={"max_num_seqs": 1})
    queued = as_predicted(replay(requests, one_seat, pc.LinearTiming(prefill=(10.0,), decode=(10.0,))))
    assert queued["pick_up"].tolist() == [0.0, 6.0]
    assert queued["queue"].tolist() == [0.0, 40.0]
    without = as_predicted(
        replay(requests, one_seat.model_copy(update={"async_scheduling": False}), pc.LinearTiming((10.0,), (10.0,)))
    )
    assert without["queue"].tolist() == [0.0, 40.0]
