"""Makes `tools` importable from the root of the checkout, whatever directory the tests start in."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker of everything that takes over a quarter of a second."""
    config.addinivalue_line("markers", "slow: takes more than a quarter of a second")
