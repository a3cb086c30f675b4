"""D1 to D4, D7: from one stage to the other. A pass takes 10 ms; a link carries 1 byte a ms and a token is 1 byte, where there is one."""

import pytest

from tools.oracle import ScenarioError, simulate

from .apart import BYTE_A_MS, NO_LINK, apart, pool, sent, times
from .building import TEN_MS, closed, column, replay

STAGES = ("prefill_done_ms", "transfer_start_ms", "transfer_done_ms", "attach_ms", "token_ms")
BACKENDS = ["vllm", "sglang", "trtllm"]


def stages(asked: dict) -> list:
    """All times of all requests."""
    return times(simulate(asked), *STAGES)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("first_token", "expected"),
    [
        ("prefill", [[10, 10, 17, 17, [10, 27, 37]], [20, None, None, None, [20]]]),
        ("decode", [[10, 10, 17, 17, [17, 27, 37]], [20, 20, 40, 40, [40]]]),
        ("decode_pass", [[10, 10, 17, 17, [27, 37, 47]], [20, 20, 40, 47, [57]]]),
    ],
)
def test_where_the_first_token_comes_from(backend: str, first_token: str, expected: list):
    """D2: seven bytes take 7 ms. One output is made by the prefill, or goes over; then it is there on arrival, or takes a pass."""
    asked = apart(sent(7, 3), sent(20, 1, 3), prefill=pool(backend), decode=pool(backend), link=BYTE_A_MS)
    asked["deployment"]["first_token"] = first_token
    if (backend, first_token) == ("sglang", "decode_pass"):
        with pytest.raises(ScenarioError, match="decode_pass is not modelled"):
            simulate(asked)
    else:
        assert stages(asked) == expected


def test_the_rows_of_the_first_decode_pass():
    """D1, D2: a row with the token after the prompt; or a chunk of one token, the prompt's last, and then that row."""
    asked = apart(sent(7, 3))
    rows = ("prefill_tokens", "prefill_kv_tokens", "decode_requests", "decode_kv_tokens")
    expected = {"prefill": [[0, 0, 1, 8], [0, 0, 1, 9]], "decode_pass": [[1, 6, 0, 0], [0, 0, 1, 8], [0, 0, 1, 9]]}
    for first_token, passes in expected.items():
        asked["deployment"]["first_token"] = first_token
        seen = [each for each in simulate(asked)["passes"] if each["engine"] == 1]
        assert [[each[key] for key in rows] for each in seen] == passes


def test_the_numbers_of_the_clauses():
    """D3: 128 tokens of 1 MB at 1 GB/s take 128 ms; 20 missing ones of 1 kB 0.02 ms."""
    link = {"gb_per_s": 1.0, "efficiency": 1.0, "kv_bytes_per_token": 1_000_000}
    assert stages(apart(sent(128, 2), link=link)) == [[10, 10, 138, 138, [10, 148]]]
    link = {"gb_per_s": 1.0, "efficiency": 1.0, "kv_bytes_per_token": 1000, "transfer": "missing"}
    ((_, start_ms, done_ms, _, _),) = stages(apart(sent(120, 2, prefix=100), link=link))
    assert done_ms - start_ms == pytest.approx(0.02)


def test_efficiency_and_latency():
    """D3: of what is nominal a part is had, 0.8 if not told; the latency comes before."""
    link = {"gb_per_s": 1e-6, "kv_bytes_per_token": 2, "latency_ms": 5}
    assert stages(apart(sent(8, 2), link=link))[0][:3] == [10, 10, pytest.approx(35)]


def test_all_of_a_prompt_is_never_there():
    """D3: as at least one token is computed, at least one is sent."""
    link = {**BYTE_A_MS, "transfer": "missing"}
    assert stages(apart(sent(8, 2, prefix=100), link=link))[0][:3] == [10, 10, 11]
    assert stages(apart(sent(8, 2, prefix=3), link={**link, "transfer": "full"}))[0][:3] == [10, 10, 18]


