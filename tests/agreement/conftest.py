"""Compile the kernel before the first test is timed."""

import pytest

from .battery import answered


@pytest.fixture(scope="session", autouse=True)
def compiled() -> None:
    """One scenario with a formula and one with callbacks."""
    answered("vllm_linear_sum_sync")
    answered("vllm_osl1_sync")
