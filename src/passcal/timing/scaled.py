"""Another model's prices times a factor, so that one pass costs what is known of it."""

from dataclasses import dataclass

from passcal.core.plan import PassShape
from passcal.errors import SpecError
from passcal.timing.base import TimingModel

__all__ = ["Scaled", "scaled_to"]


@dataclass(frozen=True)
class Scaled:
    """A pass priced by `timing`, times `factor`."""

    timing: TimingModel
    factor: float

    @property
    def pure(self) -> bool:
        """Whether answers may be kept by shape."""
        return bool(getattr(self.timing, "pure", False))

    def pass_ms(self, shape: PassShape) -> float:
        """Milliseconds of a pass of this shape."""
        return self.factor * self.timing.pass_ms(shape)


def scaled_to(timing: TimingModel, prompts: int, new: int, past: int, stated_ms: float) -> Scaled:
    """The model, scaled so that a pass of `prompts` chunks of `new` tokens behind `past` others takes `stated_ms`.

    Raises:
        SpecError: such a pass costs nothing by the model.
    """
    plain_ms = timing.pass_ms(PassShape.of(((new, past),) * prompts))
    if not plain_ms > 0:
        raise SpecError(
            f"timing: a pass of {prompts} prompts of {new} tokens costs {plain_ms} ms; it must cost something"
        )
    return Scaled(timing, stated_ms / plain_ms)
