"""The oracle against schedules recorded from vLLM's own scheduler classes; skipped where those are not at hand."""

import pytest

from tools.oracle import simulate

from .recordings import FILES, FOLDER, differences, recorded_cases, scenario_of

SHARES = 4
pytestmark = pytest.mark.skipif(
    not all((FOLDER / f"{name}.jsonl.gz").exists() for name in FILES), reason="no recordings beside the checkout"
)


def disagreements(cases: list[dict]) -> dict[str, list[str]]:
    """What is wrong, by case."""
    found = {case["name"]: differences(case, simulate(scenario_of(case))) for case in cases}
    return {name: lines[:3] for name, lines in found.items() if lines}


def test_the_first_recordings():
    """A taste at every run."""
    assert not disagreements(recorded_cases("vllm_random", first=4))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", FILES)
def test_every_recording(name: str, share: int):
    """Every first and last token, preemption, cache hit and pass of all 261 cases."""
    assert not disagreements(recorded_cases(name)[share::SHARES])


@pytest.mark.slow
def test_the_recordings_are_all_there():
    """A sweep over nothing would prove nothing."""
    assert [len(recorded_cases(name)) for name in FILES] == [161, 100]
