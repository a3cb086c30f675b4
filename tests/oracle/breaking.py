"""Breaking one clause of a scheduler: whether a scenario of the battery notices."""

import json
from functools import cache

from tools.oracle import simulate
from tools.oracle.schedulers import scheduler_class

from .building import ROOT


@cache
def answered(name: str) -> tuple[dict, list]:
    """A scenario of the battery and the right answer."""
    path = ROOT / "tests" / "agreement" / "scenarios" / f"{name}.json"
    asked = json.loads(path.read_text(encoding="utf-8"))
    return asked, simulate(asked)["requests"]


def shows(members: dict, name: str) -> bool:
    """Whether a scheduler with these members replaced answers something else, or nothing at all."""
    asked, right = answered(name)
    broken = type("Broken", (scheduler_class(asked["backend"]),), dict(members))
    try:
        answer = simulate(asked, scheduler=broken)["requests"]
    except (ArithmeticError, LookupError, RuntimeError, ValueError):
        return True
    return answer != right
