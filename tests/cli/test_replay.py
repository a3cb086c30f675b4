"""`passcal replay`: a trace through one deployment."""

import json

import pandas as pd
import pytest

import passcal as pc


@pytest.fixture
def replayed():
    """The same question in Python."""
    workload = pc.Workload.replay([(0.0, 100, 5), (10.0, 200, 3), (400.5, 50, 1)])
    timing = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
    return pc.evaluate_replay(workload, pc.Vllm(max_num_seqs=8), timing)


def test_the_trace_replaces_the_workload(passcal, closed, trace, replayed):
    """And what that puts aside is told."""
    result = passcal("replay", trace, "--config", closed)
    assert result.exit_code == 0 and "whole run: 3 requests" in result.stdout
    assert "the trace replaces the configured workload: isl, osl, concurrency put aside" in result.stdout
    told = json.loads(passcal("replay", trace, "--config", closed, "--json").stdout)
    assert told["e2e_mean"] == replayed.e2e_ms.mean and len(told["notes"]) == 1


def test_requests_csv(passcal, closed, trace, replayed, tmp_path):
    """One line a request, as the frame has it; an old file is replaced."""
    file = tmp_path / "requests.csv"
    file.write_text("old", encoding="utf-8")
    assert passcal("replay", trace, "--config", closed, "--requests-csv", file).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_csv(file), replayed.requests(), check_dtype=False)


def test_requests_csv_is_written_whole_or_not_at_all(passcal, closed, trace, tmp_path, monkeypatch):
    """A write that breaks leaves the old file, and nothing beside it."""
    file = tmp_path / "requests.csv"
    file.write_text("old", encoding="utf-8")
    before = {path.name for path in tmp_path.iterdir()}

    def full(self, out, **_):
        out.write("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pd.DataFrame, "to_csv", full)
    result = passcal("replay", trace, "--config", closed, "--requests-csv", file)
    assert result.exit_code == 2 and "No space left" in result.stderr
    assert file.read_text(encoding="utf-8") == "old" and {path.name for path in tmp_path.iterdir()} == before


def test_a_replay_configuration_keeps_its_plane(passcal, tmp_path, trace):
    """The trace of the command line takes the place of its own; the rest holds."""
    file = tmp_path / "replay.yaml"
    text = (
        "workload: {mode: replay, trace: absent.csv, turnaround_ms: 7}\nengine: {backend: vllm}\ntiming: {kind: linear}"
    )
    file.write_text(text, encoding="utf-8")
    out = tmp_path / "out.csv"
    assert passcal("replay", trace, "--config", file, "--requests-csv", out).exit_code == 0
    frame = pd.read_csv(out)
    assert (frame["visible_ms"] - frame["dispatch_ms"] == 7).all()
    assert "absent.csv: no such file" in passcal("evaluate", file).stderr


def test_a_trace_stands_beside_its_configuration(passcal, tmp_path, trace):
    """A relative path starts at the YAML file."""
    file = tmp_path / "replay.yaml"
    text = "workload: {mode: replay, trace: trace.csv}\nengine: {backend: vllm}\ntiming: {kind: linear}"
    file.write_text(text, encoding="utf-8")
    assert passcal("evaluate", file).exit_code == 0


def test_rows_may_stand_in_the_configuration(passcal, tmp_path):
    """Instead of a file."""
    file = tmp_path / "rows.yaml"
    text = "workload: {mode: replay, rows: [[0, 10, 2], [1, 10, 2]]}\nengine: {backend: vllm}\ntiming: {kind: linear}"
    file.write_text(text, encoding="utf-8")
    assert "whole run: 2 requests" in passcal("evaluate", file).stdout


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--format", "azur"), "azur"),
        (("--spread", "often"), "often"),
        (("--format", "azure"), "TIMESTAMP"),
        (("--requests-csv", "absent/out.csv"), "folder does not exist"),
        (("--set", "evaluate.start=spread"), "start='spread'"),
    ],
)
def test_bad_input(passcal, closed, trace, options, told):
    """Exit 2 in one line."""
    result = passcal("replay", trace, "--config", closed, *options)
    assert result.exit_code == 2 and told in result.stderr and len(result.stderr.splitlines()) == 1


def test_a_broken_trace_is_refused_by_line(passcal, closed, tmp_path):
    """The reader's words reach the user."""
    file = tmp_path / "broken.csv"
    file.write_text("dispatch_ms,isl,osl\n0,100,5\n10,-3,3\n", encoding="utf-8")
    result = passcal("replay", file, "--config", closed)
    assert result.exit_code == 2 and "line 3" in result.stderr


