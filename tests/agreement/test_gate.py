"""passcal and the oracle, which share no code, agree on the time of every token to 1e-9."""

import copy
import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from passcal.errors import SpecError
from passcal.gate import Outcome, ask_oracle, checkout_root, compare, judge, run, scenario_files
from passcal.scenario import answer
from tools import oracle

from .battery import NAMES, SCENARIOS, answered, differences, disagreements, scenario
from .drawn import scenarios
from .drawn_apart import apart
from .mutants import MUTANTS

ROOT = Path(__file__).parents[2]
SLOW = {"vllm_512_512_c128_b4096_sync", "vllm_512_512_c128_b4096_async"}


def cases(names):
    """Scenarios as parameters, the long ones marked."""
    return [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in names]


@pytest.mark.parametrize("name", cases(NAMES))
def test_scenario(name: str):
    """Every request, every token, every pass."""
    assert differences(name) == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_drawn_scenarios(asked):
    """Hypothesis finds no disagreement."""
    assert disagreements(asked) == []


@pytest.mark.slow
@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(scenarios())
def test_many_drawn_scenarios(asked):
    """Nor when it looks for longer."""
    assert disagreements(asked) == []


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(apart())
def test_drawn_scenarios_apart(asked):
    """With prefill and decode apart neither."""
    assert disagreements(asked) == []


@pytest.mark.slow
@settings(max_examples=1500, suppress_health_check=[HealthCheck.too_slow])
@given(apart())
def test_many_drawn_scenarios_apart(asked):
    """Nor there when it looks for longer."""
    assert disagreements(asked) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_a_broken_clause_fails_the_gate(name: str):
    """The right oracle agrees on the witness, the wrong one does not, or cannot finish it."""
    mutant = MUTANTS[name]
    assert differences(mutant.witness) == []
    try:
        wrong = mutant.answer(scenario(mutant.witness))
    except oracle.Stalled:
        return
    assert compare(answered(mutant.witness), wrong)


def test_every_kind_of_difference_is_told():
    """A change of any single figure is found, and named."""
    right = answered("vllm_linear_sum_sync")
    assert compare(right, copy.deepcopy(right)) == []
    for name in ("dispatch_ms", "visible_ms", "admitted_ms", "isl", "prefix", "osl", "cached", "preemptions"):
        wrong = copy.deepcopy(right)
        wrong["requests"][3][name] += 1
        assert f"request 3: {name} is" in compare(right, wrong)[0]
    for name in right["passes"][7]:
        wrong = copy.deepcopy(right)
        wrong["passes"][7][name] += 1
        line = compare(right, wrong)[0]
        assert "pass 7" in line and (
            name in line or name == "engine"
        )  # a pass of another engine is missed at its place


def test_one_token_is_enough():
    """The first wrong token of a request is told, with how many more there are; the tolerance is relative."""
    right = answered("vllm_linear_sum_sync")
    wrong = copy.deepcopy(right)
    wrong["requests"][5]["token_ms"][2] *= 1 + 2e-9
    (line,) = compare(right, wrong)
    assert line.startswith("request 5, token 2 (1 of ")
    wrong["requests"][5]["token_ms"][2] = right["requests"][5]["token_ms"][2] * (1 + 5e-10)
    assert compare(right, wrong) == []
    wrong["requests"][5]["token_ms"].pop()
    assert "request 5: tokens is" in compare(right, wrong)[0]


def test_missing_requests_and_passes_are_told():
    """Requests are joined on their number; passes are counted."""
    right = answered("vllm_linear_sum_sync")
    wrong = copy.deepcopy(right)
    wrong["requests"] = wrong["requests"][::-1]
    assert compare(right, wrong) == []
    del wrong["requests"][0]
    assert "is only in ours" in compare(right, wrong)[0]
    wrong = {**right, "passes": right["passes"][:-1]}
    assert "run: passes is" in compare(right, wrong)[0]


