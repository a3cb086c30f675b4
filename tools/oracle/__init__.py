"""The oracle: a second, independent answer to the question that passcal answers.

It reads a scenario (`tests/agreement/scenarios/README.md`), lives through it event by event and reports the time of
every output token. It shares no code with `src`; speed is given up for a formalism in which each rule of an engine
stands alone, named by its clause (V1, V2, ...), so that a rule can be broken on purpose.
"""

from tools.oracle.errors import ScenarioError, Stalled
from tools.oracle.simulation import simulate

__all__ = ["ScenarioError", "Stalled", "simulate"]
