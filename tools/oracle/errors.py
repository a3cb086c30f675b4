"""What can go wrong: a scenario that cannot be read or modelled, and a run that can never end."""


class ScenarioError(ValueError):
    """The scenario says something unknown, malformed or impossible; the message is one line."""


class Stalled(RuntimeError):
    """Requests are left, and nothing will ever happen again."""
