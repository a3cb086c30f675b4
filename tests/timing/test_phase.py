"""Callbacks: with what they are called, and when the mixed one is."""

from typing import Any

import pytest

import passcal as pc

Calls = list[tuple[Any, ...]]


def listening(mixed: bool = True, **options: Any) -> tuple[pc.PhaseTiming, Calls]:
    """Callbacks that write down how they are called."""
    calls: Calls = []

    def noting(name: str, answer: float) -> Any:
        def callback(*arguments: Any) -> float:
            calls.append((name, *arguments))
            return answer

        return callback

    hook = noting("mixed", 40.0) if mixed else None
    return pc.PhaseTiming(noting("prefill", 10.0), noting("decode", 3.0), hook, **options), calls


def test_means_of_chunks_and_rows():
    timing, calls = listening(mixed=False)
    assert timing.pass_ms(pc.PassShape.of(((6, 2), (2, 4)), 4, 50)) == 13
    assert calls == [("prefill", 2, 7.0, 3.0), ("decode", 4, 12.5)]


def test_the_mixed_hook_prices_the_whole_pass():
    timing, calls = listening()
    shape = pc.PassShape.of(((6, 2), (2, 4)), 4, 50)
    assert timing.pass_ms(shape) == 40
    assert calls == [("mixed", 8, 4, 7.0, 5.5, 3.0)]
    assert timing.pass_ms(pc.PassShape.of(((100, 0),), 1, 10)) == 40
    assert calls[-1] == ("mixed", 100, 1, 100.0, 1.0, 0.0)


@pytest.mark.parametrize(("chunks", "rows"), [(((6, 2),), 0), ((), 3)])
def test_passes_of_one_kind_are_not_mixed(chunks: Any, rows: int):
    timing, calls = listening()
    timing.pass_ms(pc.PassShape.of(chunks, rows, 9 * rows))
    assert [name for name, *_ in calls] == (["prefill"] if chunks else ["decode"])


def names_by_pass(budget: int, rows: list[tuple[float, int, int, int]], **engine: Any) -> list[list[str]]:
    """Which callbacks priced each pass."""
    priced: list[list[str]] = []
    timing, calls = listening(pure=False)

    class Grouping:
        def pass_ms(self, shape: pc.PassShape) -> float:
            calls.clear()
            answer = timing.pass_ms(shape)
            priced.append([name for name, *_ in calls])
            return answer

    options = {
        "async_scheduling": False,
        "max_num_batched_tokens": budget,
        "max_num_seqs": 16,
        "enable_prefix_caching": False,
    }
    pc.evaluate(pc.Workload.replay(rows), pc.Vllm(**options | engine), Grouping())
    return priced


def test_only_whole_prompts_are_mixed():
    """A clipped prompt and its rest price as the sum; a whole one, a cached prefix included, by the hook."""
    assert names_by_pass(100, [(0, 5, 0, 6), (1, 150, 0, 1), (11, 40, 0, 1), (35, 50, 20, 1)]) == [
        ["prefill"],
        ["prefill", "decode"],
        ["prefill", "decode"],
        ["mixed"],
        ["decode"],
        ["decode"],
    ]


def test_a_resumed_prompt_is_not_whole():
    """What preemption recomputes is not fresh context."""
    found = names_by_pass(100, [(0, 5, 0, 30), (0, 32, 0, 3), (0, 32, 0, 9)], num_gpu_blocks=7)
    assert found[:5] == [["prefill"], ["decode"], ["decode"], ["prefill", "decode"], ["decode"]]


@pytest.mark.parametrize(("pure", "asked_again"), [(True, False), (False, True)])
def test_pure_answers_are_kept(pure: bool, asked_again: bool):
    timing, calls = listening(pure=pure)
    pc.evaluate(pc.Workload.replay([(0, 5, 3), (1000, 5, 3)]), pc.Vllm(), timing)
    assert calls.count(("prefill", 1, 5.0, 0.0)) == 1 + asked_again
