"""D5, D6, D10: what the source holds, and what the destination takes. A pass takes 10 ms, a byte 1 ms, a token is a byte, a block one token."""

import pytest

from tools.oracle import simulate

from .apart import BYTE_A_MS, NO_LINK, apart, pool, sent
from .building import column

LIMITS = {
    "vllm": lambda tokens: {"block_size": 1, "num_gpu_blocks": tokens + 1},
    "sglang": lambda tokens: {"max_total_tokens": tokens},
    "trtllm": lambda tokens: {"tokens_per_block": 1, "max_tokens_in_kv": tokens},
}
SEATS = {"vllm": "max_num_seqs", "sglang": "max_running_requests", "trtllm": "max_batch_size"}
BACKENDS = list(LIMITS)


def small(backend: str, tokens: int, **engine: object) -> dict:
    """An engine with memory for so many tokens."""
    return pool(backend, **LIMITS[backend](tokens), **engine)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("hold", "second"), [("none", 20), ("blocks", 28), ("blocks_and_seat", 28)])
def test_the_source_keeps_its_blocks(backend: str, hold: str, second: float):
    """D5: there is memory for one prompt; the second one starts when the first is done, or gone at 18."""
    asked = apart(sent(8, 2), sent(8, 2), prefill=small(backend, 12), decode=pool(backend), link=BYTE_A_MS, hold=hold)
    assert column(asked, "prefill_done_ms") == [10, second]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("hold", "second"), [("none", 20), ("blocks", 20), ("blocks_and_seat", 28)])
def test_the_source_keeps_its_seat(backend: str, hold: str, second: float):
    """D5: there is one seat, and memory enough."""
    prefill = pool(backend, **{SEATS[backend]: 1})
    asked = apart(sent(8, 2), sent(8, 2), prefill=prefill, decode=pool(backend), link=BYTE_A_MS, hold=hold)
    assert column(asked, "prefill_done_ms") == [10, second]


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_let_go_serves_a_plan_of_that_instant(backend: str, overlap: bool):
    """D5: a transfer of 10 bytes ends with the second pass, at 20; the third one carries the third prompt, or not yet."""
    ahead = {"vllm": "async_scheduling", "sglang": "disable_overlap_schedule", "trtllm": "overlap_scheduler"}[backend]
    prefill = pool(backend, **{SEATS[backend]: 1, ahead: overlap != (backend == "sglang")})
    asked = apart(
        sent(10, 2), sent(10, 2), prefill=prefill, decode=pool(backend), link=BYTE_A_MS, hold="blocks_and_seat"
    )
    assert column(asked, "prefill_done_ms") == [10, 30]


def test_who_does_not_go_over_holds_nothing():
    """D5: its only output is out."""
    asked = apart(sent(8, 1), sent(8, 2), prefill=small("vllm", 12), link=BYTE_A_MS, hold="blocks_and_seat")
    assert column(asked, "prefill_done_ms") == [10, 20]


def test_a_held_prompt_is_locked_in_the_tree():
    """D5, S15: it is published, so that an equal prompt hits it, but not evicted for another one."""
    requests = [sent(8, 2, 0, 0, 1, 8), sent(8, 2, 11, 0, 1, 8), sent(8, 2, 12, 0, 2, 8)]
    asked = apart(*requests, prefill=small("sglang", 12), decode=pool("sglang"), link=BYTE_A_MS, hold="blocks")
    assert column(asked, "cached") == [0, 7, 0]
    assert column(asked, "prefill_done_ms") == [10, 21, column(asked, "transfer_done_ms")[1] + 10]


@pytest.mark.parametrize(
    ("decode", "granted"),
    [
        (small("vllm", 17), [10, 50]),  # 9 each: 8 + 1
        (small("vllm", 18), [10, 10]),
        (small("trtllm", 25), [10, 50]),  # 13 each: 8 + 5
        (small("trtllm", 26), [10, 10]),
        (small("trtllm", 18, capacity_policy="MAX_UTILIZATION"), [10, 10]),
    ],
)
def test_a_hand_off_waits_for_memory(decode: dict, granted: list[float]):
    """D6: two prompts of 8 with 5 outputs; the transfer starts with the grant, the second's when the first is done."""
    assert column(apart(sent(8, 5), sent(8, 5), decode=decode), "transfer_start_ms") == granted


def test_the_amounts_are_in_blocks():
    """D6: cover(isl + 1); 16 tokens are two blocks of 16, and 15 are one."""
    for isl, granted in ((16, [10, 20]), (15, [10, 10])):
        decode = pool(block_size=16, num_gpu_blocks=4)
        assert column(apart(sent(isl, 2), sent(isl, 2), decode=decode), "transfer_start_ms") == granted