AGENT = """{"id": "a", "block_size": 64, "requests": [
{"t": 0, "in": 100, "out": 3, "hash_ids": [1, 2]}, {"t": 5, "in": 150, "out": 3, "hash_ids": [1, 2, 3]}]}""".replace(
    "\n", ""
)
RESULTS = (
    '{"request_throughput": 1.0, "start_times": [5.0, 6.0], "input_lens": [100, 90], "output_lens": [3, 2],'
    ' "ttfts": [0.1, 0.1], "latencies": [0.3, 0.2]}'
)


@pytest.mark.parametrize(
    ("text", "told"), [(AGENT, "in read_agent: session"), (RESULTS, "in read_results: measured_ttft_ms")]
)
def test_the_format_is_told_by_looking(passcal, closed, tmp_path, text, told):
    """Agent sessions and saved results are traces too; what a replay leaves out is said."""
    file = tmp_path / "any.name"
    file.write_text(text, encoding="utf-8")
    result = passcal("replay", file, "--config", closed)
    assert result.exit_code == 0 and "whole run: 2 requests" in result.stdout and told in result.stdout


def test_a_prefix_oracle_from_the_configuration(passcal, closed, tmp_path):
    """It fills the prefix column, and the notes say how much was hit."""
    file, out = tmp_path / "agent.jsonl", tmp_path / "out.csv"
    file.write_text(AGENT, encoding="utf-8")
    options = ("--set", "workload={mode: replay, prefix_oracle: {block_size: 16}}", "--requests-csv", out)
    result = passcal("replay", file, "--config", closed, *options)
    assert result.exit_code == 0 and "of prompt tokens hit" in result.stdout
    assert list(pd.read_csv(out)["prefix"]) == [0, 64]


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("{capacity: 5}", "workload.prefix_oracle.capacity=5: unknown key"),
        ("{eviction: fifo}", "workload.prefix_oracle.eviction='fifo': must be lru or leaf"),
        ("{capacity_pages: 5}", "no page ids"),
    ],
)
def test_a_prefix_oracle_is_checked(passcal, closed, trace, setting, told):
    """By its path; and a trace without page ids has no use for one."""
    result = passcal(
        "replay", trace, "--config", closed, "--set", f"workload={{mode: replay, prefix_oracle: {setting}}}"
    )
    assert result.exit_code == 2 and told in result.stderr and len(result.stderr.splitlines()) == 1


def test_requests_parquet(passcal, closed, trace, replayed, tmp_path):
    """The same rows, with their types."""
    file = tmp_path / "requests.parquet"
    assert passcal("replay", trace, "--config", closed, "--requests-parquet", file).exit_code == 0
    pd.testing.assert_frame_equal(pd.read_parquet(file), replayed.requests())


def test_parquet_is_refused_before_any_work_where_nothing_writes_it(passcal, closed, tmp_path, monkeypatch):
    """With the remedy."""
    monkeypatch.setattr("passcal.files.find_spec", lambda name: None)
    result = passcal("replay", "absent.csv", "--config", closed, "--requests-parquet", tmp_path / "out.parquet")
    assert result.exit_code == 2 and "install passcal[parquet]" in result.stderr


def test_the_client_and_the_clock(passcal, closed, trace, tmp_path):
    """What Python's arguments of the same names do."""
    file = tmp_path / "requests.csv"
    clock = ("--max-concurrency", 1, "--time-scale", 0.5, "--start-ms", 0, "--end-ms", 300)
    result = passcal("replay", trace, "--config", closed, "--requests-csv", file, *clock)
    rows = [(0.0, 100, 5), (10.0, 200, 3), (400.5, 50, 1)]
    workload = pc.Workload.replay(rows, max_concurrency=1, time_scale=0.5, start_ms=0, end_ms=300)
    report = pc.evaluate_replay(
        workload, pc.Vllm(max_num_seqs=8), pc.LinearTiming((5.0, 0.02, 1e-6), (8.0, 0.05, 2e-6))
    )
    pd.testing.assert_frame_equal(pd.read_csv(file), report.requests(), check_dtype=False)
    told = " ".join(result.stdout.split())
    for note in ("window of the trace: 2 of 3 requests", "multiplied by 0.5", "wait 17.1 ms at the client"):
        assert note in told


def test_workers(passcal, closed, trace, tmp_path):
    """Several, behind a router."""
    file = tmp_path / "requests.csv"
    deployed = ("--replicas", 2, "--routing", "least_loaded")
    assert passcal("replay", trace, "--config", closed, "--requests-csv", file, *deployed).exit_code == 0
    assert pd.read_csv(file)["worker"].tolist() == [0, 1, 0]
    result = passcal("replay", trace, "--config", closed, "--routing", "by_hand")
    assert result.exit_code == 2 and "deployment.routing" in result.stderr
