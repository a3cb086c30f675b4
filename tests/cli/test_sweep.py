"""`passcal screen` and `passcal sweep`: what they print, write and refuse."""

import csv
import io
import json
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.progress import pace

TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
GRID = """
grid:
  engine.max_num_seqs: [4, 8]
  engine.max_num_batched_tokens: {from: 64, to: 256, factor: 2}
  workload.concurrency: {from: 2, to: 10, step: 4}
  constraints: ["max_num_batched_tokens >= 16 * max_num_seqs"]
"""
FRAME = pd.DataFrame(
    [
        {"backend": "vllm", "max_num_seqs": seats, "max_num_batched_tokens": budget, "concurrency": clients}
        for seats in (4, 8)
        for budget in (64, 128, 256)
        for clients in (2, 6, 10)
        if budget >= 16 * seats
    ]
)
SLA = ("--sla", "ttft:p99<=60")
LOOP = pc.Workload.closed_loop(isl=64, osl=8, concurrency=4)


@pytest.fixture
def grid(closed):
    """The closed loop with a grid."""
    closed.write_text(closed.read_text().replace(", max_num_seqs: 8", "") + GRID, encoding="utf-8")
    return closed


def expected(**options):
    """The same question in Python."""
    return pc.sweep(FRAME, LOOP, TIMING, sla=pc.Sla("ttft", 0.99, 60), **options)


def test_sweep_prints_the_best_and_what_became_of_the_rest(passcal, grid):
    result = passcal("sweep", grid, *SLA, "--top", 3)
    assert result.exit_code == 0, result.output
    counts = expected(top=3).attrs["counts"]
    assert "3 best" in result.stdout and "TTFT p99" in result.stdout
    assert f"15 candidates: {counts['rejected_by_bracket']} rejected by the bracket" in result.stdout


def test_sweep_json_is_what_python_says(passcal, grid):
    told = json.loads(passcal("sweep", grid, *SLA, "--json", "--top", 0, "--objective", "per_user").stdout)
    found = expected(top=None, objective="per_user")
    assert told["counts"] == found.attrs["counts"] and len(told["rows"]) == len(found)
    for row, want in zip(told["rows"], found.to_dict("records"), strict=True):
        assert all(row[name] == want[name] or (row[name] is None and np.isnan(want[name])) for name in want)


def test_files(passcal, grid, tmp_path):
    """CSV and Parquet hold the same rows; - is standard output."""
    paths = tmp_path / "out.csv", tmp_path / "out.parquet"
    assert passcal("sweep", grid, *SLA, "--csv", paths[0], "--parquet", paths[1]).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(paths[0]), pd.read_parquet(paths[1]), check_dtype=False)
    printed = passcal("sweep", grid, *SLA, "--csv", "-")
    assert printed.stdout == paths[0].read_text() and "note: 15 candidates" in printed.stderr
    assert passcal("sweep", grid, *SLA, "--csv", "-", "--quiet").stderr == ""


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_candidates_from_a_file(passcal, closed, tmp_path, suffix):
    """Columns of the file replace those of the sections, which hold for all others."""
    file = tmp_path / f"candidates.{suffix}"
    frame = FRAME[["max_num_batched_tokens", "concurrency"]].drop_duplicates()
    frame.to_csv(file, index=False) if suffix == "csv" else frame.to_parquet(file)
    told = json.loads(passcal("sweep", closed, "--candidates", file, "--json").stdout)
    found = pc.sweep(frame.assign(backend="vllm", max_num_seqs=8), LOOP, TIMING)
    assert [row["ttft_steady_p99"] for row in told["rows"]] == found["ttft_steady_p99"].tolist()
    assert all(row["max_num_seqs"] == 8 for row in told["rows"])


def test_timing_models_by_name(passcal, grid):
    slow = "{kind: linear, prefill: [9, 0.02, 1e-6, 0.0], decode: [16.0, 0.05, 2e-6]}"
    fast = "{kind: linear, prefill: [5, 0.02, 1e-6, 0.0], decode: [8.0, 0.05, 2e-6]}"
    settings = ("--set", f"timing={{models: {{slow: {slow}, fast: {fast}}}}}", "--set", "grid={timing: [slow, fast]}")
    told = json.loads(passcal("sweep", grid, *settings, "--json").stdout)
    assert [row["timing"] for row in told["rows"]] == ["fast", "slow"]


