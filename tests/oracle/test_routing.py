"""E4: which worker and which rank a request goes to. Every pass takes 10 ms."""

import pytest

from tools.oracle import ScenarioError, simulate

from .building import closed, column, deployed, replay, sent


def test_round_robin_over_workers_then_over_their_ranks():
    """E4: with three workers of two ranks, a second rank comes fourth."""
    asked = deployed(replay(*[sent(10, 2, at) for at in range(8)], data_parallel_size=2), 3)
    assert column(asked, "engine") == [0, 2, 4, 1, 3, 5, 0, 2]


def test_the_order_is_that_of_visibility():
    """E4: a long prompt that is taken in slowly is the second to be placed, though sent first."""
    asked = deployed(replay(sent(1000, 1), sent(10, 1, 1), plane={"ingest_us_per_token": 10}), 2)
    assert column(asked, "engine") == [1, 0]


def test_workers_do_not_wait_for_each_other():
    """E4: the second one starts when its request comes."""
    asked = deployed(replay(sent(10, 3), sent(10, 1, 4)), 2)
    assert column(asked, "admitted_ms") == [0, 4]
    assert [each["engine"] for each in simulate(asked)["passes"]] == [0, 1, 0, 0]


def test_least_loaded_counts_what_is_not_done():
    """E4: ties go to the first worker, then to its first rank; a finished request counts no more."""
    requests = [sent(10, 9), sent(10, 1), sent(10, 9), sent(10, 9), sent(10, 1, 10), sent(10, 1, 11)]
    asked = deployed(replay(*requests, data_parallel_size=2), 2, "least_loaded")
    assert column(asked, "engine") == [0, 1, 2, 3, 1, 0]


def test_affinity_sends_a_group_after_its_first_request():
    """E4: only who has no home yet takes a turn."""
    groups = [7, 7, None, 7, 8, None, 8]
    asked = deployed(replay(*[sent(40, 1, at, 0, group, 32) for at, group in enumerate(groups)]), 3, "prefix_affinity")
    assert column(asked, "engine") == [0, 0, 1, 0, 2, 0, 2]


def test_affinity_finds_the_prefix():
    """E4: round robin would have cached nothing."""
    asked = replay(*[sent(64, 1, 100 * i, 0, 1, 64) for i in range(3)])
    assert column(deployed(asked, 3, "prefix_affinity"), "cached") == [0, 48, 48]
    assert column(deployed(asked, 3), "cached") == [0, 0, 0]


@pytest.mark.parametrize("backend", ["sglang", "trtllm"])
def test_every_backend_may_be_replicated(backend: str):
    """E4: four clients on two workers are two pairs."""
    asked = {**closed(4, 8, [30, 0, 4]), "backend": backend, "engine": {}}
    alone = simulate({**asked, "workload": {**asked["workload"], "concurrency": 2, "requests": 4}})
    both = simulate(deployed(asked, 2))
    assert [request["engine"] for request in both["requests"]] == [0, 1] * 4
    for engine in range(2):
        mine = [request["token_ms"] for request in both["requests"] if request["engine"] == engine]
        assert mine == [request["token_ms"] for request in alone["requests"]]


def pinned(request: dict, rank: int | None) -> dict:
    """The request, for this rank alone."""
    return {**request, "data_parallel_rank": rank}


def test_a_pinned_request_takes_the_turn_of_its_worker():
    """E4: request n goes to worker n mod 2, to the rank that it insists on; else n div 2 mod 3 counts all requests."""
    ranks = [None, 2, 0, None, None, 1, 1, None]
    requests = [pinned(sent(10, 2, at), rank) for at, rank in enumerate(ranks)]
    asked = deployed(replay(*requests, data_parallel_size=3), 2)
    assert column(asked, "engine") == [0, 3 + 2, 0, 3 + 1, 2, 3 + 1, 1, 3 + 0]


def test_a_pinned_request_goes_to_the_least_loaded_of_its_rank():
    """E4: rank 1 of the first worker, of the second, and of the first again, though both ranks 0 are idle."""
    requests = [pinned(sent(10, 9, at), 1) for at in range(3)]
    asked = deployed(replay(*requests, sent(10, 1, 4), data_parallel_size=2), 2, "least_loaded")
    assert column(asked, "engine") == [1, 3, 1, 0]


