"""The same answers in another process, with other hashing, and with the kernel uncompiled."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.properties.answers import answers

ROOT = Path(__file__).parents[2]


def elsewhere(**environment: str) -> Any:
    """What a fresh process answers."""
    command = [sys.executable, "-m", "tests.properties.answers"]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "4242"])
def test_hashing_changes_nothing(seed: str):
    other = elsewhere(PYTHONHASHSEED=seed)
    assert other == {"interpreted": False, "answers": answers()}


@pytest.mark.slow
def test_interpreted_is_compiled():
    """Bit for bit: the kernel means the same as plain Python."""
    assert elsewhere(PASSCAL_INTERPRET="1") == {"interpreted": True, "answers": answers()}
