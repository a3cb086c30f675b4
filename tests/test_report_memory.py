"""What a report says of KV: how much is held, who was evicted, and what was computed twice (V6-V8, S13, T12)."""

import math
from typing import Any

import numpy as np
import pytest

import passcal as pc
from tests.worlds import CLOCK, token_times

TIGHT: dict[str, tuple[Any, int]] = {  # an engine, and the tokens that an eviction adds to prompts but does not waste
    "vllm": (pc.Vllm(num_gpu_blocks=60, enable_prefix_caching=False, async_scheduling=False), 1),
    "vllm async": (pc.Vllm(num_gpu_blocks=60, enable_prefix_caching=False), 1),
    "vllm cached": (pc.Vllm(num_gpu_blocks=60), 1),
    "sglang": (pc.Sglang(max_total_tokens=900, ignore_eos=False, schedule_conservativeness=0.0), 0),
    "sglang in order": (
        pc.Sglang(
            max_total_tokens=900,
            ignore_eos=False,
            schedule_conservativeness=0.0,
            disable_radix_cache=True,
            disable_overlap_schedule=True,
        ),
        1,
    ),
    "trtllm": (pc.Trtllm(max_tokens_in_kv=900, capacity_policy="MAX_UTILIZATION"), 1),
    "trtllm in order": (
        pc.Trtllm(max_tokens_in_kv=900, capacity_policy="MAX_UTILIZATION", overlap_scheduler=False),
        1,
    ),
}


def drained(engine: Any, isl: int = 30, osl: int = 200, clients: int = 24, requests: int = 120) -> pc.Report:
    """A closed loop that ends."""
    return pc.evaluate_closed_loop(pc.Workload.closed_loop(isl, osl, clients, requests=requests), engine, CLOCK)


@pytest.mark.parametrize("name", TIGHT)
@pytest.mark.parametrize(("isl", "osl"), [(30, 200), (200, 150)])
def test_prompt_tokens_are_computed_once_or_counted(name: str, isl: int, osl: int):
    """Chunks compute every prompt once, what evictions lost, and the token that a resumed prompt brings along.

    With overlap SGLang drops the token in flight (S13), whose KV is stored: it is lost like the rest.
    """
    engine, more = TIGHT[name]
    report = drained(engine, isl, osl)
    computed = int(report.passes()["prefill_tokens"].sum())
    assert report.preemptions > 0
    assert computed == 120 * isl + report.recomputed_tokens + more * report.preemptions
    assert report.wasted_prefill_share == report.recomputed_tokens / computed
    assert report.retractions == report.preemptions == report.requests()["preemptions"].sum()


def test_a_cycle_counts_what_one_turn_computes():
    """The requests dispatched in a turn and the passes that end in it are as many, though not the same."""
    for engine in (TIGHT["vllm"][0], TIGHT["vllm async"][0]):
        report = pc.evaluate_closed_loop(
            pc.Workload.closed_loop(30, 200, 24), engine, CLOCK, stop=pc.LimitCycle(strict=True)
        )
        assert report.window.kind == "cycle" and report.preemptions > 0
        computed = int(report.passes()["prefill_tokens"].sum())
        assert computed == 30 * report.window.requests + report.recomputed_tokens + report.preemptions


def test_what_is_found_again_in_the_prefix_cache_is_not_wasted():
    cached, plain = (drained(TIGHT[name][0]) for name in ("vllm cached", "vllm async"))
    assert 0 < cached.recomputed_tokens < plain.recomputed_tokens


def test_nothing_is_recomputed_without_an_eviction():
    for engine in (pc.Vllm(), pc.Sglang(), pc.Trtllm(), pc.Trtllm(max_tokens_in_kv=900)):
        report = drained(engine)
        assert (report.preemptions, report.recomputed_tokens, report.wasted_prefill_share) == (0, 0, 0.0)


@pytest.mark.parametrize("osl", [1, 2, 60])
def test_blocks_of_a_lone_request(osl: int):
    """By hand: in each pass it holds its prompt and the tokens up to the one being stored; an idle engine holds nothing."""
    isl, size, blocks = 100, 16, 41
    engine = pc.Vllm(num_gpu_blocks=blocks, block_size=size, async_scheduling=False)
    report = pc.evaluate_replay(pc.Workload.replay([(0.0, isl, osl), (5000.0, isl, osl)]), engine, CLOCK)
    passes = report.passes()
    stored = passes["prefill_tokens"] + passes["decode_kv_tokens"]
    held = np.ceil(stored / size) * (passes["end_ms"] - passes["start_ms"])
    assert report.block_utilisation == pytest.approx(held.sum() / report.window.length_ms / (blocks - 1), rel=1e-12)
    assert report.block_utilisation_peak == math.ceil(stored.max() / size) / (blocks - 1)


