"""`passcal evaluate` of open loops: laws and arrivals in YAML, what is printed, and what is refused."""

import json
from pathlib import Path

import pytest

import passcal as pc

OPEN = """
workload:
  mode: open
  isl: {law: lognormal, mean: 300, cv: 0.8}
  osl: {law: uniform, low: 2, high: 30}
  correlation: 0.2
  rate_per_s: 4.5
  arrivals: gamma
  cv: 1.5
engine: {backend: vllm, max_num_seqs: 8}
timing: {kind: linear, prefill: [5.0, 0.02, 1e-6, 0.0], decode: [8.0, 0.05, 2e-6]}
evaluate: {stop: {kind: window, requests: 500}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """An open loop of laws."""
    place = tmp_path / "open.yaml"
    place.write_text(OPEN, encoding="utf-8")
    return place


def test_it_is_the_python_question(passcal, file):
    laws = pc.Lengths.lognormal(300, 0.8), pc.Lengths.uniform(2, 30)
    workload = pc.Workload.open_loop(*laws, 4.5, correlation=0.2, arrivals="gamma", cv=1.5)
    timing = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
    asked = pc.evaluate_open_loop(workload, pc.Vllm(max_num_seqs=8), timing, stop=pc.Window(requests=500))
    told = json.loads(passcal("evaluate", file, "--json").stdout)
    assert told["ttft_steady_mean"] == asked.ttft_ms.mean
    assert told["capacity_per_s"] == asked.capacity_per_s
    assert (told["fidelity"], told["window"]["kind"], told["window"]["requests"]) == ("W2", "window", 500)
    assert told["window"]["p99_half_width_ms"] == asked.window.p99_half_width_ms


def test_the_table_says_how_sure_it_is(passcal, file):
    printed = passcal("evaluate", file).stdout
    for words in ("interval", "p99 ±", "capacity", "where the queue is never empty"):
        assert words in printed


LAWS = {
    "{law: samples, values: [100, 200, 200]}": pc.Lengths.samples([100, 200, 200]),
    "{law: strata, shares: {100: 0.3, 400: 0.7}}": pc.Lengths.strata({100: 0.3, 400: 0.7}),
    "{law: gamma, mean: 300, cv: 0.4}": pc.Lengths.gamma(300, 0.4),
}


@pytest.mark.parametrize("text", LAWS)
def test_laws(passcal, file, text):
    from passcal.config import load_config, read_config

    asked = read_config(load_config(file, (f"workload.isl={text}",)), file.parent)
    assert asked.workload.shapes.isl == LAWS[text]


def test_rows_of_a_joint_law(passcal, file):
    text = file.read_text().replace(
        "isl: {law: lognormal, mean: 300, cv: 0.8}", "shapes: {law: joint, rows: [[90, 9], [300, 20, 4]]}"
    )
    text = text.replace("  osl: {law: uniform, low: 2, high: 30}\n  correlation: 0.2\n", "")
    file.write_text(text, encoding="utf-8")
    assert json.loads(passcal("evaluate", file, "--json").stdout)["fidelity"] == "W3"


def test_too_much_is_a_failure_and_a_horizon_is_flagged(passcal, file):
    """Exit 1, since the input is right and has no answer; with a horizon there is one."""
    much = ("--set", "workload.rate_per_s=500")
    result = passcal("evaluate", file, *much)
    assert result.exit_code == 1
    assert "rate_per_s=500: must be below the capacity of" in result.stderr
    finite = passcal("evaluate", file, *much, "--set", "workload.horizon_requests=60", "--set", "evaluate.stop=")
    assert finite.exit_code == 0
    assert "the queue grows" in finite.stdout


REFUSED = {
    "workload.concurrency=3": "workload.concurrency=3: unknown key",
    "workload.rate_per_s=-1": "workload.rate_per_s=-1",
    "workload.cv=": "workload.cv=None: belongs to arrivals='gamma'",
    "workload.arrivals=often": "workload.cv=1.5: belongs to arrivals='gamma'",
    "workload.isl={mean: 3}": "workload.isl.law is missing: must be one of samples, strata, lognormal",
    "workload.isl={law: zipf}": "workload.isl.law='zipf': must be one of samples",
    "workload.isl={law: gamma, mean: 300}": "workload.isl.cv is missing: a gamma law needs mean, cv",
    "workload.isl={law: gamma, mean: 300, cv: -1}": "workload.isl.cv=-1",
    "workload.isl={law: uniform, low: 30, high: 20}": "workload.isl.high=20 with low=30",
    "workload.isl={law: uniform, low: 3, high: 20, mean: 4}": "workload.isl.mean=4: unknown key",
    "workload.isl={law: joint, rows: [[3, 4]]}": "give it as shapes",
    "evaluate.stop={kind: limit_cycle}": "stop=LimitCycle()",
    "evaluate.stop={kind: window, tolerance: 3}": "evaluate.stop.tolerance=3: must lie between 0 and 1",
}


@pytest.mark.parametrize("setting", REFUSED)
def test_bad_input_is_refused_by_path(passcal, file, setting):
    result = passcal("evaluate", file, "--set", setting)
    assert result.exit_code == 2, result.output
    assert REFUSED[setting] in result.stderr
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1 and len(result.stderr) < 220