def test_grids_of_several_backends(passcal, grid):
    """A list of grids, one after the other; the engine's section may be left out."""
    grids = (
        "grid=[{engine.backend: vllm, engine.max_num_seqs: [2, 4]}, {engine.backend: trtllm, engine.max_batch_size: 3}]"
    )
    told = json.loads(passcal("sweep", grid, "--set", "engine=null", "--set", grids, "--json").stdout)
    assert sorted((row["backend"], row["max_num_seqs"], row["max_batch_size"]) for row in told["rows"])[1:] == [
        ("vllm", 2.0, None),
        ("vllm", 4.0, None),
    ]
    assert told["counts"]["candidates"] == 3 and not told["counts"]["errors"]


def test_screen(passcal, grid, tmp_path):
    """Every candidate, in the order of the grid."""
    file = tmp_path / "screened.csv"
    result = passcal("screen", grid, "--csv", file)
    assert result.exit_code == 0 and "10 of 15 candidates by tokens/s" in result.stdout and "regime" in result.stdout
    screened = pc.screen(FRAME, LOOP, TIMING)
    assert pd.read_csv(file)["ttft_steady_p99"].tolist() == pytest.approx(
        screened["ttft_steady_p99"].tolist(), rel=1e-12
    )
    assert len(json.loads(passcal("screen", grid, "--json").stdout)["rows"]) == 15
    kinds = [
        {row["window_kind"] for row in json.loads(passcal("screen", grid, "--json", "--steps", steps).stdout)["rows"]}
        for steps in ("0", "20000")
    ]
    assert kinds == [{"closed form"}, {"cycle"}]
    assert "must be a whole number" in passcal("screen", grid, "--steps", "many").stderr
    assert len(list(csv.DictReader(io.StringIO(passcal("screen", grid, "--csv", "-").stdout)))) == 15


def test_nothing_feasible_is_exit_1(passcal, grid):
    """With the table and the counts all the same."""
    result = passcal("sweep", grid, "--sla", "ttft:p99<=1")
    assert result.exit_code == 1 and "15 rejected by the bracket" in result.stdout
    assert json.loads(passcal("sweep", grid, "--sla", "ttft:p99<=1", "--json").stdout)["rows"] == []


def test_an_interrupt_keeps_the_checkpoint(passcal, grid, tmp_path, monkeypatch):
    """Exit 130; the next run goes on from there."""
    folder, calls = tmp_path / "run", []

    def interrupting(clock=None):
        def text(done, of):
            calls.append(done)
            raise KeyboardInterrupt

        return text

    monkeypatch.setattr("passcal.progress.pace", interrupting)
    stopped = passcal("sweep", grid, "--top", 0, "--checkpoint", folder, "--executor", "serial")
    assert stopped.exit_code == 130 and stopped.stderr == "interrupted\n"
    assert (folder / "points.jsonl").read_bytes().count(b"\n") == calls[0] == 8
    monkeypatch.undo()
    told = json.loads(passcal("sweep", grid, "--top", 0, "--checkpoint", folder, "--json").stdout)
    assert told == json.loads(passcal("sweep", grid, "--top", 0, "--json").stdout)
    changed = passcal("sweep", grid, "--set", "workload.isl=65", "--checkpoint", folder)
    assert changed.exit_code == 2 and "workload changed since it was written" in changed.stderr


def test_progress_tells_rate_and_time_left(passcal, grid, monkeypatch):
    texts = []

    @contextmanager
    def waiting(text, quiet):
        texts.append(text)
        yield texts.append

    monkeypatch.setattr("passcal.cli_sweep.waiting", waiting)
    passcal("sweep", grid, "--executor", "serial", "--top", 0)
    assert texts[0] == "screening 15 candidates" and texts[1] == "8 of at most 15 candidates"
    assert texts[2].startswith("15 of at most 15 candidates, ") and texts[2].endswith("at most 0 s left")


def test_pace_leaves_out_what_was_done_before():
    """Points of a checkpoint are no speed."""
    times = iter([10.0, 10.0, 12.0, 14.0])
    text = pace(lambda: next(times))
    assert text(1000, 5000) == "1,000 of at most 5,000 candidates" == text(1000, 5000)
    assert text(3000, 5000) == "3,000 of at most 5,000 candidates, 1,000 a second, at most 2 s left"
    assert text(4000, 5000) == "4,000 of at most 5,000 candidates, 750 a second, at most 1 s left"