def test_run_asks_the_oracle_in_a_process_of_its_own(tmp_path):
    """Outcomes come in the order of the files; what passcal has not is told, not skipped."""
    text = (SCENARIOS / "sglang_lpm_together_sync.json").read_text(encoding="utf-8")
    drafting = tmp_path / "drafting.json"
    drafting.write_text(
        json.dumps(json.loads(text) | {"name": "drafting", "engine": {"speculation": 3}}), encoding="utf-8"
    )
    first, second = run([SCENARIOS / "vllm_linear_sum_sync.json", drafting], ROOT)
    assert first == Outcome("vllm_linear_sum_sync", "agreed")
    assert (second.name, second.verdict) == ("drafting", "unsupported")


def test_verdicts_of_refusals(tmp_path):
    """Both refuse: no disagreement. One refuses: one."""
    file = tmp_path / "impossible.json"
    text = (SCENARIOS / "vllm_kv_tight_sync.json").read_text(encoding="utf-8")
    file.write_text(text.replace('"num_gpu_blocks": ', '"num_gpu_blocks": 2, "block_size": '), encoding="utf-8")
    outcome = judge(file, lambda f: ask_oracle(f, ROOT))
    assert outcome.verdict == "refused" and len(outcome.details) == 2
    assert judge(file, lambda f: {}).verdict == "differs"

    def refuses(_):
        raise SpecError("no")

    assert judge(SCENARIOS / "vllm_linear_sum_sync.json", refuses).details == (
        "answered here, refused by the oracle: no",
    )
    file.write_text("{", encoding="utf-8")
    with pytest.raises(SpecError, match=r"impossible\.json"):
        judge(file, refuses)


def test_where_the_checkout_is(tmp_path):
    """Upward from any folder in it; elsewhere it is asked for."""
    assert checkout_root(SCENARIOS) == ROOT
    assert len(scenario_files(ROOT)) == len(NAMES)
    with pytest.raises(SpecError, match="--root"):
        checkout_root(tmp_path)
    with pytest.raises(SpecError, match=r"no \*\.json"):
        scenario_files(tmp_path)


def test_the_oracle_knows_nothing_of_passcal():
    """Asked for its modules, the oracle's process names none of the package."""
    code = (
        "import sys, tools.oracle.__main__; sys.exit(any(m.split('.')[0] in ('passcal', 'numpy') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


BROKEN = {
    "scenario.colour": lambda s: s.update(colour=1),
    "workload.colour": lambda s: s["workload"].update(colour=1),
    "workload.mode": lambda s: s["workload"].update(mode="open"),
    "workload.shapes": lambda s: s["workload"].update(shapes=[]),
    "workload.shapes.0": lambda s: s["workload"]["shapes"].__setitem__(0, [1, 2]),
    "workload.shapes.0.osl": lambda s: s["workload"]["shapes"].__setitem__(0, [5, 0, 0]),
    "workload.shapes.0.isl": lambda s: s["workload"]["shapes"].__setitem__(0, [5.5, 0, 1]),
    "workload.requests is missing": lambda s: s["workload"].pop("requests"),
    "timing.kind": lambda s: s["timing"].update(kind="roofline"),
    "timing.prefill": lambda s: s["timing"].update(prefill=[1, 2]),
    "timing.floor": lambda s: s["timing"].update(floor=1),
    "no option 'colour'": lambda s: s["engine"].update(colour=1),
    "backend": lambda s: s.update(backend="unheard"),
    "name": lambda s: s.update(name=""),
}


@pytest.mark.parametrize("told", BROKEN)
def test_a_malformed_scenario_is_refused_by_path(told: str):
    """In one line, and by the oracle too."""
    asked = copy.deepcopy(scenario("vllm_linear_sum_sync"))
    BROKEN[told](asked)
    with pytest.raises(SpecError) as refusal:
        answer(asked)
    assert told in str(refusal.value) and len(str(refusal.value)) < 200 and "\n" not in str(refusal.value)
    with pytest.raises(oracle.ScenarioError):
        oracle.simulate(asked)
