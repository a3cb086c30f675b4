"""vLLM with a host tier for KV (V13): who is in the pass in flight is not preempted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from tests.modes import MODES
from tests.worlds import World, same, token_times, worlds

TEN_MS = pc.LinearTiming((10.0,), (10.0,), combine="max")
WORLDS = st.sampled_from([mode for mode in MODES.values() if mode.backend == "vllm"]).flatmap(worlds)


def run(offload: bool, lookahead: bool = True) -> pc.Report:
    """Three prompts that fill a block each with their first token, and a fourth block."""
    options = {"enable_prefix_caching": False, "async_scheduling": lookahead, "block_size": 4, "num_gpu_blocks": 5}
    return pc.evaluate(pc.Workload.replay([(0.0, 3, 5)] * 3), pc.Vllm(**options, host_offload=offload), TEN_MS)


def test_who_needs_blocks_of_the_pass_in_flight_waits_a_pass():
    """At 20 ms the first row takes the last block; the second may not take the third's, which flew, so both sit a pass out, and then it may."""
    plain, waits = run(False), run(True)
    assert plain.passes()["decode_requests"].tolist() == [0, 3, 2, 2, 2, 0, 1, 1]
    assert waits.passes()["decode_requests"].tolist() == [0, 3, 1, 2, 2, 1, 0, 1, 1]
    assert [plain.token_ms(1), waits.token_ms(1)] == [[10, 20, 30, 40, 50], [10, 20, 40, 50, 60]]
    assert plain.requests()["preemptions"].tolist() == waits.requests()["preemptions"].tolist() == [0, 0, 1]


def test_a_synchronous_engine_has_no_pass_in_flight():
    assert same(run(False, lookahead=False), run(True, lookahead=False))


@settings(max_examples=60)
@given(WORLDS)
def test_every_token_appears_once(world: World):
    report = world.but(engine={"host_offload": True}).ask()
    frame, tokens = report.requests(), token_times(report)
    assert [len(times) for times in tokens] == frame["osl"].tolist()
    assert [times[-1] for times in tokens] == pytest.approx(frame["done_ms"].tolist())


@settings(max_examples=60)
@given(WORLDS)
def test_without_pressure_it_changes_nothing(world: World):
    plain = world.ask()
    if plain.preemptions == 0:
        assert plain.requests().equals(world.but(engine={"host_offload": True}).ask().requests())
