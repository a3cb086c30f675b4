"""The oracle against schedules recorded from vLLM's own scheduler classes; skipped where those are not at hand."""

import pytest

from .recordings import disagreements, missing, recorded_cases

FILES = {"vllm": 161, "vllm_random": 100}
SHARES = 4
pytestmark = pytest.mark.skipif(missing(FILES), reason="no recordings beside the checkout")


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
    assert {name: len(recorded_cases(name)) for name in FILES} == FILES
