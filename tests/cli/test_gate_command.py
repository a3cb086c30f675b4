"""`passcal gate`: the table, the first disagreement, the exit code."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "tests" / "agreement" / "scenarios"


@pytest.mark.slow
def test_agreement_is_exit_0(passcal, tmp_path):
    """And what is not modelled is told, not counted as agreed."""
    asked = json.loads((SCENARIOS / "sglang_lpm_together_sync.json").read_text(encoding="utf-8"))
    drafting = tmp_path / "drafting.json"
    drafting.write_text(json.dumps(asked | {"name": "drafting", "engine": {"speculation": 3}}), encoding="utf-8")
    result = passcal("gate", "--root", ROOT, SCENARIOS / "vllm_linear_sum_sync.json", drafting)
    assert result.exit_code == 0, result.output
    assert "1/2" in result.stdout and "not modelled here" in result.stdout
    assert "unsupported drafting: " in result.stdout


def test_disagreement_is_exit_1(passcal, monkeypatch):
    """With the first one of each scenario in full."""

    def wrong(file, root):
        asked = json.loads(file.read_text(encoding="utf-8"))
        from passcal.scenario import answer

        answered = answer(asked)
        answered["requests"][0]["token_ms"][0] += 1
        return answered

    monkeypatch.setattr("passcal.gate.ask_oracle", wrong)
    result = passcal("gate", "--root", ROOT, SCENARIOS / "vllm_linear_sum_sync.json")
    assert result.exit_code == 1
    assert "0/1" in result.stdout and "vllm_linear_sum_sync: request 0, token 0 (1 of " in result.stdout


@pytest.mark.parametrize("where", ["outside", "absent file", "no JSON"])
def test_bad_input(passcal, tmp_path, monkeypatch, where):
    """Exit 2 in one line."""
    file = tmp_path / "scenario.json"
    if where == "outside":
        monkeypatch.chdir(tmp_path)
        result, told = passcal("gate"), "run it inside a checkout"
    else:
        if where == "no JSON":
            file.write_text("{", encoding="utf-8")
        result, told = passcal("gate", "--root", ROOT, file), "scenario.json"
    assert result.exit_code == 2 and told in result.stderr and len(result.stderr.splitlines()) == 1


@pytest.mark.slow
def test_it_finds_the_checkout_upward(passcal, monkeypatch):
    """From any folder in it."""
    monkeypatch.chdir(SCENARIOS)
    assert passcal("gate", "vllm_floor_sync.json").exit_code == 0
