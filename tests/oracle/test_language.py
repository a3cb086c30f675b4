"""The scenario language: clients, the plane, timing, and refusals by name."""

import copy

import pytest

from tools.oracle import ScenarioError, simulate
from tools.oracle.timing import Shape, read_timing

from .building import closed, column, replay, sent

PLAIN = replay(sent(100, 2))
LOOP = closed(2, 4, [100, 0, 2])


def test_visible_is_dispatch_plus_turnaround_plus_ingest():
    """The first burst has it too, and the queue goes by visibility."""
    asked = replay(sent(1000, 1), sent(10, 1), plane={"turnaround_ms": 3, "ingest_us_per_token": 20}, max_num_seqs=1)
    assert column(asked, "visible_ms") == [23, 3.2]
    assert column(asked, "admitted_ms") == [23, 3.2]


def test_replays_are_numbered_by_dispatch():
    """Whatever the order in the file; ties keep it."""
    asked = replay(sent(3, 1, 50), sent(1, 1, 0), sent(4, 1, 50), sent(2, 1, 0))
    assert column(asked, "isl") == [1, 2, 3, 4]


def test_a_first_turn_goes_before_a_successor_of_the_same_instant():
    """Client 1 starts at 20 ms, when client 0 is done: it gets the next number, and the lengths that go with it."""
    asked = closed(2, 3, [10, 0, 2], [20, 0, 2], [30, 0, 2], plane={"stagger_ms": 20})
    assert column(asked, "dispatch_ms") == [0, 20, 20]
    assert [plan["prefill_tokens"] for plan in simulate(asked)["passes"]][2] == 50


def test_fewer_requests_than_clients():
    """The clients that are left over never send."""
    assert len(column(closed(5, 3, [10, 0, 2]), "isl")) == 3


def test_a_shape_may_be_an_object_with_a_group():
    """The closed loop shares prefixes too."""
    shape = {"isl": 100, "prefix": 0, "osl": 2, "prefix_group": 1, "prefix_len": 64}
    assert column(closed(1, 3, shape), "cached") == [0, 64, 64]


def test_the_answer_has_every_key():
    """As the language promises."""
    answer = simulate(PLAIN)
    keys = "request engine dispatch_ms visible_ms admitted_ms isl prefix osl cached preemptions token_ms"
    assert list(answer["requests"][0]) == keys.split()
    keys = "engine start_ms end_ms prefill_tokens prefill_requests prefill_kv_tokens decode_requests decode_kv_tokens"
    assert list(answer["passes"][0]) == keys.split()


MIXED = Shape(chunks=2, new=300, past=100, new_past=20_000, new_square=50_000, rows=4, context=2000)


@pytest.mark.parametrize(("combine", "expected"), [("sum", 27.0), ("max", 16.0), ("shared", 22.0)])
def test_linear_parts_combine(combine: str, expected: float):
    """Chunks 5 + 3 + 2 + 1 = 11; rows 8 + 4 + 4 = 16; the smaller fixed part is 5."""
    timing = {"prefill": [5, 0.01, 1e-4, 2e-5], "decode": [8, 1, 0.002], "combine": combine}
    assert read_timing({"kind": "linear", **timing}).pass_ms(MIXED) == pytest.approx(expected)


def test_phase_parts_add_and_decoding_has_a_floor():
    """Chunks 1 + 3 + 9 = 13; rows 2 + 4 + 5 = 11 with a mean context of 500."""
    timing = {"kind": "phase", "prefill": [1, 0.01, 1e-4], "decode": [2, 1, 0.01], "floor": 3}
    assert read_timing(timing).pass_ms(MIXED) == pytest.approx(24)
    assert read_timing({**timing, "floor": 20}).pass_ms(MIXED) == pytest.approx(33)
    assert read_timing({**timing, "floor": 20}).pass_ms(Shape(chunks=1, new=300)) == pytest.approx(13)