REFUSED = {
    ("--set", "grid=null"): "give either the section grid or --candidates FILE",
    ("--candidates", "nowhere.csv"): "give either the section grid",
    ("--set", "grid=null", "--candidates", "nowhere.csv"): "nowhere.csv: No such file",
    ("--set", "timing=null"): "timing is missing",
    ("--set", "evaluate.start=spread"): "evaluate: candidates are evaluated from a burst",
    ("--set", "grid={max_num_seqs: [4]}"): "grid.max_num_seqs: must be timing, or start with",
    ("--set", "grid={engine.max_num_seqs: []}"): "grid.engine.max_num_seqs=[]",
    ("--set", "grid={engine.max_num_seqs: {from: 1, to: 5}}"): "a range has numbers from, to",
    ("--set", "grid={engine.max_num_seqs: {from: 1, to: 5, step: 0}}"): "must go up",
    ("--set", "grid={engine.max_num_seqs: {from: 1, to: 5, step: true}}"): "a range has numbers",
    ("--set", "grid={engine.max_num_seqs: {from: 0, to: 5, factor: 2}}"): "must go up",
    ("--set", "grid={workload.isl: {from: 1, to: 9e9, step: 1}}"): "give a larger step",
    ("--set", "grid={constraints: []}"): "must have keys",
    ("--set", "grid={engine.max_num_seqs: 4, constraints: max_num_seqs}"): "must compare two terms",
    ("--set", "grid={engine.max_num_seqs: 4, constraints: 'max_num_seqs < isl'}"): "'isl' is no number and no key",
    ("--set", "grid={engine.max_num_seqs: 4, constraints: '__import__(os) < 4'}"): "must compare two terms",
    ("--set", "grid={engine.max_num_seqs: 4, constraints: 'max_num_seqs < 3'}"): "no candidate meets them",
    ("--set", "grid={engine.backend: vllm, constraints: 'backend < 3'}"): "backend='vllm': is no number",
    ("--set", "grid={engine.max_num_seqs: 4, deployment.max_num_seqs: 4}"): "is given twice",
    ("--set", "grid={engine.max_num_seq: [4]}"): "column 'max_num_seq': nothing reads it",
    ("--sla", "ttft<=5"): "sla.0='ttft<=5'",
    ("--objective", "best"): "objective='best'",
    ("--top", "-1"): "top=-1",
    ("--executor", "dask"): "executor='dask'",
    ("--json", "--csv", "-"): "both go to standard output",
    ("--csv", "nowhere/out.csv"): "its folder does not exist",
}


@pytest.mark.parametrize("options", REFUSED, ids=REFUSED.values())
def test_bad_input_is_refused_by_path(passcal, grid, options):
    result = passcal("sweep", grid, *options)
    assert result.exit_code == 2, result.output
    assert REFUSED[options] in result.stderr
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1 and len(result.stderr) < 220


def test_sections_of_other_commands_are_refused(passcal, grid):
    """Nothing is ignored."""
    assert "grid: is for passcal screen and sweep" in passcal("evaluate", grid).stderr
    assert "sla: a screen keeps every candidate" in passcal("screen", grid, "--set", "sla=['ttft:p99<=5']").stderr


APART = """
workload: {mode: closed, isl: 64, osl: 8, concurrency: 4}
timing:
  models:
    both: {prefill: {kind: linear, prefill: [5.0, 0.02, 0, 0], decode: [8.0, 0.05, 0]}, decode: {kind: linear, prefill: [5.0, 0.02, 0, 0], decode: [9.0, 0.05, 0]}}
    one: {kind: linear, prefill: [5.0, 0.02, 0, 0], decode: [8.0, 0.05, 0]}
engine: {backend: vllm, max_num_seqs: 32}
deployment:
  replicas: 2
  prefill: {engine: {max_num_seqs: 8}}
  link: {gb_per_s: 1.0, kv_bytes_per_token: 1.0e5}
grid:
  - {deployment.kind: disaggregated, decode.max_num_seqs: [4, 8], link.latency_ms: [0, 3], timing: both}
  - {deployment.kind: aggregated, timing: one}
"""


def test_a_grid_of_both_kinds(passcal, tmp_path):
    """Sections fill what a row's kind has a column for; a file of the same rows says the same."""
    config = tmp_path / "apart.yaml"
    config.write_text(APART, encoding="utf-8")
    told = json.loads(passcal("sweep", config, "--json", "--top", 0).stdout)
    linear = [pc.LinearTiming(prefill=(5.0, 0.02, 0.0, 0.0), decode=(decode, 0.05, 0.0)) for decode in (8.0, 9.0)]
    shared = {"kind": "disaggregated", "backend": "vllm", "prefill.max_num_seqs": 8, "timing": "both"}
    link = {"link.gb_per_s": 1.0, "link.kv_bytes_per_token": 1e5}
    rows = [
        {**shared, **link, "decode.max_num_seqs": seats, "link.latency_ms": late} for seats in (4, 8) for late in (0, 3)
    ]
    rows.append({"backend": "vllm", "max_num_seqs": 32, "replicas": 2, "timing": "one"})
    timing = {"both": {"prefill": linear[0], "decode": linear[1]}, "one": linear[0]}
    found = pc.sweep(rows, LOOP, timing, top=None)
    assert [row["throughput_rps"] for row in told["rows"]] == found["throughput_rps"].tolist() and len(found) == 5
    file = tmp_path / "rows.csv"
    pd.DataFrame(rows).to_csv(file, index=False)
    bare = tmp_path / "bare.yaml"
    bare.write_text(APART.split("engine:")[0], encoding="utf-8")
    again = json.loads(passcal("sweep", bare, "--candidates", file, "--json", "--top", 0).stdout)
    assert [row["ttft_steady_p99"] for row in again["rows"]] == found["ttft_steady_p99"].tolist()


