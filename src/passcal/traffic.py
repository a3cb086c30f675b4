"""Laws of lengths and arrivals to rows: what is dealt to clients, and when requests of an open loop are sent."""

import math
from typing import Any

import numpy as np

from passcal.errors import SpecError
from passcal.sources.streams import ISL, ORDER, attainable, gamma_levels, generator, paired, strata, unit_gaps
from passcal.spec.lengths import Gamma, Joint, Lengths, Lognormal, Mix, Strata, Uniform
from passcal.spec.open_loop import OpenLoop
from passcal.spec.rows import ASKED, check_lengths
from passcal.spec.workload import ARRIVALS, Replay

__all__ = ["arrivals", "dealt", "tier", "whole_period"]

DEALT = 8192  # rows that stand for a law in a closed loop, so that no order comes twice in a usual window
SHAPE = np.dtype([(name, "i8") for name in ASKED])


def dealt(shapes: Any, count: int = DEALT) -> Any:
    """Rows of what requests ask for, to deal in this order: as listed, or `count` strata of a law, of which one if all are alike."""
    if isinstance(shapes, Joint):
        known = np.array(list(shapes.rows), SHAPE)
        rng = generator(ORDER)
        rows = known[(strata(count, rng) * len(known)).astype(np.int64)]
        rng.shuffle(rows)
    elif isinstance(shapes, Mix):
        rows = mixed(shapes, count)
    else:
        return np.array(list(shapes), SHAPE)
    return rows[:1] if (rows == rows[0]).all() else rows


def mixed(mix: Mix, count: int) -> Any:
    """Rows of a law for prompts and one for outputs."""
    rng = generator(ISL)
    isl, osl = tokens(mix.isl, strata(count, rng)), tokens(mix.osl, strata(count, rng))
    rows = np.zeros(count, SHAPE)
    rows["isl"], rows["osl"], rows["prefix"] = isl, paired(isl, osl, mix.correlation), mix.prefix
    rows["group"], rows["pinned"], rows["most"] = -1, -1, rows["osl"]
    reach = attainable(isl, osl, mix.correlation) if mix.correlation else 0.0
    if abs(mix.correlation - reach) > count**-0.5:
        raise SpecError(f"correlation={mix.correlation}: these lengths reach {reach:.2f} at most; bring it nearer to 0")
    check_lengths(rows["isl"], rows["prefix"], rows["osl"], "stratum ")
    generator(ORDER).shuffle(rows)
    return rows


def tokens(law: Lengths, levels: Any) -> Any:
    """A law's quantiles at ascending levels, as whole tokens, at least one."""
    if isinstance(law, Strata):
        upto = np.cumsum(law.weights)
        at = np.searchsorted(upto, levels * upto[-1], side="right")
        return np.array(law.tokens)[np.minimum(at, len(upto) - 1)]
    if isinstance(law, Uniform):
        return law.low + (levels * (law.high - law.low + 1)).astype(np.int64)
    assert isinstance(law, Lognormal | Gamma)
    if law.cv == 0:
        values = np.full(len(levels), law.mean)
    elif isinstance(law, Gamma):
        values = gamma_levels(law.cv**-2, levels) * (law.mean * law.cv**2)
    else:
        from scipy.special import ndtri

        width = math.sqrt(math.log1p(law.cv**2))
        values = law.mean * np.exp(width * ndtri(levels) - width**2 / 2)
    return np.maximum(np.rint(values), 1).astype(np.int64)


def arrivals(workload: OpenLoop, count: int, before: int = 0, after: int = 0) -> Replay:
    """`count` requests of an open loop, with the last ones of the same period before them and its first ones after them."""
    gaps = np.asarray(workload.gaps_ms) if workload.gaps_ms else unit_gaps(count, spread(workload))
    rows, at = dealt(workload.shapes, count), np.arange(-before, count + after) % count
    table = np.empty(len(at), ARRIVALS)
    table["dispatch_ms"] = np.cumsum(gaps[at % len(gaps)]) * (1000.0 / (workload.rate_per_s * gaps.mean()))
    dealt_now = rows[at % len(rows)] if len(rows) > 1 else rows
    for name in SHAPE.names or ():
        table[name] = dealt_now[name]
    table.flags.writeable = False
    plane = {name: getattr(workload, name) for name in ("turnaround_ms", "ingest_us_per_token")}
    return Replay.model_construct(rows=table, **plane)


def spread(workload: OpenLoop) -> float:
    """The coefficient of variation of the gaps."""
    return {"constant": 0.0, "poisson": 1.0}.get(workload.arrivals, workload.cv or 0.0)


def whole_period(workload: OpenLoop, count: int, most: int) -> int:
    """`count`, or the least number above it in which all listed gaps and rows come equally often, if that is not above `most`."""
    listed = 1 if isinstance(workload.shapes, Lengths) else len(workload.shapes)
    period = math.lcm(len(workload.gaps_ms or (0,)), listed)
    return -(-count // period) * period if period <= most else count


def tier(shapes: Any) -> str | None:
    """The traffic tier that these lengths ask for, above that of fixed ones; None for those."""
    if isinstance(shapes, Lengths):
        return "W3" if isinstance(shapes, Joint) else "W2"
    return "W2" if len(set(shapes)) > 1 else None
