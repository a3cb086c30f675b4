"""The command line: scenarios in, one line of JSON an answer out."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tools.oracle import simulate
from tools.oracle.__main__ import main

from .building import ROOT, closed, replay, sent

ASKED = [replay(sent(100, 3)), closed(2, 4, [50, 0, 2])]


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    """The scenarios as files."""
    paths = [tmp_path / f"{i}.json" for i in range(len(ASKED))]
    for path, asked in zip(paths, ASKED, strict=True):
        path.write_text(json.dumps(asked))
    return [str(path) for path in paths]


def test_several_files_to_standard_output(files: list[str], capsys: pytest.CaptureFixture):
    """In the order given."""
    assert main(files) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [simulate(asked) for asked in ASKED]


def test_one_file_to_a_file(files: list[str], tmp_path: Path):
    """The same answer."""
    assert main([files[0], "-o", str(tmp_path / "out.json")]) == 0
    assert json.loads((tmp_path / "out.json").read_text()) == simulate(ASKED[0])


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    """A dash reads it."""
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(ASKED[0])))
    assert main(["-"]) == 0
    assert json.loads(capsys.readouterr().out) == simulate(ASKED[0])


@pytest.mark.parametrize("text", ["{", '{"name": "x"}', "[]"])
def test_a_refusal_is_one_line_and_exit_code_2(text: str, tmp_path: Path, capsys: pytest.CaptureFixture):
    """It names the file."""
    path = tmp_path / "bad.json"
    path.write_text(text)
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(f"{path}: ")
    assert captured.err.count("\n") == 1


def test_as_a_module(files: list[str]):
    """The way it is meant to be called."""
    command = [sys.executable, "-m", "tools.oracle", files[0]]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(run.stdout) == simulate(ASKED[0])
