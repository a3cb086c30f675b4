"""Parts of a vLLM worker that have several numbers."""

from pydantic import model_validator

from passcal.errors import SpecError
from passcal.spec.base import Duration, Spec, Tokens

__all__ = ["Speculation"]


class Speculation(Spec):
    """Drafts that decode rows verify (V16).

    Attributes:
        drafts: tokens proposed a pass and row; 0 is no speculation.
        accepted: of these, in the mean: whole ones always, the fraction spread evenly over a request's passes.

    Raises:
        SpecError: more accepted than proposed.
    """

    drafts: Tokens
    accepted: Duration

    @model_validator(mode="after")
    def _rules(self) -> "Speculation":
        if self.accepted > self.drafts:
            raise SpecError(
                f"accepted={self.accepted}: must be at most drafts={self.drafts}; lower the one or raise the other"
            )
        return self
