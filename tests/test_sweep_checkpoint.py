"""A sweep that was stopped at any instant goes on where it was, to the same answer."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.progress import listening
from tests.sweeps import TIMING, candidates

ROOT = Path(__file__).parents[1]
FRAME = candidates(150, 4)
SLA = pc.Sla("ttft", 0.9, 400)
ASKED = {"candidates": FRAME, "workload": None, "timing": TIMING, "sla": SLA, "objective": "throughput", "top": None}
PROGRAM = """
import sys, passcal as pc
from tests.test_sweep_checkpoint import ASKED
pc.sweep(**ASKED, checkpoint=sys.argv[1])
"""


@pytest.fixture(scope="module")
def whole() -> pd.DataFrame:
    """The answer of a sweep that nothing stopped."""
    return pc.sweep(**ASKED)


def same(found: pd.DataFrame, whole: pd.DataFrame) -> None:
    """To the bit, counts included."""
    pd.testing.assert_frame_equal(found, whole, check_exact=True)
    assert found.attrs == whole.attrs


def lines(folder: Path) -> list[bytes]:
    """Of the file of points."""
    return (folder / "points.jsonl").read_bytes().splitlines(keepends=True)


def test_points_that_are_done_are_not_evaluated_again(tmp_path, whole, monkeypatch):
    """The answer comes from the file alone."""
    same(pc.sweep(**ASKED, checkpoint=tmp_path / "run"), whole)
    before = lines(tmp_path / "run")
    assert len(before) == whole.attrs["counts"]["refined"]
    monkeypatch.setattr("passcal.refining.evaluate", None)
    same(pc.sweep(**ASKED, checkpoint=tmp_path / "run"), whole)
    assert lines(tmp_path / "run") == before


def test_a_table_of_the_points_stands_beside_them(tmp_path, whole, monkeypatch):
    """With Parquet, as the lines have them; without it, there is none, and the answer is the same."""
    pytest.importorskip("pyarrow")
    monkeypatch.setattr("passcal.files.find_spec", lambda name: None)
    pc.sweep(**ASKED, checkpoint=tmp_path)
    assert not (tmp_path / "points.parquet").exists()
    monkeypatch.undo()
    same(pc.sweep(**ASKED, checkpoint=tmp_path), whole)
    table = pd.read_parquet(tmp_path / "points.parquet")
    assert table["row"].tolist() == sorted(json.loads(line)[0] for line in lines(tmp_path))
    assert table["row"].is_monotonic_increasing and (table["refused"] == "").all()
    figures = table.set_index("row").loc[whole.index, "ttft_steady_p99"]
    assert figures.tolist() == whole["ttft_steady_p99"].tolist()
    assert {file.name for file in tmp_path.iterdir()} == {"inputs.json", "points.jsonl", "points.parquet"}


def test_a_line_that_was_cut_is_dropped(tmp_path, whole):
    """Wherever it was cut, even just before its end; as are whole lines that cannot be read, with what follows."""
    pc.sweep(**ASKED, checkpoint=tmp_path)
    complete = (tmp_path / "points.jsonl").read_bytes()
    full = lines(tmp_path)
    for keep in (0, 1, len(full[0]) - 1, len(full[0]), len(full[0]) + 7, len(complete) - 1):
        (tmp_path / "points.jsonl").write_bytes(complete[:keep])
        same(pc.sweep(**ASKED, checkpoint=tmp_path), whole)
        assert sorted(lines(tmp_path)) == sorted(full)
    (tmp_path / "points.jsonl").write_bytes(full[0] + b"\0\0\n" + full[1])
    same(pc.sweep(**ASKED, checkpoint=tmp_path), whole)
    assert sorted(lines(tmp_path)) == sorted(full)


def test_figures_survive_to_the_bit(tmp_path):
    """NaN and infinity among them."""
    from passcal.checkpoint import Checkpoint
    from passcal.refining import Record

    record = Record({"a": 0.1 + 0.2, "b": float("inf"), "c": float("nan"), "d": "name", "e": 7}, [1e-300])
    saved = Checkpoint(tmp_path, {})
    saved.add({3: record, 5: Record({}, [], "Stalled", "why")})
    saved.close()
    back = Checkpoint(tmp_path, {}).done
    assert repr(back[3]) == repr(record) and back[5] == Record({}, [], "Stalled", "why")


@pytest.mark.slow
def test_killed_at_any_instant(tmp_path, whole):
    """Twenty times, at instants spread from before the first point to after the last."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    draw = random.Random(6)
    seen = set()
    for trial in range(20):
        folder = tmp_path / str(trial)
        for _ in range(2):
            process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(folder)], cwd=ROOT, env=environment)
            while process.poll() is None and not (folder / "inputs.json").exists():
                time.sleep(0.001)
            time.sleep(draw.uniform(0.0, 0.25))
            process.send_signal(signal.SIGKILL)
            process.wait()
            kept = (folder / "points.jsonl").read_bytes().count(b"\n") if (folder / "points.jsonl").exists() else 0
            seen.add(kept)
        same(pc.sweep(**ASKED, checkpoint=folder), whole)
    assert len(seen) > 5 and any(0 < kept < whole.attrs["counts"]["refined"] for kept in seen)


