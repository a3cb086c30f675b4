"""Requests that a stop token ends before max_tokens, by worked numbers. Every pass takes 10 ms."""

import pytest

from tools.oracle import ScenarioError, simulate

from .building import asked_of, closed, column, deployed, replay, sent, shapes

LOOKAHEAD = {
    "vllm": {"async_scheduling": True},
    "sglang": {"disable_overlap_schedule": False},
    "trtllm": {"overlap_scheduler": True},
}
NO_LOOKAHEAD = {
    "vllm": {"async_scheduling": False},
    "sglang": {"disable_overlap_schedule": True},
    "trtllm": {"overlap_scheduler": False},
}


def stopped(isl: int, osl: int, max_tokens: int | None, dispatch_ms: float = 0) -> dict:
    """A request that ends after osl outputs, though it might have had more."""
    return {**sent(isl, osl, dispatch_ms), "max_tokens": max_tokens}


@pytest.mark.parametrize("backend", LOOKAHEAD)
@pytest.mark.parametrize("max_tokens", [4, 50])
def test_a_stop_wastes_a_row(backend: str, max_tokens: int):
    """S4, T5, V12: it is not foreseen, so a row flies when it appears; without lookahead none does."""
    asked = asked_of(backend, stopped(10, 3, max_tokens), **LOOKAHEAD[backend])
    assert shapes(asked) == [(10, 1, 0), (0, 0, 1), (0, 0, 1), (0, 0, 1)]
    assert column(asked, "token_ms") == [[10, 20, 30]]
    asked = asked_of(backend, stopped(10, 3, max_tokens), **NO_LOOKAHEAD[backend])
    assert shapes(asked) == [(10, 1, 0), (0, 0, 1), (0, 0, 1)]


@pytest.mark.parametrize("backend", LOOKAHEAD)
@pytest.mark.parametrize("max_tokens", [3, None])
def test_an_end_by_length_wastes_none(backend: str, max_tokens: int | None):
    """S4, T5, V12: null is osl."""
    asked = asked_of(backend, stopped(10, 3, max_tokens), **LOOKAHEAD[backend])
    assert asked_of(backend, sent(10, 3), **LOOKAHEAD[backend])["workload"] != asked["workload"]
    assert simulate(asked) == simulate(asked_of(backend, sent(10, 3), **LOOKAHEAD[backend]))


@pytest.mark.parametrize("backend", LOOKAHEAD)
def test_a_first_token_may_be_the_last(backend: str):
    """S4, T5, V12: the prompt joins the rows for the wasted one."""
    asked = asked_of(backend, stopped(10, 1, 2), **LOOKAHEAD[backend])
    assert shapes(asked) == [(10, 1, 0), (0, 0, 1)]


@pytest.mark.parametrize("backend", LOOKAHEAD)
def test_the_engine_is_at_work_while_it_wastes(backend: str):
    """S1, T5, V12: a successor of the instant 30 starts at 40, where an end by length had drained the engine at 30."""
    for max_tokens, start_ms in ((3, 30), (9, 40)):
        requests = [stopped(10, 3, max_tokens), sent(10, 1, 30)]
        assert column(asked_of(backend, *requests, **LOOKAHEAD[backend]), "admitted_ms")[1] == start_ms


SEATS = {"vllm": "max_num_seqs", "sglang": "max_running_requests", "trtllm": "max_batch_size"}


@pytest.mark.parametrize("backend", LOOKAHEAD)
def test_a_seat_comes_back_as_early_as_by_length(backend: str):
    """S5, T8, V12: seen at 20, so it is free for the plan made then, of the pass at 30; its wasted row is no matter."""
    for max_tokens in (2, 9):
        requests = [stopped(10, 2, max_tokens), sent(10, 9), sent(10, 1)]
        asked = asked_of(backend, *requests, **LOOKAHEAD[backend], **{SEATS[backend]: 2})
        assert column(asked, "admitted_ms")[2] == 30


def test_a_wasted_row_takes_a_block():
    """V8: 4 + 5 tokens are a third block of four, which the second request needs for its sixth token.

    Its row of the pass at 50, planned at 40, finds none left, so it is preempted; at 50 the first one has stopped.
    """
    for max_tokens, preemptions in ((5, [0, 0]), (6, [0, 1])):
        requests = [stopped(4, 5, max_tokens), sent(4, 6)]
        asked = replay(*requests, async_scheduling=True, num_gpu_blocks=6, block_size=4)
        assert column(asked, "preemptions") == preemptions


def test_who_stops_may_wait_without_memory():
    """V8: alone in two blocks, the wasted row preempts itself; the stop is seen all the same, and there is no such pass."""
    asked = replay(stopped(4, 5, 9), async_scheduling=True, num_gpu_blocks=3, block_size=4)
    assert column(asked, "preemptions") == [1]
    assert column(asked, "token_ms") == [[10, 20, 30, 40, 50]]
    assert len(simulate(asked)["passes"]) == 5


def trtllm(*requests: dict, **engine: object) -> dict:
    """A replay of blocks of four tokens without overlap, unless told otherwise."""
    return asked_of("trtllm", *requests, **{"overlap_scheduler": False, "tokens_per_block": 4, **engine})


def test_guaranteed_reserves_what_may_come():
    """T1: 8 + 8 tokens are four blocks each, whatever becomes of them."""
    pair = [stopped(8, 2, 8), stopped(8, 2, 8)]
    assert column(trtllm(*pair, max_tokens_in_kv=32), "admitted_ms") == [0, 0]
    assert column(trtllm(*pair, max_tokens_in_kv=28), "admitted_ms") == [0, 20]


