"""The oracle against schedules recorded from the engines' schedulers; skipped where those are not at hand.

Of TensorRT-LLM a transcription was recorded, of the others their own scheduler classes.
"""

import pytest

from .recordings import disagreements, missing, recorded_cases

FILES = {
    "vllm": 161,
    "vllm_random": 100,
    "sglang": 80,
    "sglang_random": 57,
    "sglang_probes": 265,
    "trtllm": 58,
    "trtllm_random": 30,
}
TASTES = {"vllm_random": 4, "sglang_random": 3, "trtllm_random": 3}
SHARES = 4
pytestmark = pytest.mark.skipif(missing(FILES), reason="no recordings beside the checkout")


@pytest.mark.parametrize("name", TASTES)
def test_the_first_recordings(name: str):
    """A taste at every run."""
    assert not disagreements(recorded_cases(name, first=TASTES[name]))


@pytest.mark.slow
@pytest.mark.parametrize("share", range(SHARES))
@pytest.mark.parametrize("name", FILES)
def test_every_recording(name: str, share: int):
    """Every first and last token, eviction (or their total), cache hit and pass of all cases."""
    assert not disagreements(recorded_cases(name)[share::SHARES])


@pytest.mark.slow
def test_the_recordings_are_all_there():
    """A sweep over nothing would prove nothing."""
    assert {name: len(recorded_cases(name)) for name in FILES} == FILES