def test_affinity_of_pinned_requests_is_to_the_worker():
    """E4: the home is where the first one went, pinned or not; a pinned one goes to its own rank of that worker."""
    requests = [(7, 1), (7, None), (8, None), (8, 1), (None, None), (7, 0)]
    prompts = [pinned(sent(40, 1, at, 0, group, 32), rank) for at, (group, rank) in enumerate(requests)]
    asked = deployed(replay(*prompts, data_parallel_size=2), 2, "prefix_affinity")
    assert column(asked, "engine") == [1, 1, 2, 3, 1, 0]


def test_the_tokens_of_pinned_requests_are_active():
    """T7: two pinned to rank 1 drive the next to rank 0, which has the fewer then."""
    requests = [pinned(sent(50, 9), 1), pinned(sent(50, 9, 1), 1), sent(90, 9, 2), sent(9, 9, 3)]
    asked = {**replay(*requests), "backend": "trtllm", "engine": {"attention_dp": 2}}
    assert column(asked, "engine") == [1, 1, 0, 0]


def test_a_pinned_request_looks_at_its_rank_alone():
    """T7: 0 and 1 fill worker 0, so the third goes to worker 1; of ranks 0, that of worker 0 is no busier, of ranks 1 it is."""
    requests = [pinned(sent(50, 9), 0), pinned(sent(50, 9, 1), 1), sent(9, 9, 2)]
    for rank, engine in ((0, 0), (1, 3)):
        asked = {**replay(*requests, pinned(sent(9, 9, 3), rank)), "backend": "trtllm", "engine": {"attention_dp": 2}}
        assert column(deployed(asked, 2, "least_loaded"), "engine") == [0, 1, 2, engine]


@pytest.mark.parametrize("engine", [{}, {"data_parallel_size": 2}])
def test_a_rank_that_is_not_there_is_refused(engine: dict):
    """By its number."""
    with pytest.raises(ScenarioError, match="data_parallel_rank 2: a worker has"):
        simulate(replay(pinned(sent(10, 1), 2), **engine))
    assert simulate(replay(pinned(sent(10, 1), 0), **engine))


def test_one_worker_is_no_deployment():
    """Absent, there is one."""
    asked = replay(sent(10, 3), sent(20, 2, 5))
    assert simulate(deployed(asked, 1)) == simulate(asked)


def test_an_interval_that_waits_for_arrivals_is_refused_on_several_workers():
    """S14: which arrival an idle worker would wait for depends on all of them."""
    asked = {**closed(2, 2, [30, 0, 1]), "backend": "sglang", "engine": {"prefill_decode_interval": 2}}
    with pytest.raises(ScenarioError, match="prefill_decode_interval"):
        simulate(deployed(asked, 2))
    assert simulate(asked)


PHASE = {"kind": "phase", "prefill": [12, 0.016, 5e-07], "decode": [3, 0.06, 0.0011], "floor": 4}
NO_TIME = {"kind": "linear", "prefill": [0, 0, 0, 0], "decode": [0, 0, 0]}
LAUNCH = {"decode_ms": 0, "piecewise_ms": 0, "eager_ms": 12.125, "max_cudagraph_capture_size": 0}
HOST_LOOP = {"prefill_select_ms": 10.0, "decode_select_ms": 10.0}
ONE_BY_ONE = {"max_num_batched_tokens": 1, "max_num_seqs": 1, "enable_chunked_prefill": False}
SIMULTANEOUS = {
    "launch": ("vllm", {**ONE_BY_ONE, "async_scheduling": True, "launch": LAUNCH}, PHASE),
    "host loop": ("sglang", {"max_running_requests": 1, "host_loop": HOST_LOOP}, NO_TIME),
    "no time": ("vllm", ONE_BY_ONE, NO_TIME),
}


@pytest.mark.parametrize("kind", SIMULTANEOUS)
def test_all_that_ends_at_an_instant_counts(kind: str):
    """E4: the passes of both workers end at once; the successor goes to the one that is empty then, not to a tie.

    Requests 0 and 2 are on the first worker. What ends at an instant through a decision of that instant has ended too.
    """
    backend, engine, timing = SIMULTANEOUS[kind]
    workload = {"mode": "closed", "concurrency": 3, "requests": 4, "shapes": [[1, 0, 1]]}
    asked = {"name": "built", "backend": backend, "engine": engine, "workload": workload, "timing": timing}
    assert column(deployed(asked, 2, "least_loaded"), "engine") == [0, 1, 0, 1]
