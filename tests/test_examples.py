"""Every example runs, and prints what is recorded beside it."""

import contextlib
import io
import runpy
from pathlib import Path

import pytest
from typer.testing import CliRunner

from passcal.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_script_prints_what_is_recorded(script: Path):
    """To the letter; figures have four digits, so that they are the same on every machine."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(str(script), run_name="__main__")
    assert printed.getvalue() == script.with_suffix(".out").read_text(encoding="utf-8")


def test_there_are_examples_with_records():
    """None without the other."""
    assert len(SCRIPTS) >= 3
    assert {path.stem for path in EXAMPLES.glob("*.out")} == {path.stem for path in SCRIPTS}


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_yaml_is_answered(file: Path):
    """As the comment in it says."""
    many = "\ngrid:" in file.read_text(encoding="utf-8")
    result = CliRunner().invoke(app, ["sweep" if many else "evaluate", str(file), "--quiet"])
    assert result.exit_code == 0, result.output
    assert ("10 best" if many else "requests/s") in result.output
