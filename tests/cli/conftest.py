"""Small configurations, and a runner that keeps standard output and error apart."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from passcal.cli import app

CLOSED = """
workload: {mode: closed, isl: 64, osl: 8, concurrency: 4}
engine: {backend: vllm, max_num_seqs: 8}
timing: {kind: linear, prefill: [5.0, 0.02, 1e-6, 0.0], decode: [8.0, 0.05, 2e-6]}
"""
TRACE = "dispatch_ms,isl,osl\n0,100,5\n10,200,3\n400.5,50,1\n"

Run = Callable[..., Result]


@pytest.fixture
def passcal() -> Run:
    """Run the command line in this process."""
    return lambda *arguments: CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    """A closed loop."""
    file = tmp_path / "closed.yaml"
    file.write_text(CLOSED, encoding="utf-8")
    return file


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Three requests."""
    file = tmp_path / "trace.csv"
    file.write_text(TRACE, encoding="utf-8")
    return file