def test_an_interrupt_keeps_what_is_done(tmp_path, whole):
    """Ctrl-C is raised on, with the points in the file."""
    counts = []

    def interrupt(done, of):
        counts.append(done)
        if done >= 30:
            raise KeyboardInterrupt

    with listening(interrupt), pytest.raises(KeyboardInterrupt):
        pc.sweep(**ASKED, checkpoint=tmp_path)
    assert len(lines(tmp_path)) == counts[-1] >= 30
    same(pc.sweep(**ASKED, checkpoint=tmp_path), whole)


def test_how_many_are_wanted_may_change(tmp_path, whole):
    """What was evaluated does not depend on it."""
    few = pc.sweep(**{**ASKED, "top": 3}, checkpoint=tmp_path)
    pd.testing.assert_frame_equal(few.drop(columns="pareto"), whole.head(3).drop(columns="pareto"))
    same(pc.sweep(**ASKED, checkpoint=tmp_path), whole)
    same(pc.sweep(**{**ASKED, "executor": "serial"}, checkpoint=tmp_path), whole)


LOOP = pc.Workload.closed_loop(isl=64, osl=4, ingest_us_per_token=1.0)
OTHER = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 3e-6))
CHANGED = {
    "candidates": {"candidates": FRAME.assign(isl=FRAME["isl"] + np.eye(len(FRAME), dtype=int)[7])},
    "workload": {"workload": LOOP},
    "timing": {"timing": OTHER},
    "sla": {"sla": pc.Sla("ttft", 0.9, 401)},
    "workload, timing": {"workload": LOOP, "timing": OTHER},
}


@pytest.mark.parametrize("named", CHANGED)
def test_changed_inputs_are_refused_by_name(tmp_path, named):
    pc.sweep(**{**ASKED, "top": 1}, checkpoint=tmp_path)
    with pytest.raises(pc.SpecError, match=f": {named} changed since") as caught:
        pc.sweep(**{**ASKED, "top": 1, **CHANGED[named]}, checkpoint=tmp_path)
    assert len(str(caught.value)) < 200


def test_another_version_is_refused(tmp_path, monkeypatch):
    pc.sweep(**{**ASKED, "top": 1}, checkpoint=tmp_path)
    monkeypatch.setattr("passcal.digests.kernel_stamp", lambda: "other")
    with pytest.raises(pc.SpecError, match=": version changed since"):
        pc.sweep(**{**ASKED, "top": 1}, checkpoint=tmp_path)


def test_models_without_a_formula_are_told_apart(tmp_path):
    """By what they say of a few passes."""
    rows = [{"backend": "vllm"}]

    def phased(slope):
        return pc.PhaseTiming(
            prefill_ms=lambda n, isl, prefix: 5.0 + n * isl / 50, decode_ms=lambda n, c: 8.0 + slope * n
        )

    pc.sweep(rows, LOOP, phased(0.1), checkpoint=tmp_path)
    pc.sweep(rows, LOOP, phased(0.1), checkpoint=tmp_path)
    with pytest.raises(pc.SpecError, match=": timing changed"):
        pc.sweep(rows, LOOP, phased(0.2), checkpoint=tmp_path)


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(pc.SpecError, match="name another folder"):
        pc.sweep(**ASKED, checkpoint=tmp_path / "file")
    (tmp_path / "inputs.json").write_text("{")
    with pytest.raises(pc.SpecError, match=r"inputs\.json cannot be read"):
        pc.sweep(**ASKED, checkpoint=tmp_path)
    (tmp_path / "inputs.json").write_text(json.dumps({"sla": "x"}))
    with pytest.raises(pc.SpecError, match="candidates"):
        pc.sweep(**ASKED, checkpoint=tmp_path)
