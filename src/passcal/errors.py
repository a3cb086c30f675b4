"""Every exception of the package, one for each remedy.

Each message is one line under 200 characters: the value, the rule, the remedy. Each class subclasses a builtin, so code
that knows nothing of passcal still catches what it expects.
"""

__all__ = ["Diverged", "NotConverged", "SpecError", "Stalled", "TimingError", "TraceError", "Unsupported"]


class SpecError(ValueError):
    """A value breaks a rule of the model: change the value."""


class Unsupported(ValueError):
    """A valid wish that this backend or version does not model: choose the alternative that the message names."""


class TraceError(SpecError):
    """A row of a trace file cannot be read: mend the file at the line that the message names."""


class TimingError(ValueError):
    """A timing model answered with something that is not a duration: mend the model for the shape that is named."""


class Diverged(RuntimeError):
    """Offered load is at or above capacity, so an unbounded run has no answer: lower the rate or bound the run."""


class Stalled(RuntimeError):
    """The engine can never run what waits at its queue's head: enlarge the resource that is named."""


class NotConverged(RuntimeError):
    """Neither a limit cycle nor a drift-free window was found within the stated limits: raise the limits."""