def test_a_section_that_no_row_has_a_column_for_is_refused(passcal, tmp_path):
    config = tmp_path / "apart.yaml"
    config.write_text(APART.split("  - {deployment.kind: aggregated")[0], encoding="utf-8")
    result = passcal("sweep", config)
    assert result.exit_code == 2 and "=disaggregated has no such column" in " ".join(result.output.split())


def test_both_sides_take_from_the_shared_engine(passcal, tmp_path):
    """Unless they have their own; a side of another backend takes nothing, and each may have its timing."""
    timing = "{kind: linear, prefill: [5.0, 0.02, 0, 0], decode: [8.0, 0.05, 0]}"
    config = tmp_path / "apart.yaml"
    config.write_text(
        f"""
workload: {{mode: closed, isl: 64, osl: 8, concurrency: 9}}
timing: {timing}
engine: {{backend: vllm, max_num_seqs: 2, max_num_batched_tokens: 128}}
deployment:
  kind: disaggregated
  prefill: {{engine: {{max_num_seqs: 1}}, timing: {timing.replace("5.0", "6.0")}}}
  decode: {{engine: {{backend: trtllm, max_batch_size: 3}}}}
grid: {{deployment.prefill_workers: [1, 2]}}
""",
        encoding="utf-8",
    )
    told = json.loads(passcal("sweep", config, "--json", "--top", 0).stdout)
    row = {
        "kind": "disaggregated",
        "prefill.backend": "vllm",
        "prefill.max_num_seqs": 1,
        "prefill.max_num_batched_tokens": 128,
        "decode.backend": "trtllm",
        "decode.max_batch_size": 3,
    }
    models = {
        pool: pc.LinearTiming(prefill=(first, 0.02, 0.0, 0.0), decode=(8.0, 0.05, 0.0))
        for pool, first in (("prefill", 6.0), ("decode", 5.0))
    }
    workload = pc.Workload.closed_loop(isl=64, osl=8, concurrency=9)
    found = pc.sweep([{**row, "prefill_workers": k} for k in (1, 2)], workload, models, top=None)
    assert [row["throughput_rps"] for row in told["rows"]] == found["throughput_rps"].tolist()
    screened = passcal("screen", config, "--json")
    assert {row["queueing_tier"] for row in json.loads(screened.stdout)["rows"]} == {"composed"}


SECTIONS = {  # what is refused of sections
    "deployment.link.gbps=3": "deployment: {kind: disaggregated, link: {gbps: 3}}",
    "deployment.prefill.max_num_seqs=3": "deployment: {kind: disaggregated, prefill: {max_num_seqs: 3}}",
    "engine: no candidate takes anything": "engine: {backend: trtllm}\ndeployment: {kind: disaggregated, prefill: {engine: {backend: vllm}}, decode: {engine: {backend: sglang}}}",
    "deployment.encoder: is not screened": "deployment: {kind: disaggregated, encoder: {latency_ms: 3.0}}",
    "deployment.prefill.timing: the section timing says otherwise": "deployment: {kind: disaggregated, prefill: {timing: {kind: linear}}, decode: {timing: {kind: linear}}}",
    "kind=aggregated has no such column": "engine: {backend: vllm}\ndeployment: {kind: aggregated, link: {gb_per_s: 3}}",
}


@pytest.mark.parametrize("message", SECTIONS)
def test_sections_apart_are_checked(passcal, tmp_path, message):
    config = tmp_path / "apart.yaml"
    given = SECTIONS[message]
    config.write_text(
        f"""
workload: {{mode: closed, isl: 64, osl: 8, concurrency: 9}}
timing: {{kind: linear, prefill: [5.0, 0.02, 0, 0], decode: [8.0, 0.05, 0]}}
{given}
grid: {{workload.concurrency: [1, 2]}}
""",
        encoding="utf-8",
    )
    result = passcal("sweep", config)
    assert result.exit_code == 2 and message in " ".join(result.output.split())
