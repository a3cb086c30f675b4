"""Two stages broken one rule at a time, and the battery notices."""

import pytest

from tools.oracle.errors import Stalled

from .breaking import answered
from .wrong_tandem import TANDEM


@pytest.mark.parametrize("rule", TANDEM)
def test_a_broken_rule_shows(rule: str):
    """Another answer, or none at all."""
    wrong = TANDEM[rule]
    asked, right = answered(wrong.witness)
    try:
        assert wrong.answer(asked)["requests"] != right
    except Stalled:
        return