REFUSALS = [
    ((), "colour", 1, "scenario: 'colour' is not modelled"),
    ((), "backend", "lmdeploy", "backend 'lmdeploy' is not modelled; known: vllm, sglang, trtllm"),
    (("engine",), "policy", "priority", "engine: 'policy' is not modelled"),
    (("engine",), "max_num_seqs", 9000, "max_num_batched_tokens 8192 is below max_num_seqs 9000"),
    (("engine",), "max_num_seqs", 0, "max_num_seqs must be an integer of at least 1, not 0"),
    (("engine",), "watermark", 1, "watermark must lie in [0, 1), not 1.0"),
    (("engine",), "block_size", True, "block_size must be an integer"),
    (("engine",), "async_scheduling", 1, "async_scheduling must be true or false, not 1"),
    (("workload",), "think_ms", 1, "workload: 'think_ms' is not modelled"),
    (("workload",), "mode", "open", "mode 'open' is not modelled; known: closed, replay, sessions"),
    (("workload",), "concurrency", 3, "workload: 'concurrency' is not modelled"),
    (("workload",), "requests", [], "requests must be a list with at least one entry"),
    (("workload", "requests", 0), "isl", 0, "request 0: isl must be an integer of at least 1"),
    (("workload", "requests", 0), "priority", 2, "request 0: 'priority' is not modelled"),
    (("workload", "requests", 0), "dispatch_ms", float("nan"), "dispatch_ms must be a finite number"),
    (("timing",), "kind", "table", "kind 'table' is not modelled; known: linear, phase"),
    (("timing",), "prefill", [1, 2], "prefill must have 4 coefficients, not 2"),
    (("timing",), "floor", 2, "timing: 'floor' is not modelled"),
    ((), "deployment", 2, "deployment must be an object, not 2"),
    ((), "deployment", {"replicas": 0}, "deployment: replicas must be an integer of at least 1, not 0"),
    ((), "deployment", {"routing": "random"}, "known: round_robin, least_loaded, prefix_affinity"),
    ((), "deployment", {"ranks": 2}, "deployment: 'ranks' is not modelled"),
    (("engine",), "data_parallel_size", 0, "data_parallel_size must be an integer of at least 1, not 0"),
    (("engine",), "prefill_schedule_interval", 0, "prefill_schedule_interval must be an integer of at least 1"),
    (("engine",), "host_offload", 1, "host_offload must be true or false"),
    (("engine",), "speculation", {"drafts": 2, "accepted": 2.5}, "speculation: accepted must lie in [0, 2], not 2.5"),
    (("engine",), "speculation", {"drafts": 0, "accepted": 0}, "drafts must be an integer of at least 1"),
    (("engine",), "speculation", {"drafts": 2}, "speculation lacks 'accepted'"),
    (("engine",), "launch", {"decode_ms": 1}, "launch lacks 'piecewise_ms'"),
]


@pytest.mark.parametrize(("path", "key", "value", "message"), REFUSALS, ids=[case[3][:40] for case in REFUSALS])
def test_what_is_not_modelled_is_refused_by_name(path: tuple, key: str, value: object, message: str):
    """In one line, with the value and the rule."""
    asked = copy.deepcopy(PLAIN)
    place = asked
    for part in path:
        place = place[part]
    place[key] = value
    with pytest.raises(ScenarioError) as refusal:
        simulate(asked)
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_missing_keys_are_named():
    """Nothing is guessed."""
    with pytest.raises(ScenarioError, match="workload lacks 'concurrency'"):
        simulate({**LOOP, "workload": {"mode": "closed", "requests": 1, "shapes": [[1, 0, 1]]}})


def test_a_prompt_over_the_budget_is_refused_without_chunking():
    """V11: it could never run."""
    with pytest.raises(ScenarioError, match="isl 9000 never fits"):
        simulate(replay(sent(9000, 1), enable_chunked_prefill=False))


def test_null_means_the_default():
    """Async scheduling and prefix caching are on, memory never binds."""
    engine = {"async_scheduling": None, "enable_prefix_caching": None, "num_gpu_blocks": None}
    asked = replay(sent(100, 3, 0, 0, 1, 100), sent(100, 3, 5, 0, 1, 100), **engine)
    assert column(asked, "cached") == [0, 96]
    assert column(asked, "admitted_ms") == [0, 20]
