"""V6 to V8: blocks of 16 tokens, one of `num_gpu_blocks` unusable."""

import pytest

from tools.oracle import ScenarioError, Stalled, simulate
from tools.oracle.vllm import VllmScheduler

from .building import column, plans, replay, sent


def test_one_block_is_the_null_block():
    """V7 and V4: four usable blocks store isl + osl - 1 = 64 tokens, and not one more."""
    assert len(column(replay(sent(60, 5), num_gpu_blocks=5), "token_ms")[0]) == 5
    with pytest.raises(ScenarioError, match="need 5 blocks; 4 are usable"):
        simulate(replay(sent(60, 6), num_gpu_blocks=5))


@pytest.mark.parametrize(("reserve", "start_ms"), [(True, 10), (False, 0)])
def test_the_whole_prompt_must_fit(reserve: bool, start_ms: float):
    """V6: the second prompt needs 7 blocks of the 6 left; its first chunk alone needs 5."""
    engine = {"num_gpu_blocks": 9, "max_num_batched_tokens": 100, "max_num_seqs": 9}
    asked = replay(sent(20, 1), sent(100, 1), scheduler_reserve_full_isl=reserve, **engine)
    assert column(asked, "admitted_ms")[1] == start_ms


def test_a_head_that_does_not_fit_blocks_the_queue():
    """V6: the third would fit, and does not pass the second."""
    asked = replay(sent(60, 3), sent(60, 1), sent(5, 1), num_gpu_blocks=7)
    assert column(asked, "admitted_ms") == [0, 30, 30]


@pytest.mark.parametrize(("watermark", "start_ms"), [(0.0, 0), (0.2, 30)])
def test_the_watermark_holds_back_admissions_while_something_runs(watermark: float, start_ms: float):
    """V7: a fifth of 11 blocks is 2; the first prompt may leave fewer than that, the second may not."""
    asked = replay(sent(130, 3), sent(5, 1), num_gpu_blocks=11, watermark=watermark)
    assert column(asked, "admitted_ms") == [0, start_ms]


def test_the_last_of_running_is_preempted_and_recomputed():
    """V8: in pass 18 the first needs a third block; the second resumes with prompt and 17 outputs in one chunk."""
    asked = replay(sent(16, 32), sent(16, 32), num_gpu_blocks=5, enable_prefix_caching=False)
    first, second = simulate(asked)["requests"]
    assert (first["preemptions"], second["preemptions"]) == (0, 1)
    assert first["token_ms"] == [10 * (k + 1) for k in range(32)]
    assert second["token_ms"] == [10 * (k + 1) for k in range(17)] + [330 + 10 * k for k in range(15)]
    assert plans(asked)[32] == {1: 33}


def test_a_sequence_may_preempt_itself():
    """V8: the last of running is the one in need, and nobody waiting is admitted in that pass."""
    asked = replay(sent(24, 20), sent(16, 20), sent(5, 1, 5), num_gpu_blocks=4, enable_prefix_caching=False)
    assert plans(asked)[1] == {0: 1}
    assert column(asked, "preemptions") == [0, 1, 0]
    assert column(asked, "admitted_ms")[2] > 20


def test_a_victim_is_the_head_of_the_waiting():
    """V8: it resumes before those that came later, and is then last in running."""
    asked = replay(sent(24, 20), sent(16, 20), sent(5, 1, 5), num_gpu_blocks=4, enable_prefix_caching=False)
    resumed = next(rows for rows in plans(asked)[2:] if 1 in rows)
    assert list(resumed) == [1, 2]


def test_a_victims_token_in_flight_still_comes():
    """V8, V12: the pass that carries its last output ends while it waits; it is done, and never resumes."""
    asked = replay(sent(31, 20), sent(16, 2), num_gpu_blocks=5, enable_prefix_caching=False, async_scheduling=True)
    answer = simulate(asked)["requests"][1]
    assert (answer["token_ms"], answer["preemptions"]) == ([10, 20], 1)
    assert sum(1 in rows for rows in plans(asked)) == 2


def test_tokens_of_a_victim_return_to_the_budget():
    """V8: should a victim have rows in the pass, they go."""

    class FirstGoes(VllmScheduler):
        def victim(self):
            return self.running[0]

    asked = replay(sent(16, 20), sent(16, 20), num_gpu_blocks=4, enable_prefix_caching=False)
    answer = simulate(asked, scheduler=FirstGoes)
    assert [len(request["token_ms"]) for request in answer["requests"]] == [20, 20]
    assert answer["requests"][0]["preemptions"] >= 1


def test_a_resumed_prompt_over_the_budget_stalls():
    """V8, V11: without chunking it can never run again, and says so."""
    engine = {"max_num_batched_tokens": 20, "max_num_seqs": 4, "enable_chunked_prefill": False}
    asked = replay(sent(16, 30), sent(16, 30, 5), num_gpu_blocks=5, enable_prefix_caching=False, **engine)
    with pytest.raises(Stalled, match="1 requests can never be scheduled"):
        simulate(asked)