def test_a_paused_request_may_stop():
    """T12: the token in flight counts, so it is done when that appears."""
    engine = {"capacity_policy": "MAX_UTILIZATION", "max_tokens_in_kv": 20, "overlap_scheduler": True}
    asked = trtllm(sent(8, 6), stopped(8, 1, 6), **engine)
    assert column(asked, "preemptions") == [0, 1]
    assert column(asked, "token_ms")[1] == [10]


def sglang(*requests: dict, **engine: object) -> dict:
    """A replay with overlap."""
    return asked_of("sglang", *requests, **engine)


def test_admission_promises_what_may_come():
    """S8: 10 + 30 + 1 tokens must be less than what the first leaves, which promises 30 until its stop is seen at 20."""
    for pool, max_tokens, start_ms in ((83, 30, 0), (82, 30, 10), (81, 30, 30), (81, 2, 0)):
        asked = sglang(*[stopped(10, 2, max_tokens)] * 2, max_total_tokens=pool)
        assert column(asked, "admitted_ms")[1] == start_ms


def test_a_cut_may_come_before_the_stop():
    """S17: 100 - 60 - 1 - 1 outputs at most; the stop comes before, or does not."""
    for osl, outputs in ((30, 30), (38, 38), (50, 38)):
        asked = sglang(stopped(60, osl, 90), max_total_tokens=100)
        assert len(column(asked, "token_ms")[0]) == outputs
        assert len(shapes(asked)) == outputs + (outputs < 38)


def test_a_prefill_leaves_no_row_to_waste():
    """S2: the pass planned while the last token is in flight is the second request's prefill."""
    asked = sglang(stopped(10, 2, 9), sent(20, 1, 5))
    assert shapes(asked) == [(10, 1, 0), (0, 0, 1), (20, 1, 0)]


def test_a_retracted_request_makes_its_last_token_again():
    """S13: the longer prompt goes with its 20th token in flight, which comes again when it resumes, and ends it then."""
    engine = {"max_total_tokens": 60, "ignore_eos": False, "schedule_conservativeness": 0.05}
    for osl, preemptions, last_ms in ((18, 0, 190), (20, 1, 320)):
        asked = sglang(stopped(12, osl, 40), sent(10, 30), **engine)
        assert column(asked, "preemptions") == [preemptions, 0]
        assert column(asked, "token_ms")[0][-2:] == [last_ms - 10 - 110 * preemptions, last_ms]


@pytest.mark.parametrize("backend", LOOKAHEAD)
def test_shapes_of_a_closed_loop_may_stop(backend: str):
    """The successor is sent when the stop is seen."""
    shape = {"isl": 10, "prefix": 0, "osl": 2, "max_tokens": 5}
    asked = {**closed(1, 3, shape), "backend": backend, "engine": LOOKAHEAD[backend]}
    assert column(asked, "dispatch_ms") == [0, 20, 50]
    assert column(asked, "token_ms") == [[10, 20], [40, 50], [70, 80]]


def test_a_client_has_it_when_the_stop_is_seen():
    """E4: at 20 the first worker is idle to the router, though it wastes a row."""
    requests = [stopped(10, 2, 9), sent(10, 9), sent(10, 1, 20)]
    asked = deployed(replay(*requests, async_scheduling=True), 2, "least_loaded")
    assert column(asked, "engine") == [0, 1, 0]


REFUSALS = [
    (replay(stopped(10, 5, 4)), "request 0: max_tokens must be an integer of at least 5, not 4"),
    (replay(stopped(10, 5, 6), speculation={"drafts": 1, "accepted": 1}), "max_tokens above osl is not modelled with"),
    (replay(stopped(10, 5, 6), host_offload=True), "max_tokens above osl is not modelled with"),
    (
        replay(
            stopped(10, 5, 6),
            async_scheduling=True,
            launch={"decode_ms": 1, "piecewise_ms": 1, "eager_ms": 1, "max_cudagraph_capture_size": 1},
        ),
        "max_tokens above osl is not modelled with",
    ),
    (trtllm(stopped(8, 2, 9), max_tokens_in_kv=16), "isl 8, max_tokens 9 need 5 blocks; 4 are usable"),
    (
        trtllm(stopped(8, 2, 10), max_tokens_in_kv=16, capacity_policy="MAX_UTILIZATION"),
        "isl 8, max_tokens 10 need 5 blocks; 4 are usable",
    ),
    (
        trtllm(stopped(8, 2, 9), max_num_tokens=15, enable_chunked_prefill=False, capacity_policy="MAX_UTILIZATION"),
        "a prompt may exceed max_num_tokens",
    ),
]


@pytest.mark.parametrize(("asked", "message"), REFUSALS, ids=range(len(REFUSALS)))
def test_what_could_never_run_is_refused(asked: dict, message: str):
    """T1, T10, T14: by max_tokens, though the stop would come before."""
    with pytest.raises(ScenarioError, match=message):
        simulate(asked)


def test_memory_of_vllm_holds_what_comes():
    """V7: nothing is reserved for outputs, so no request is refused for what it only might have."""
    assert simulate(replay(stopped(10, 2, 500), num_gpu_blocks=2, block_size=16))


def test_without_lookahead_vllm_cannot_tell_a_stop_from_a_length():
    """V6, V12: nothing is reserved for what may come, and nothing is wasted."""
    lengths = [(40, 30, 0), (50, 30, 3), (64, 1, 25), (33, 17, 31)]
    engine = {"num_gpu_blocks": 9, "block_size": 16}
    by_length = simulate(replay(*[sent(*each) for each in lengths], **engine))
    assert sum(request["preemptions"] for request in by_length["requests"])
    assert simulate(replay(*[{**sent(*each), "max_tokens": 99} for each in lengths], **engine)) == by_length
