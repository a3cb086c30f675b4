"""The oracle against schedules recorded from a transcription of TensorRT-LLM's Python schedulers; skipped where those are not at hand."""

import pytest

from .recordings import disagreements, missing, recorded_cases

FILES = {"trtllm": 58, "trtllm_random": 30}
SHARES = 4
pytestmark = pytest.mark.skipif(missing(FILES), reason="no recordings beside the checkout")


def test_the_first_recordings():
    """A taste at every run."""
    assert not disagreements(recorded_cases("trtllm_random", first=3))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", FILES)
def test_every_recording(name: str, share: int):
    """Every first and last token, pause total and pass of all 88 cases."""
    assert not disagreements(recorded_cases(name)[share::SHARES])


@pytest.mark.slow
def test_the_recordings_are_all_there():
    """A sweep over nothing would prove nothing."""
    assert {name: len(recorded_cases(name)) for name in FILES} == FILES
