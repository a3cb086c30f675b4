"""Parts of a vLLM worker that have several numbers."""

from pydantic import model_validator

from passcal.errors import SpecError
from passcal.spec.base import Duration, Share, Spec, Tokens

__all__ = ["Launch", "Speculation"]


class Launch(Spec):
    """What the host takes to launch a pass, beside the GPU: it moves no pass, but arrivals are seen and tokens leave later (V14).

    Attributes:
        decode_ms: of a pass without prompt chunks, up to the capture size.
        piecewise_ms: of a pass with prompt chunks, up to it.
        eager_ms: of a pass with more tokens than the capture size.
        max_cudagraph_capture_size: most tokens, drafts included, of a pass that is not eager.
        eager_queue_fraction: part of an eager pass that must have run before its launch can end.
        detokenizer_ms: what a token then takes in the detokenizer, one at a time.
    """

    decode_ms: Duration
    piecewise_ms: Duration
    eager_ms: Duration
    max_cudagraph_capture_size: Tokens
    eager_queue_fraction: Share = 0.0
    detokenizer_ms: Duration = 0.0


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