def test_the_memory_is_taken_from_the_grant_on():
    """D6: not from the arrival at 18: the second has to wait until the first, long there, is done."""
    asked = apart(sent(8, 2), sent(6, 2, 1), decode=small("vllm", 15), link=BYTE_A_MS)
    assert column(asked, "transfer_start_ms") == [10, 28]


def test_first_come_first_granted():
    """D6, D10: the second one would fit what is free, but stands behind one that does not."""
    requests = [sent(8, 5), sent(8, 2, 1), sent(2, 2, 1)]
    prefill = pool(max_num_seqs=1)
    asked = apart(*requests, prefill=prefill, decode=small("vllm", 14))
    assert column(asked, "prefill_done_ms") == [10, 20, 30]
    assert column(asked, "transfer_start_ms") == [10, 50, 50]


def test_each_rank_has_a_queue_of_its_own():
    """D6: round robin, the second one finds the other rank empty, the third waits for the first, and the fourth does not."""
    requests = [sent(8, 5), sent(8, 2), sent(8, 2), sent(2, 2)]
    asked = apart(*requests, decode=small("vllm", 14, data_parallel_size=2))
    assert column(asked, "decode_engine") == [1, 2, 1, 2]
    assert column(asked, "transfer_start_ms") == [10, 10, 50, 10]


@pytest.mark.parametrize(("reserved", "admitted"), [(4, [0, 0]), (5, [0, 50])])
def test_sglang_reserves_before_it_prefills(reserved: int, admitted: list[float]):
    """D6: two times 8 and what is reserved, of 24: the second one's prefill waits until the first has decoded."""
    asked = apart(sent(8, 5), sent(8, 5), prefill=pool("sglang"), decode=small("sglang", 24))
    asked["deployment"]["num_reserved_decode_tokens"] = reserved
    assert column(asked, "admitted_ms") == admitted
    assert column(asked, "visible_ms") == [0, 0]


def test_what_is_reserved_serves_the_first_outputs():
    """D6: 8 + 3 each of 22: both can store 3 more; a fourth needs more than there is, and the second is retracted."""
    for osl, retracted in ((4, [0, 0]), (5, [0, 1])):
        asked = apart(sent(8, osl), sent(8, osl), prefill=pool("sglang"), decode=small("sglang", 22))
        asked["deployment"]["num_reserved_decode_tokens"] = 3
        assert column(asked, "preemptions") == retracted


def test_nothing_left_to_decode_frees_its_memory_on_arrival():
    """D2, D6: one output, shown at 18, when the second is granted."""
    asked = apart(sent(8, 1), sent(8, 2), decode=small("vllm", 12), link=BYTE_A_MS, first_token="decode")
    assert column(asked, "token_ms") == [[18], [26, 36]]


def test_hand_offs_wait_for_a_seat():
    """D10: first come, first served; their memory is theirs."""
    asked = apart(*[sent(8, 3)] * 3, decode=pool(max_num_seqs=1))
    assert column(asked, "transfer_done_ms") == [10, 10, 10]
    assert column(asked, "attach_ms") == [10, 30, 50]


@pytest.mark.parametrize("backend", ["sglang", "trtllm"])
def test_others_wait_for_a_seat_too(backend: str):
    """D10, S5, T8."""
    asked = apart(*[sent(8, 3)] * 3, prefill=pool(backend), decode=pool(backend, **{SEATS[backend]: 1}))
    assert column(asked, "attach_ms") == [10, 30, 50]


def test_the_last_one_running_makes_way():
    """D10: it has the only seat, and the second, arrived, has what it lacks at 30; preempted, it resumes behind that."""
    asked = apart(sent(8, 6), sent(8, 2), decode=small("vllm", 19, max_num_seqs=1))
    assert column(asked, "preemptions") == [1, 0]
    assert column(asked, "attach_ms") == [10, 30]
    assert column(asked, "token_ms") == [[10, 20, 30, 50, 60, 70], [10, 40]]


@pytest.mark.parametrize(("slots", "retracted"), [(1, 1), (2, 0)])
def test_sglang_retracts_the_last_row_for_hand_offs(slots: int, retracted: int):
    """S13, D6: of 19 tokens each takes 9; the first lacks one at 30, and is retracted, if the other cannot go on beside it."""
    decode = small("sglang", 19, max_running_requests=slots)
    asked = apart(sent(8, 6), sent(8, 2), prefill=pool("sglang"), decode=decode)
    asked["deployment"]["num_reserved_decode_tokens"] = 1
    assert column(asked, "preemptions") == [retracted, 0]
    assert column(asked, "token_ms")[0][-1] == 60 + 10 * retracted


