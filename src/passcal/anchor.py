"""TTFT where measured figures put it: the shape from the calendar, the location from Little's identity."""

from dataclasses import dataclass

import numpy as np

from passcal.distribution import Distribution
from passcal.errors import SpecError
from passcal.window import Measured

__all__ = ["Anchored", "anchored"]


@dataclass(frozen=True)
class Anchored:
    """A TTFT distribution moved as a whole, so that `C / X = mean E2E` holds with measured throughput and TPOT.

    Attributes:
        ttft_ms: the calendar's TTFT plus `shift_ms`.
        e2e_mean_ms: `C / X`, what the identity says of E2E.
        shift_ms: measured less calendar, in the mean TTFT.
        ms_per_tpot_percent: how far the mean TTFT moves for 1% of the TPOT.
        ms_per_throughput_percent: how far it moves for 1% of the throughput.
        notes: what a reader should know, one line each.
    """

    ttft_ms: Distribution
    e2e_mean_ms: float
    shift_ms: float
    ms_per_tpot_percent: float
    ms_per_throughput_percent: float
    notes: tuple[str, ...]


def anchored(ttft_ms: Distribution, parts: tuple[Measured, ...], throughput_per_s: float, tpot_ms: float) -> Anchored:
    """Move the mean TTFT to `C / X - mean(osl - 1) * TPOT`, C the clients, X requests a second.

    E2E counts from dispatch and has the turnaround in it, and a client sends its next request when the last one is done, so `C / X` is the
    mean E2E and nothing is added. A TPOT that pools all gaps is taken, which for outputs of one length is also the mean over requests.

    Raises:
        SpecError: a figure that is not above 0, or figures that leave no time for the first token.
    """
    for name, value in (("throughput_per_s", throughput_per_s), ("tpot_ms", tpot_ms)):
        if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
            raise SpecError(f"anchored({name}={value!r}): must be a number above 0; give the measured figure")
    clients = int(parts[0].state.world["clients"][0])
    gaps = float(np.mean([part.state.requests["osl"][part.rows].mean() for part in parts])) - 1
    e2e, decode = 1000.0 * clients / throughput_per_s, gaps * tpot_ms
    mean = e2e - decode
    if mean <= 0:
        raise SpecError(
            f"anchored(): {clients} clients at {throughput_per_s:g}/s stay {e2e:.6g} ms, {gaps:g} gaps of {tpot_ms:g} ms take"
            f" {decode:.6g}: no time is left for a first token; check the figures"
        )
    shift = mean - ttft_ms.mean
    moved = Distribution(ttft_ms.values + shift, ttft_ms.weights)
    return Anchored(moved, e2e, shift, decode / 100, e2e / 100, remarks(moved, mean, e2e, decode))


def remarks(moved: Distribution, mean: float, e2e: float, decode: float) -> tuple[str, ...]:
    """How much trust the difference deserves, and whether the shape still fits."""
    said = [
        f"TTFT is what is left of C/X = {e2e:.5g} ms less {decode:.5g} ms of decode: 1% of TPOT is {decode / 100:.3g} ms,"
        f" or {decode / mean:.2g}% of the mean TTFT"
    ]
    below = float(moved.weights[moved.values < 0].sum()) / moved.count
    if below:
        said.append(f"{below:.1%} of the moved TTFT lie below 0: the calendar's spread does not fit so low a mean")
    return tuple(said)
