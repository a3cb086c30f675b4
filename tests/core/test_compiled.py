"""Where compiled code is kept, and that an edit anywhere in the kernel makes it stale."""

import subprocess
import sys
from pathlib import Path

import pytest

from passcal.core import compiled

ASK = "import passcal as pc; print(pc.evaluate(pc.Workload.replay([(0, 9, 2)]), pc.Vllm(), pc.LinearTiming()).ttft_ms.mean)"


def files(folder: Path) -> list[Path]:
    """Everything below a folder."""
    return [path for path in folder.rglob("*") if path.is_file()]


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    compiled.cache_folder.cache_clear()
    monkeypatch.setenv("PASSCAL_CACHE_DIR", str(tmp_path))
    assert compiled.cache_folder() == tmp_path / compiled.kernel_stamp()
    compiled.cache_folder.cache_clear()


@pytest.mark.parametrize(
    "room", ["core/blocks.py", "calendar/vllm.py", "timing/linear.py", "sources/closed.py", "kernel.py"]
)
def test_an_edit_makes_the_code_stale(room: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Callees in other files count, which numba's own cache does not see."""
    for file in compiled.PACKAGE.rglob("*.py"):
        copy = tmp_path / file.relative_to(compiled.PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    monkeypatch.setattr(compiled, "PACKAGE", tmp_path)
    stamp = compiled.kernel_stamp.__wrapped__
    before = stamp()
    assert before == stamp()
    (tmp_path / room).write_bytes((tmp_path / room).read_bytes() + b"\n")
    assert stamp() != before


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_no_error(tmp_path: Path):
    """Uncompiled, since compiling twice in a test is dear; the folder is not touched either."""
    nowhere = tmp_path / "file"
    nowhere.write_text("")
    env = {"PASSCAL_CACHE_DIR": str(nowhere), "PASSCAL_INTERPRET": "1", "PYTHONPATH": str(compiled.PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", ASK], env=env, capture_output=True, text=True, check=True)
    assert float(done.stdout) > 0
    assert files(tmp_path) == [nowhere]
