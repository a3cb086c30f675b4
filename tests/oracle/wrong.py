"""An oracle with one rule broken, whatever class of it the rule is a method of."""

from dataclasses import dataclass
from typing import Any

import pytest

from tools.oracle import simulate

Json = dict[str, Any]


@dataclass(frozen=True)
class Break:
    """A class of the oracle, what replaces its members, and the scenario of the battery that must tell."""

    part: type
    members: dict[str, Any]
    witness: str

    def answer(self, scenario: Json) -> Json:
        """The wrong answer; the class is whole again afterwards."""
        with pytest.MonkeyPatch.context() as patch:
            for member, replacement in self.members.items():
                patch.setattr(self.part, member, replacement)
            return simulate(scenario)
