"""Breaking one clause of a scheduler, a worker or a router: whether a scenario of the battery notices."""

import json
from functools import cache

from tools.oracle import simulate
from tools.oracle.deployment import worker_class
from tools.oracle.routing import ROUTERS
from tools.oracle.schedulers import scheduler_class

from .building import ROOT


@cache
def answered(name: str) -> tuple[dict, list]:
    """A scenario of the battery and the right answer."""
    path = ROOT / "tests" / "agreement" / "scenarios" / f"{name}.json"
    asked = json.loads(path.read_text(encoding="utf-8"))
    return asked, simulate(asked)["requests"]


def part_of(asked: dict, part: str) -> type:
    """The class that a scenario asks for, as its scheduler, worker or router."""
    if part == "router":
        return ROUTERS[asked.get("deployment", {}).get("routing", "round_robin")]
    scheduler = scheduler_class(asked["backend"])
    return worker_class(scheduler(asked["engine"])) if part == "worker" else scheduler


def shows(members: dict, name: str, part: str = "scheduler") -> bool:
    """Whether a part with these members replaced answers something else, or nothing at all."""
    asked, right = answered(name)
    broken = type("Broken", (part_of(asked, part),), dict(members))
    try:
        answer = simulate(asked, **{part: broken})["requests"]
    except (ArithmeticError, LookupError, RuntimeError, ValueError):
        return True
    return answer != right
