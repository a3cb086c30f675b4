"""`passcal evaluate`: what it prints, writes and refuses."""

import csv
import io
import json
import subprocess
import sys

import pytest

import passcal as pc
from passcal.columns import COLUMNS


def expected():
    """The same question in Python."""
    workload = pc.Workload.closed_loop(isl=64, osl=8, concurrency=4)
    timing = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
    return pc.evaluate_closed_loop(workload, pc.Vllm(max_num_seqs=8), timing)


def test_table(passcal, closed):
    """A row a metric, the rates, the window, what binds."""
    result = passcal("evaluate", closed)
    assert result.exit_code == 0
    for word in ("TTFT", "ITL", "TPOT", "E2E", "queue", "p999", "throughput", "limit cycle", "binding"):
        assert word in result.stdout
    assert f"{expected().ttft_ms.mean:.4g}" in result.stdout


def test_json_is_the_columns(passcal, closed):
    """By their exact names, with what the table says beside."""
    result = passcal("evaluate", closed, "--json")
    told = json.loads(result.stdout)
    assert list(told)[: len(COLUMNS)] == list(COLUMNS)
    assert told["ttft_steady_mean"] == expected().ttft_ms.mean
    assert told["window"]["kind"] == "cycle" and told["binding_why"] and told["notes"] == []


def test_json_has_no_nan(passcal, closed):
    """TPOT of one-token outputs is nothing: null in JSON, an empty cell in CSV, a dash in the table."""
    one = ("evaluate", closed, "--set", "workload.osl=1")
    assert json.loads(passcal(*one, "--json").stdout)["tpot_mean"] is None
    assert next(csv.DictReader(io.StringIO(passcal(*one, "--csv", "-").stdout)))["tpot_mean"] == ""
    assert "│TPOT  │     -" in passcal(*one).stdout


def test_csv(passcal, closed, tmp_path):
    """To standard output, or to a file beside the table."""
    printed = passcal("evaluate", closed, "--csv", "-").stdout
    (row,) = csv.DictReader(io.StringIO(printed))
    assert list(row) == list(COLUMNS) and float(row["ttft_steady_mean"]) == expected().ttft_ms.mean
    file = tmp_path / "out.csv"
    assert "TTFT" in passcal("evaluate", closed, "--csv", file).stdout
    assert file.read_bytes().decode() == printed
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_set_overrides(passcal, closed):
    """Several times, into sections that are not there, values as YAML."""
    extra = ("--set", "evaluate.stop={kind: window, requests: 50}", "--set", "engine.async_scheduling=false")
    told = json.loads(passcal("evaluate", closed, "--json", *extra).stdout)
    assert told["window"]["kind"] == "window" and told["window"]["requests"] == 50
    nested = ("--set", "evaluate.stop.kind=window", "--set", "evaluate.stop.requests=50")
    assert json.loads(passcal("evaluate", closed, "--json", *nested).stdout)["window"]["requests"] == 50


REFUSED = {
    "engine.max_seqs=4": "engine.max_seqs=4: unknown key; known are max_num_batched_tokens, max_num_seqs",
    "engine.max_num_seqs=0": "engine.max_num_seqs=0: ",
    "engine.max_num_seqs=many": "engine.max_num_seqs='many': ",
    "engine.backend=vlm": "engine.backend='vlm': must be one of vllm",
    "workload.isl=-1": "isl=-1",
    "workload.isl=": "isl",
    "workload.mode=ajar": "workload.mode='ajar': must be one of closed, open, replay",
    "workload.trace=x.csv": "workload.trace='x.csv': unknown key",
    "workload.isl.mean=3": "workload.isl=64 has no keys",
    "workload=3": "workload=3: must have keys",
    "nowhere.key=3": "must be path=value",
    "workload.isl": "must be path=value",
    "workload.isl=[1": "mend --set",
    "timing.kind=magic": "timing.kind='magic': must be one of linear, roofline",
    "timing.prefill=5": "timing.prefill=5: must be a list of numbers",
    "timing.prefill=[-1]": "timing.prefill=(-1,): coefficients must be finite",
    "timing.combine=[]": "timing: ",
    "timing.gpu=h100": "timing.gpu='h100': unknown key",
    "timing={kind: roofline, gpu: z80}": "timing.gpu='z80': use one of",
    "evaluate.start=late": "evaluate.start='late': must be burst or spread",
    "evaluate.phases=0": "evaluate.phases=0: must be a whole number",
    "evaluate.stop=drained": "evaluate.stop='drained': must have keys; start with kind: limit_cycle",
    "evaluate.stop={kind: drained}": "Drained",
    "evaluate.stop={kind: window, requests: x}": "evaluate.stop.requests='x': must be a whole number",
    "evaluate.stop={kind: limit_cycle, strict: 1}": "evaluate.stop.strict=1: must be true or false",
    "evaluate.speed=3": "evaluate.speed=3: unknown key",
}


@pytest.mark.parametrize("setting", REFUSED)
def test_bad_input_is_refused_by_path(passcal, closed, setting):
    """Exit 2, one line with the path, the value and the rule, no traceback."""
    result = passcal("evaluate", closed, "--set", setting)
    assert result.exit_code == 2, result.output
    assert REFUSED[setting] in result.stderr
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1 and len(result.stderr) < 220


