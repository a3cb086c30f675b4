"""vLLM with launch times (V14): they move no pass, but arrivals are seen and tokens leave later."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES
from tests.worlds import World, same, token_times, worlds

TIMING = pc.LinearTiming(
    (100.0,), (10.0,)
)  # a decode pass takes 10 ms, a pass with prefill 100 ms and what its decodes add
ALONE = pc.LinearTiming((100.0,), (10.0,), combine="max")
COSTS = {"decode_ms": 2, "piecewise_ms": 20, "eager_ms": 50, "max_cudagraph_capture_size": 16}
NOTHING = dict.fromkeys(COSTS, 0)
ASYNC = MODES["vllm async"]
LAUNCHES = st.fixed_dictionaries(
    {
        **{f"{kind}_ms": st.sampled_from([0.0, 1.5, 20.0]) for kind in ("decode", "piecewise", "eager")},
        "max_cudagraph_capture_size": st.sampled_from([0, 16, 256]),
        "eager_queue_fraction": st.sampled_from([0.0, 0.7, 1.0]),
        "detokenizer_ms": st.sampled_from([0.0, 0.0, 0.05]),
    }
)


def run(rows: list[tuple[float, int, int]], timing: Any = ALONE, **launch: Any) -> pc.Report:
    """A replay under the clause's launch times, changed as told; none of them: without."""
    return pc.evaluate(pc.Workload.replay(rows), pc.Vllm(launch=COSTS | launch if launch else None), timing)


@pytest.mark.parametrize(
    ("launch", "last_ms"),
    [
        pytest.param({"eager_queue_fraction": 0.0}, 160, id="decided at 110, launched 50 later"),
        pytest.param({"eager_queue_fraction": 0.8}, 200, id="launched when four fifths of it have run"),
        pytest.param({"decode_ms": 0, "eager_ms": 0}, 120, id="launches that take nothing"),
    ],
)
def test_a_token_leaves_when_the_next_pass_is_launched(launch: dict[str, Any], last_ms: float):
    """A decodes to 120; the eager pass for B, which follows, lets its last token go no earlier than it is launched."""
    report = run([(0.0, 10, 3), (105.0, 40, 2)], **launch)
    assert report.passes()["start_ms"].tolist()[:4] == [0, 100, 110, 120]
    assert report.token_ms(0) == [100, 110, last_ms]


def test_an_arrival_joins_the_first_pass_decided_after_it():
    """The prefill pass is launched at 20: B, who came at 10, is in the next one; C, who came at 30, is in the one after."""
    rows = [(0.0, 10, 9), (10.0, 3, 9), (30.0, 3, 9)]
    launched, plain = run(rows, decode_ms=2), run(rows)
    assert launched.requests()["admitted_ms"].tolist()[:2] == [0, 100]
    assert plain.requests()["admitted_ms"].tolist()[:2] == [0, 110]
    summed = run(rows, TIMING, decode_ms=2)
    assert summed.requests()["admitted_ms"].tolist() == [0, 100, 210]
    one = run([rows[0], rows[2]], TIMING)
    assert one.requests()["admitted_ms"].tolist() == [0, 110]


def test_the_detokenizer_takes_one_token_after_the_other():
    """What leaves at 160 comes out at 161, and of two rows one after the other."""
    report = run([(0.0, 10, 3), (105.0, 40, 2)], detokenizer_ms=1)
    assert report.token_ms(0) == [101, 111, 161]
    assert report.requests()["done_ms"].tolist()[0] == 161
    assert run([(0.0, 10, 3), (105.0, 40, 2)], **NOTHING, detokenizer_ms=1).token_ms(0)[-1] == 121
    both = run([(0.0, 3, 2), (0.0, 3, 2)], detokenizer_ms=1)
    assert [both.token_ms(0)[0], both.token_ms(1)[0]] == [101, 102]


def test_a_client_waits_for_its_token_to_come_out():
    """With one client the next request is sent when the last token has come out."""
    workload = pc.Workload.closed_loop(10, 1, 1, requests=2)
    frame = pc.evaluate(workload, pc.Vllm(launch=COSTS | {"detokenizer_ms": 3}), ALONE).requests()
    assert frame["dispatch_ms"].tolist() == [0, 103]
    assert frame["done_ms"].tolist() == [103, 206]


@settings(max_examples=60)
@given(worlds(ASYNC))
def test_launches_that_cost_nothing_change_nothing(world: World):
    plain, launched = world.ask(), world.but(engine={"launch": NOTHING}).ask()
    assert launched.requests().drop(columns="first_pass", errors="ignore").equals(plain.requests())
    assert same(launched, plain)
    assert launched.itl_ms.mean == pytest.approx(plain.itl_ms.mean, nan_ok=True)


@settings(max_examples=60)
@given(worlds(ASYNC), LAUNCHES)
def test_every_token_appears_once_and_in_order(world: World, launch: dict[str, Any]):
    report = world.but(engine={"launch": launch}).ask()
    frame, tokens = report.requests(), token_times(report)
    assert [len(times) for times in tokens] == frame["osl"].tolist()
    assert all((np.diff(times) >= 0).all() for times in tokens)
    assert [times[-1] for times in tokens] == pytest.approx(frame["done_ms"].tolist())
    assert [times[0] for times in tokens] == pytest.approx(frame["first_ms"].tolist())


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(2, 40), st.integers(1, 12), LAUNCHES)
def test_a_turn_of_the_cycle_balances(isl: int, osl: int, clients: int, launch: dict[str, Any]):
    """Little's identity holds, and the gaps listed in it are those of its requests."""
    engine = pc.Vllm(launch=launch, max_num_batched_tokens=256, max_num_seqs=8)
    timing = pc.LinearTiming((5.0, 0.02), (8.0, 0.05, 0.001), combine="shared")
    turn = pc.evaluate(pc.Workload.closed_loop(isl, osl, clients), engine, timing)
    assert turn.window.kind == "cycle"
    assert clients / turn.throughput_per_s * 1000 == pytest.approx(turn.e2e_ms.mean)
    assert turn.itl_ms.mean * (osl - 1) == pytest.approx(turn.e2e_ms.mean - turn.ttft_ms.mean)
    assert turn.itl_ms.mean == pytest.approx(turn.tpot_ms.mean)


@pytest.mark.parametrize("options", [{"async_scheduling": False}, {"data_parallel_size": 2}])
def test_what_has_no_launch_times_is_refused(options: dict[str, Any]):
    with pytest.raises(pc.Unsupported, match="launch"):
        pc.evaluate(pc.Workload.closed_loop(10, 2, 1, requests=1), pc.Vllm(launch=COSTS, **options), TIMING)


def test_the_fraction_reaches_one():
    assert pc.Launch(**COSTS, eager_queue_fraction=1).eager_queue_fraction == 1.0
    with pytest.raises(pc.SpecError, match="eager_queue_fraction"):
        pc.Launch(**COSTS, eager_queue_fraction=1.1)