def test_two_prefill_workers_share_an_ingress():
    """D3: both at a half; one alone needs 8 ms."""
    asked = apart(sent(8, 2), sent(8, 2), link=BYTE_A_MS, prefill_workers=2)
    assert [each[2] for each in stages(asked)] == [26, 26]
    asked["deployment"]["decode_workers"] = 2
    assert [each[2] for each in stages(asked)] == [18, 18]


def test_one_transfer_at_a_time():
    """D3: the second waits for its turn, and says when it had it."""
    asked = apart(sent(8, 2), sent(6, 2), link={**BYTE_A_MS, "max_transfers_per_worker": 1})
    assert [each[1:3] for each in stages(asked)] == [[10, 18], [18, 24]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_chunks_go_as_they_are_made(backend: str):
    """D4: 64 tokens of three passes, of 32, 32 and 16; the last needs 16 ms more, not 80."""
    budget = {"vllm": "max_num_batched_tokens", "sglang": "chunked_prefill_size", "trtllm": "max_num_tokens"}[backend]
    engine = {budget: 32, **({"max_num_seqs": 32} if backend == "vllm" else {})}
    link = {**BYTE_A_MS, "gb_per_s": 4e-6}
    asked = apart(sent(80, 2), prefill=pool(backend, **engine), decode=pool(backend), link=link)
    assert stages(asked)[0][:3] == [30, 30, 50]
    asked["deployment"]["link"] = {**link, "transfer_start": "each_chunk"}
    assert stages(asked)[0][:3] == [30, 10, 34]


def test_chunks_send_what_was_cached_too():
    """D4: or not, if it is not missing."""
    prefill = pool(max_num_batched_tokens=32, max_num_seqs=32)
    link = {**BYTE_A_MS, "transfer_start": "each_chunk"}
    asked = apart(sent(60, 2, prefix=20), prefill=prefill, link=link)
    assert stages(asked)[0][:3] == [20, 10, 70]
    asked["deployment"]["link"] = {**link, "transfer": "missing"}
    assert stages(asked)[0][:3] == [20, 10, 50]


def test_the_decode_worker_is_chosen_when_the_prefill_ends():
    """D7: in the order of prefill ends, not of arrival; with equal ends by engine."""
    long, short = sent(90, 2), sent(8, 2)
    prefill = pool(max_num_batched_tokens=32, max_num_seqs=32)
    asked = apart(long, short, short, prefill=prefill, prefill_workers=2, decode_workers=2)
    assert column(asked, "engine") == [0, 1, 0]
    assert column(asked, "decode_engine") == [3, 2, 2]


def test_the_decode_worker_with_the_fewest():
    """D7: what is done counts no more: at 10 ms two go to either, at 20 the short one of the second is done."""
    requests = [sent(8, 9), sent(8, 2), sent(8, 9, 10), sent(8, 9, 10)]
    asked = apart(*requests, decode_workers=2, routing="least_loaded")
    assert column(asked, "decode_engine") == [1, 2, 2, 1]


def test_the_prefill_worker_with_the_fewest():
    """D7: a request counts to the end of its prefill, however long it decodes."""
    asked = apart(sent(8, 9), sent(8, 9, 5), sent(8, 9, 12), prefill_workers=2, routing="least_loaded")
    assert column(asked, "engine") == [0, 1, 0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cap_serialises_the_prefills(backend: str):
    """D7: three prompts that fit one pass take three."""
    asked = apart(*[sent(8, 2)] * 3, prefill=pool(backend), decode=pool(backend), prefill_inflight_cap=1)
    assert column(asked, "prefill_done_ms") == [10, 20, 30]
    asked["deployment"]["prefill_inflight_cap"] = None
    assert column(asked, "prefill_done_ms") == [10, 10, 10]


def test_engines_are_numbered_through():
    """Two workers of two ranks prefill, three of one decode."""
    asked = apart(*[sent(8, 2)] * 4, prefill=pool(data_parallel_size=2), prefill_workers=2, decode_workers=3)
    assert column(asked, "engine") == [0, 2, 1, 3]
    assert column(asked, "decode_engine") == [4, 6, 5, 4]
    assert {each["engine"] for each in simulate(asked)["passes"]} == set(range(7))


def test_an_arrival_during_a_pass_waits_for_two_with_lookahead():
    """V12: one that comes at 20, where a pass ends, misses the one planned at 10; one that comes at 27 the one planned at 20."""
    requests = sent(10, 9), sent(7, 2, 5)
    assert column(apart(*requests), "attach_ms") == [10, 20]
    assert column(apart(*requests, decode=pool(async_scheduling=True)), "attach_ms") == [10, 30]
    late = apart(
        sent(10, 9), sent(7, 2, 3), link={**BYTE_A_MS, "kv_bytes_per_token": 1}, decode=pool(async_scheduling=True)
    )
    assert column(late, "transfer_done_ms") == [20, 27]
    assert column(late, "attach_ms") == [20, 40]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("prefill_workers", [1, 2])
def test_a_prefill_engine_alone_has_the_same_first_tokens(backend: str, prefill_workers: int):
    """D1: what happens behind it does not touch it, if nothing is held."""
    timing = {"kind": "phase", "prefill": [12, 0.016, 5e-07], "decode": [3, 0.06, 0.0011], "floor": 4}
    requests = [sent(100 + 37 * k % 400, 1 + k % 5, 11 * k) for k in range(40)]
    asked = apart(*requests, prefill=pool(backend, timing), prefill_workers=prefill_workers)
    alone = {**replay(*[{**each, "osl": 1} for each in requests]), **pool(backend, timing)}
    alone["deployment"] = {"replicas": prefill_workers}
    assert column(asked, "prefill_done_ms") == [times[0] for times in column(alone, "token_ms")]
    assert [each[0] for each in column(asked, "token_ms")] == column(asked, "prefill_done_ms")


@pytest.mark.parametrize("backend", ["vllm", "trtllm"])
def test_a_decode_engine_alone_has_the_same_gaps(backend: str):
    """D1: hand-offs of no size are requests whose prompt is there: a replay with a prefix, one token less."""
    timing = {"kind": "linear", "prefill": [4, 0, 0, 0], "decode": [4, 0, 0], "combine": "max"}
    instant = {"kind": "linear", "prefill": [0, 0, 0, 0], "decode": [0, 0, 0]}
    requests = [sent(50 + k, 2 + k % 5, 7.31 * k + 0.013 * k * k) for k in range(40)]
    asked = apart(*requests, prefill=pool(backend, instant), decode=pool(backend, timing))
    heard = [{**each, "osl": each["osl"] - 1, "prefix": each["isl"]} for each in requests]
    alone = {**replay(*heard), **pool(backend, timing)}
    assert [each[1:] for each in column(asked, "token_ms")] == column(alone, "token_ms")


def test_successors_come_when_the_decode_side_is_done():
    """A closed loop over both stages; and a queueing client's, and a session's."""
    asked = {**closed(1, 3, [8, 0, 2]), "deployment": apart()["deployment"]}
    assert column(asked, "dispatch_ms") == [0, 20, 40]
    workload = {"mode": "replay", "requests": [sent(8, 2)] * 3, "max_concurrency": 1}
    assert column({**asked, "workload": workload}, "dispatch_ms") == [0, 20, 40]
    turn = {"isl": 8, "prefix": 0, "osl": 2, "think_ms": 3}
    assert column({**asked, "workload": {"mode": "sessions", "lanes": [[turn] * 3]}}, "dispatch_ms") == [3, 26, 49]


def test_a_stop_token_ends_a_hand_off():
    """The prefill makes one output, whatever the limit; the last row is wasted with lookahead, and nobody waits for it."""
    asked = apart({**sent(8, 3), "max_tokens": 9}, decode=pool(async_scheduling=True))
    assert column(asked, "token_ms") == [[10, 20, 30]]
    assert [each["start_ms"] for each in simulate(asked)["passes"]] == [0, 10, 20, 30]
    asked = apart({**sent(8, 1), "max_tokens": 9})
    assert column(asked, "token_ms") == [[10]]


ANSWER = [
    "request",
    "engine",
    "dispatch_ms",
    "visible_ms",
    "admitted_ms",
    "isl",
    "prefix",
    "osl",
    "cached",
    "preemptions",
]
ANSWER += ["decode_engine", *STAGES]


def test_the_answer_has_every_key():
    """Those of the hand-off only where there was one."""
    first, second = simulate(apart(sent(8, 2), sent(8, 1)))["requests"]
    assert list(first) == ANSWER
    assert list(second) == [key for key in ANSWER if key not in ("decode_engine", *STAGES[1:4])]


LAUNCH = {"decode_ms": 0, "piecewise_ms": 0, "eager_ms": 0, "max_cudagraph_capture_size": 0}
REFUSALS = [
    ({"kind": "apart"}, "kind 'apart' is not modelled"),
    ({"colour": 1}, "'colour' is not modelled"),
    ({"replicas": 2}, "'replicas' is not modelled"),
    ({"routing": "prefix_affinity"}, "routing 'prefix_affinity' is not modelled"),
    ({"first_token": "never"}, "first_token 'never'"),
    ({"hold": "seat"}, "hold 'seat'"),
    ({"prefill_workers": 0}, "prefill_workers must be an integer of at least 1"),
    ({"prefill_inflight_cap": 0}, "prefill_inflight_cap must be an integer of at least 1"),
    ({"num_reserved_decode_tokens": 1}, "num_reserved_decode_tokens is not modelled for decode by vllm"),
    ({"link": {"gb_per_s": 0, "kv_bytes_per_token": 1}}, "gb_per_s and efficiency must be above 0"),
    ({"link": {"gb_per_s": 1}}, "link lacks 'kv_bytes_per_token'"),
    ({"link": {**NO_LINK, "efficiency": 1.5}}, "efficiency must lie in"),
    ({"link": {**NO_LINK, "max_transfers_per_worker": 0}}, "max_transfers_per_worker must be"),
    ({"link": {**NO_LINK, "colour": 1}}, "link: 'colour'"),
    ({"decode": {"backend": "vllm", "engine": {}}}, "decode lacks 'timing'"),
    ({"decode": {**pool(), "colour": 1}}, "decode: 'colour'"),
    ({"decode": pool(launch=LAUNCH, async_scheduling=True)}, "launch and host_loop are not modelled"),
    ({"decode": pool("sglang", prefill_decode_interval=2)}, "prefill_decode_interval is not modelled"),
    ({"decode": pool("trtllm", capacity_policy="STATIC_BATCH")}, "STATIC_BATCH is not modelled on the decode side"),
    ({"decode": pool(num_gpu_blocks=2)}, "need 2 blocks; 1 are usable"),
    ({"decode": pool("sglang", max_total_tokens=300)}, "a hand-off takes 532 of the decode side's memory of 300"),
]


@pytest.mark.parametrize(("change", "message"), REFUSALS, ids=[message for _, message in REFUSALS])
def test_what_is_not_modelled_is_refused(change: dict, message: str):
    """By name."""
    asked = apart(sent(20, 2))
    asked["deployment"] |= change
    with pytest.raises(ScenarioError, match=message):
        simulate(asked)


def test_a_pinned_rank_is_refused():
    """Of which stage?"""
    with pytest.raises(ScenarioError, match="data_parallel_rank is not modelled where"):
        simulate(apart({**sent(20, 2), "data_parallel_rank": 0}))


def test_aggregated_is_a_kind():
    """The default."""
    asked = replay(sent(10, 3), timing=TEN_MS)
    assert simulate({**asked, "deployment": {"kind": "aggregated", "replicas": 1}}) == simulate(asked)
