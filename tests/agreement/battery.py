"""The shared scenarios, and what both sides say to one."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from passcal import errors
from passcal.gate import compare
from passcal.scenario import answer
from tools import oracle

SCENARIOS = Path(__file__).parent / "scenarios"
NAMES = tuple(sorted(path.stem for path in SCENARIOS.glob("*.json")))


@cache
def scenario(name: str) -> dict[str, Any]:
    """A scenario by name."""
    return json.loads((SCENARIOS / f"{name}.json").read_text(encoding="utf-8"))


@cache
def answered(name: str) -> dict[str, Any]:
    """What passcal answers to it; raises `Unsupported` where it models something not."""
    return answer(scenario(name))


@cache
def differences(name: str) -> list[str]:
    """What the gate has against it."""
    return compare(answered(name), oracle.simulate(scenario(name)))


def disagreements(asked: dict[str, Any]) -> list[str]:
    """Where both sides differ; a refusal must be shared. Raises `Unsupported` where passcal models something not."""
    try:
        ours = answer(asked)
    except (errors.SpecError, errors.Stalled) as refusal:
        try:
            oracle.simulate(asked)
        except (oracle.ScenarioError, oracle.Stalled):
            return []
        return [f"refused here, answered by the oracle: {refusal}"]
    try:
        return compare(ours, oracle.simulate(asked))
    except (oracle.ScenarioError, oracle.Stalled) as refusal:
        return [f"answered here, refused by the oracle: {refusal}"]