FILES = {
    "": "must have keys",
    "- 1": "must have keys",
    "workload: {isl: 3": "line 1: ",
    "workload: {mode: closed}\nworkload: {mode: replay}": "line 2: 'workload' is given twice",
    "workload: {mode: closed, isl: 4, osl: 4, concurrency: 1}\nengine: {backend: vllm}": "timing is missing",
    "extra: 3": "extra=3: unknown key; known are workload, engine, deployment, timing, evaluate",
    "workload: 3\nengine: {backend: vllm}\ntiming: {kind: linear}": "workload=3: must have keys",
    "workload: {mode: replay}\nengine: {backend: vllm}\ntiming: {kind: linear}": "either trace (a file) or rows",
    "workload: {isl: 3}\nengine: {backend: vllm}\ntiming: {kind: linear}": "workload.mode is missing",
}


@pytest.mark.parametrize("text", FILES)
def test_bad_files_are_refused(passcal, tmp_path, text):
    """So is what is no configuration."""
    file = tmp_path / "bad.yaml"
    file.write_text(text, encoding="utf-8")
    result = passcal("evaluate", file)
    assert result.exit_code == 2 and FILES[text] in result.stderr and len(result.stderr.splitlines()) == 1


def test_outputs_that_cannot_be_delivered_are_refused_first(passcal, closed, tmp_path):
    """Before any work is done."""
    assert "no such file" in passcal("evaluate", tmp_path / "absent.yaml").stderr.lower()
    assert "both go to standard output" in passcal("evaluate", closed, "--json", "--csv", "-").stderr
    result = passcal("evaluate", closed, "--csv", tmp_path / "absent" / "out.csv")
    assert result.exit_code == 2 and "folder does not exist" in result.stderr
    assert "is no plain file" in passcal("evaluate", closed, "--csv", tmp_path).stderr


def test_an_engine_that_can_never_run_is_refused(passcal, closed):
    """By the rule that it breaks."""
    result = passcal("evaluate", closed, "--set", "engine.num_gpu_blocks=3")
    assert result.exit_code == 2 and "num_gpu_blocks=3" in result.stderr


def test_no_cycle_found_is_exit_1(passcal, closed):
    """Nothing is wrong with the input, and there is no answer."""
    result = passcal(
        "evaluate", closed, "--set", "evaluate.stop={kind: limit_cycle, max_passes: 1, jump_after: null, strict: true}"
    )
    assert result.exit_code == 1 and "no limit cycle" in result.stderr and result.stdout == ""


def test_interrupted_is_exit_130(passcal, closed, monkeypatch):
    """With a plain line."""

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["passcal.evaluate"], "evaluate", interrupted)
    result = passcal("evaluate", closed)
    assert result.exit_code == 130 and result.stderr == "interrupted\n"


def test_the_first_run_says_that_it_compiles(passcal, closed, tmp_path, monkeypatch):
    """Once, on standard error, unless told to be quiet."""
    monkeypatch.setattr("passcal.core.compiled.cache_folder", lambda: tmp_path / "none")
    monkeypatch.setattr("passcal.core.compiled.INTERPRETED", False)
    assert passcal("evaluate", closed).stderr == "compiling the kernel once, about ten seconds...\n"
    assert passcal("evaluate", closed, "--quiet").stderr == ""
    (tmp_path / "none").mkdir()
    (tmp_path / "none" / "run.nbi").touch()
    assert passcal("evaluate", closed).stderr == ""


def test_numbers_are_those_of_yaml_1_2(passcal, closed):
    """`1e-6` is a number, with or without a point."""
    for text in ("[5, 2e-2]", "[5, 2.0e-02]", "[5, .2e-1]"):
        assert passcal("evaluate", closed, "--set", f"timing.prefill={text}").exit_code == 0


def test_version_and_help(passcal):
    """Without a configuration."""
    assert passcal("--version").stdout == f"passcal {pc.__version__}\n"
    assert "evaluate" in passcal("--help").stdout
    assert passcal("unheard").exit_code == 2


@pytest.mark.slow
def test_as_a_program(closed):
    """The console script's entry."""
    run = [sys.executable, "-m", "passcal.cli", "evaluate", str(closed), "--json"]
    assert json.loads(subprocess.run(run, capture_output=True, check=True, text=True).stdout)["window_kind"] == "cycle"


def test_sessions(passcal, tmp_path):
    """Lanes of turns in YAML."""
    file = tmp_path / "sessions.yaml"
    text = (
        "workload: {mode: sessions, stagger_ms: 5, lanes: [[{isl: 64, osl: 8}, {isl: 90, osl: 4, think_ms: 30, calls: [[20, 0, 3]]}]]}\n"
        "engine: {backend: vllm}\ntiming: {kind: linear}"
    )
    file.write_text(text, encoding="utf-8")
    result = passcal("evaluate", file, "--json")
    assert result.exit_code == 0 and json.loads(result.stdout)["fidelity"] == "W4"
    assert "3 requests" in passcal("evaluate", file).stdout
    for setting, told in (
        ("workload.lanes=[]", "workload.lanes"),
        ("workload.lanes=[[{isl: 0, osl: 1}]]", "lane 0, turn 0"),
        ("workload.lane=[]", "workload.lane="),
    ):
        result = passcal("evaluate", file, "--set", setting)
        assert result.exit_code == 2 and told in result.stderr and len(result.stderr.splitlines()) == 1