@pytest.mark.parametrize("clients", [3, 9])
@pytest.mark.parametrize(
    "engine",
    [
        pc.Vllm(num_gpu_blocks=2001, block_size=1, enable_prefix_caching=False, async_scheduling=False),
        pc.Trtllm(max_tokens_in_kv=2000, tokens_per_block=1, overlap_scheduler=False),
        pc.Sglang(max_total_tokens=2000, disable_radix_cache=True, disable_overlap_schedule=True),
    ],
)
def test_blocks_of_a_cycle(engine: Any, clients: int):
    """With blocks of a token, what is held is what each request has stored: its prompt and all outputs but the newest."""
    isl, osl = 150, 40
    report = pc.evaluate_closed_loop(pc.Workload.closed_loop(isl, osl, clients, requests=40), engine, CLOCK)
    passes, frame, times = report.passes(), report.requests(), token_times(report)
    held_ms = 0.0
    for one in passes.itertuples():
        for row, tokens in zip(frame.itertuples(), times, strict=True):
            if row.admitted_ms <= one.start_ms and tokens[-1] >= one.end_ms:
                emitted = int((tokens < one.end_ms).sum())
                rides = (tokens == one.end_ms).any()  # else a prefill pass pauses it (S2)
                held_ms += (isl + max(0, emitted - (not rides))) * (one.end_ms - one.start_ms)
    assert report.block_utilisation == pytest.approx(held_ms / report.window.length_ms / 2000, rel=1e-9)
    assert report.block_utilisation <= report.block_utilisation_peak <= 1.0


def test_kv_that_is_not_counted_has_no_share():
    for engine in (pc.Vllm(), pc.Sglang(), pc.Trtllm()):
        report = drained(engine)
        assert math.isnan(report.block_utilisation) and math.isnan(report.block_utilisation_peak)


def test_share_over_several_workers():
    """Half of the clients on each of two workers hold the share that they hold on one."""
    engine = pc.Vllm(num_gpu_blocks=400)
    one = pc.evaluate(pc.Workload.closed_loop(200, 50, 6), engine, CLOCK)
    two = pc.evaluate(pc.Workload.closed_loop(200, 50, 12, requests=240), pc.Aggregated(engine, replicas=2), CLOCK)
    assert two.block_utilisation == pytest.approx(one.block_utilisation, rel=0.05)
    assert two.block_utilisation_peak == pytest.approx(one.block_utilisation_peak, rel=0.05)


@pytest.mark.parametrize(
    ("engine", "remedy"),
    [
        (pc.Vllm(num_gpu_blocks=60), "num_gpu_blocks"),
        (
            pc.Vllm(num_gpu_blocks=60, scheduler_reserve_full_isl=False, max_num_batched_tokens=256),
            "scheduler_reserve_full_isl",
        ),
        (pc.Trtllm(max_tokens_in_kv=900, capacity_policy="MAX_UTILIZATION"), "capacity_policy"),
    ],
)
def test_thrash_is_named(engine: Any, remedy: str):
    """With figures and the remedy; and it is KV that binds, however short the queue."""
    report = drained(engine)
    (note,) = [note for note in report.notes if note.startswith("thrash")]
    assert f"{report.wasted_prefill_share:.0%} of prompt tokens" in note
    assert f"{report.preemptions / 120:.2g} evictions a request" in note
    assert remedy in note and len(note) < 200
    assert report.wasted_prefill_share > 0.5 and report.binding == "kv"
    assert "computed again" in report.binding.why


def test_few_evictions_are_no_thrash():
    report = drained(TIGHT["sglang"][0])
    assert report.preemptions and not any("thrash" in note for note in report.notes)


def test_figures_of_phases_are_mixed():
    """Counts add up, shares are means, as phases count equally."""
    loop = pc.Workload.closed_loop(200, 150, 9)
    report = pc.evaluate(loop, pc.Vllm(num_gpu_blocks=60, enable_prefix_caching=False), CLOCK, phases=3)
    assert report.preemptions == sum(phase.preemptions for phase in report.phases) > 0
    assert report.recomputed_tokens == sum(phase.recomputed_tokens for phase in report.phases)
    for name in ("wasted_prefill_share", "block_utilisation", "utilisation"):
        assert getattr(report, name) == pytest.approx(np.mean([getattr(phase, name) for phase in report.phases]))
    assert report.block_utilisation_peak == max(phase.block_utilisation_peak for phase in report.phases)