TWO = (sent(8, 6), sent(8, 6))  # 9 blocks each at 10; of 20, the second loses its own at 30, and resumes at 60


def test_nothing_is_granted_while_somebody_waits_to_resume():
    """D10: 9 blocks are free at 40, and the third wants 4; but it stands behind the one preempted, which ends at 90."""
    asked = apart(*TWO, sent(3, 2, 30), decode=small("vllm", 20))
    assert column(asked, "preemptions") == [0, 1, 0]
    assert column(asked, "prefill_done_ms")[2] == 40
    assert column(asked, "transfer_start_ms") == [10, 10, 90]


def test_what_has_arrived_does_not_wait_for_who_resumes():
    """D10: of 24 blocks the third, which waits for one of two seats, has 4: the preempted one cannot have 11 of what is left."""
    asked = apart(*TWO, sent(3, 2), decode=small("vllm", 24, max_num_seqs=2))
    assert column(asked, "preemptions") == [0, 1, 0]
    assert column(asked, "attach_ms") == [10, 10, 40]


@pytest.mark.parametrize(("caching", "new"), [(False, 11), (True, 4)])
def test_a_preempted_hand_off_is_computed_anew(caching: bool, new: int):
    """V8: 8 and 3 outputs in one chunk, on the decode side. V9: what nobody took of its blocks, registered there, is a hit."""
    answer = simulate(apart(*TWO, decode=small("vllm", 20, enable_prefix_caching=caching)))
    chunks = [(each["start_ms"], each["prefill_tokens"]) for each in answer["passes"] if each["engine"] == 1]
    assert [each for each in chunks if each[1]] == [(60, new)]
    assert answer["requests"][1]["token_ms"] == [10, 20, 30, 70, 80, 90]


def test_chunks_ask_when_the_first_is_made():
    """D4, D6: the grant comes at 50; chunks made before then go together, and the memory was asked for at 20."""
    requests = [sent(8, 5), sent(64, 2, 5), sent(8, 2, 6)]
    prefill = pool(max_num_batched_tokens=32, max_num_seqs=2)
    link = {**NO_LINK, "transfer_start": "each_chunk"}
    asked = apart(*requests, prefill=prefill, decode=small("vllm", 70), link=link)
    assert column(asked, "prefill_done_ms") == [10, 30, 40]
    assert column(asked, "transfer_start_ms") == [10, 50, 60]


@pytest.mark.parametrize("seats", [3, 4, 6])
def test_the_headroom_bounds_hand_offs_in_flight(seats: int):
    """D6: floor(pool / sequence) - seats, while all seats are taken; at zero each waits for a seat that comes free.

    A sequence takes 4 blocks of 16, from its grant to its end, and there are 6 times as many.
    """
    decode = pool(num_gpu_blocks=1 + 6 * 4, max_num_seqs=seats)
    asked = apart(*[sent(50, 15, 3 * k) for k in range(40)], decode=decode, link=BYTE_A_MS)
    requests = simulate(asked)["requests"]
    spans = [(each["transfer_start_ms"], each["attach_ms"], each["token_ms"][-1]) for each in requests]
    peak = 0
    for now_ms, _, _ in spans:
        running = sum(attach <= now_ms < end for _, attach, end in spans)
        in_flight = sum(start <= now_ms < attach for start, attach, _ in spans)
        assert running <= seats and running + in_flight <= 6
        peak = max(peak, in_flight if running == seats else 0)
    assert peak == 6 - seats
    if seats == 6:
        ends = {end for *_, end in spans}
        assert all(start in ends for start, *_ in sorted(spans)[6:])


@pytest.mark.slow
def test_more_decode_seats_are_not_always_better():
    """D6: of a pool of 12 sequences, 4 seats starve the device and 13 leave no headroom for transfers; 9 are better than both."""
    timing = {"kind": "phase", "prefill": [12, 0.016, 5e-07], "decode": [3, 0.06, 0.0011], "floor": 4}
    workload = {"mode": "closed", "concurrency": 32, "requests": 200, "shapes": [[1024, 0, 128]]}
    link = {"gb_per_s": 4, "kv_bytes_per_token": 131072}

    def makespan_ms(seats: int) -> float:
        """How long the whole run takes."""
        decode = pool("vllm", timing, num_gpu_blocks=1 + 12 * 72, max_num_seqs=seats)
        asked = {
            **apart(prefill=pool("vllm", timing), decode=decode, link=link, prefill_workers=2),
            "workload": workload,
        }
        return max(each["token_ms"][-1] for each in simulate(asked)["requests"])

    few, some, many = map(makespan_ms, (4, 9, 13))
    assert some < 0.8 * min(few, many)
