"""What no evaluation of a candidate can better: the most it serves, and the least its latencies are, in steady state.

Counting arguments only, of limit cycles. An engine runs one pass at a time, so a request costs it its own work and its share of what passes cost once, which at most
`min(clients, seats)` rows or `budget` prompt tokens divide between them; and a client's turn is no shorter than that of one who is alone. The bracket
on the p99 of TTFT is the screener's.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from passcal.screening.tables import ALTERNATING, TRTLLM, VLLM
from passcal.spec.sla import Floor, Sla, Target

__all__ = [
    "Bounds",
    "apart_bounds",
    "break_together",
    "breaks",
    "keeps_for_sure",
    "no_bounds",
    "steady_bounds",
    "with_cycles",
]

ROUNDING = 1e-9
SLACK = 1e-7  # of a cycle that was gone through
SHORTEST = 500  # requests of a window at least, or two a client: half of what `stopping.Window` logs of several stages may be skipped
NOTHING = (np.inf, 0.0, 0.0, 0.0, 0.0, 0.0, np.inf, 1.0, 0.0, np.inf, np.inf)  # what is known where nothing is


class Bounds(NamedTuple):
    """Arrays over candidates; infinite or 0 where nothing is known.

    Attributes:
        most_per_s: requests a second, at most.
        ttft_ms, tpot_ms, gap_ms: of any request or gap, at least.
        mean_tpot_ms: of the mean, at least.
        p99_low_ms, p99_high_ms: of the p99 of TTFT.
        osl: outputs of a request.
        e2e_mean_ms: at least: by Little, clients divided by the most that is served.
        longest_ttft_ms, longest_gap_ms: of any request or gap, at most.
        figures: what each target is about where the candidate's cycle is known, else NaN; a row a candidate.
    """

    most_per_s: Any
    ttft_ms: Any
    tpot_ms: Any
    gap_ms: Any
    mean_tpot_ms: Any
    p99_low_ms: Any
    p99_high_ms: Any
    osl: Any
    e2e_mean_ms: Any
    longest_ttft_ms: Any
    longest_gap_ms: Any
    figures: Any


def no_bounds(count: int, targets: int = 0) -> Bounds:
    """Nothing known of any candidate, for so many targets."""
    return Bounds._make([*(np.full(count, nothing) for nothing in NOTHING), np.full((count, targets), np.nan)])


def steady_bounds(c: Any, replicas: Any, low: Any, high: Any, targets: int = 0) -> Bounds:
    """Of `CANDIDATE` rows whose prices are exact.

    Args:
        c: the rows.
        replicas: workers of each.
        low, high: the screener's bracket.
        targets: how many there are.
    """
    seats, more = np.minimum(c["clients"], c["seats"]), c["osl"] - 1.0
    attention = c["a2"] * c["past"] * c["new"] + np.minimum(c["a2"] * 0.5, c["a3"]) * c["new"] ** 2
    prompt, rows = c["a1"] * c["new"] + attention, more * (c["d1"] + c["d2"] * (c["isl"] + c["osl"] * 0.5))
    prompts, steps = c["new"] / c["budget"], more / seats  # its share of passes
    saved = np.where(c["calendar"] == ALTERNATING, 0.0, c["saved_ms"]) * np.minimum(prompts, steps)
    apart = prompt + prompts * c["a0"], rows + steps * c["d0"]
    busy = np.where(c["overlaps"] > 0, np.maximum(*apart), apart[0] + apart[1] - saved)
    ttft = c["think_ms"] + np.ceil(prompts) * c["a0"] + prompt
    turn = ttft + more * c["d0"] + rows
    with np.errstate(divide="ignore"):
        most = 1000.0 * np.minimum(replicas / busy, c["clients"] / turn) * (1.0 + ROUNDING)
    tpot, gap = c["d0"] + rows / np.maximum(more, 1.0), c["d0"] + c["d1"] + c["d2"] * (c["isl"] + 1.0)
    one, known = replicas == 1, (c["covered"] > 0) & (c["proven"] > 0)
    longest = longest_ms(c)
    found = Bounds(
        most_per_s=most,
        ttft_ms=ttft * (1.0 - ROUNDING),
        tpot_ms=np.where(more > 0, tpot * (1.0 - ROUNDING), 0.0),
        gap_ms=np.where(more > 0, gap * (1.0 - ROUNDING), 0.0),
        mean_tpot_ms=np.where(more > 0, tpot * (1.0 - ROUNDING), 0.0),
        p99_low_ms=np.where(one, low, 0.0),
        p99_high_ms=np.where(one, high, np.inf),
        osl=c["osl"],
        e2e_mean_ms=np.where(one, 1000.0 * c["clients"] / most, 0.0),
        longest_ttft_ms=np.where(one, longest[0], np.inf),
        longest_gap_ms=np.where(one, longest[1], np.inf),
        figures=np.full((len(c), targets), np.nan),
    )
    return where_known(known, found)


def where_known(known: Any, found: Bounds) -> Bounds:
    """These bounds, where they hold."""
    *arrays, figures = found
    held = [np.where(known, here, nothing) for here, nothing in zip(arrays, NOTHING, strict=True)]
    return Bounds._make([*held, figures])


def with_cycles(bounds: Bounds, rows: Any, cycles: Any) -> Bounds:
    """What cycles of some rows say, too: requests a second, mean TPOT, then what each target is about."""
    met = ~np.isnan(cycles[:, 0])
    rows, cycles = rows[met], cycles[met]
    most, tpot, figures = bounds.most_per_s.copy(), bounds.mean_tpot_ms.copy(), bounds.figures.copy()
    most[rows] = cycles[:, 0] * (1.0 + SLACK)
    tpot[rows] = np.fmax(tpot[rows], cycles[:, 1] * (1.0 - SLACK))
    figures[rows] = cycles[:, 2:]
    return bounds._replace(most_per_s=most, mean_tpot_ms=tpot, figures=figures)


def apart_bounds(p: Any, d: Any, h: Any, targets: int = 0) -> Bounds:
    """Of prefill and decode apart: each stage serves no more than its workers can, and nobody's turn is shorter than that of one who is alone.

    Where memory binds it only adds work, so it need not be known. A hand-off whose chunks are sent as they are computed has its latency left for sure.
    Where no cycle is found early a window is measured, and those who were under way when it began (at most all clients) are served with less.

    Args:
        p, d: `CANDIDATE` rows of the pools.
        h: `HOP` rows.
        targets: how many there are.
    """
    more, goes = h["osl"] - 1.0, (h["osl"] > 1) | (h["first_token"] > 0)
    prompt = p["a1"] * p["new"] + p["a2"] * p["past"] * p["new"] + np.minimum(p["a2"] * 0.5, p["a3"]) * p["new"] ** 2
    shares = np.maximum(p["new"] / p["budget"], 1.0 / np.minimum(np.minimum(p["seats"], h["inflight"]), p["clients"]))
    rows = more * (d["d1"] + d["d2"] * (d["isl"] + h["osl"] * 0.5))
    steps = more / np.minimum(d["seats"], d["clients"])
    sent = np.where(goes, h["bytes"] / h["capacity"], 0.0)
    hand_off = np.where(goes, h["latency_ms"], 0.0) + np.where(h["transfer_start"] == 0, sent, 0.0)
    first = p["think_ms"] + np.ceil(p["new"] / p["budget"]) * p["a0"] + prompt
    turn = first + hand_off + more * d["d0"] + rows
    with np.errstate(divide="ignore"):
        served = np.minimum(h["sources"] / (prompt + shares * p["a0"]), h["sinks"] / (rows + steps * d["d0"]))
        served = np.minimum(served, np.minimum(h["sources"], h["sinks"]) / sent)
        most = 1000.0 * np.minimum(served, p["clients"] / turn) * (1.0 + ROUNDING)
    window = np.maximum(SHORTEST, 2.0 * p["clients"])
    most *= window / (window - p["clients"])
    ttft = (first + np.where(h["first_token"] > 0, hand_off, 0.0)) * (1.0 - ROUNDING)
    tpot = np.where(more > 0, (d["d0"] + rows / np.maximum(more, 1.0)) * (1.0 - ROUNDING), 0.0)
    known = (p["covered"] > 0) & (d["covered"] > 0) & (p["exact"] > 0) & (d["exact"] > 0)
    found = no_bounds(len(h), targets)._replace(
        most_per_s=most,
        ttft_ms=ttft,
        tpot_ms=tpot,
        mean_tpot_ms=tpot,
        gap_ms=np.where(more > 0, (d["d0"] + d["d1"] + d["d2"] * (d["isl"] + 1.0)) * (1.0 - ROUNDING), 0.0),
        p99_low_ms=ttft,
        osl=h["osl"],
        e2e_mean_ms=turn * (1.0 - ROUNDING),
    )
    return where_known(known, found)


def longest_ms(c: Any) -> tuple[Any, Any]:
    """A TTFT and a gap, at most, where all clients have seats and a pass has room for prompts whatever rows it has.

    All other prompts go first: every pass until then is full of prompt tokens but for the rows, a unit that chunks are cut to and, once a prompt, a rest.
    A gap is one pass, or all passes with prompts where these pause the rows.
    """
    room = c["budget"] - c["clients"] - c["unit"]
    roomy = (c["clients"] <= c["seats"]) & (room >= c["budget"] / 2)
    prices = c["a1"] + c["a2"] * c["isl"] + c["a3"] * c["new"]
    full = c["a0"] + c["d0"] + c["budget"] * prices + c["clients"] * (c["d1"] + c["d2"] * (c["isl"] + c["osl"]))
    passes = c["clients"] * (c["new"] / np.maximum(room, 1.0) + 1.0) + 3.0
    ttft = np.where(roomy, c["think_ms"] + passes * full, np.inf)
    return ttft, np.where((c["calendar"] == VLLM) | (c["calendar"] == TRTLLM), full, ttft + full)


def break_together(targets: Sequence[Target], bounds: Bounds) -> Any:
    """Where all targets cannot hold at once: a mean E2E is a mean TTFT and the mean gaps, and what the targets allow is shorter than it can be."""
    more = np.maximum(bounds.osl - 1.0, 0.0)
    first, gap = bounds.longest_ttft_ms, np.where(more > 0, bounds.longest_gap_ms, 0.0)
    longest = first + np.maximum(more, 1.0) * gap
    whole = longest
    for target in targets:
        if isinstance(target, Floor):
            continue
        if target.metric == "ttft":
            first = np.minimum(first, mean_allowed(target, bounds.longest_ttft_ms))
        elif target.metric in ("tpot", "itl"):
            gap = np.minimum(gap, mean_allowed(target, bounds.longest_gap_ms))
        elif target.metric == "e2e":
            whole = np.minimum(whole, mean_allowed(target, longest))
    return bounds.e2e_mean_ms * (1.0 - ROUNDING) > np.minimum(whole, first + np.maximum(more, 1.0) * gap)


def mean_allowed(target: Sla, longest: Any) -> Any:
    """The mean of a latency that keeps a target, at most: so many at the limit, the others as long as can be."""
    if isinstance(target.quantile, str) or target.quantile == 1:
        return target.limit_ms
    return target.quantile * target.limit_ms + (1.0 - target.quantile) * longest


def breaks(targets: Sequence[Target], at: int, bounds: Bounds) -> Any:
    """Where one of the targets is broken for sure."""
    target, figure = targets[at], bounds.figures[:, at]
    if isinstance(target, Floor):
        most = bounds.most_per_s * (1.0 if target.metric == "throughput_rps" else bounds.osl)
        return most < target.limit
    late = target.quantile != "mean" and float(target.quantile) >= 0.99
    first = np.maximum(bounds.ttft_ms, bounds.p99_low_ms) if late else bounds.ttft_ms
    least = {
        "ttft": first,
        "e2e": first + (bounds.osl - 1.0) * bounds.tpot_ms,
        "tpot": bounds.tpot_ms,
        "itl": bounds.gap_ms,
        "queue": bounds.ttft_ms * 0.0,
    }
    return np.fmax(least[target.metric], figure * (1.0 - SLACK)) > target.limit_ms


def keeps_for_sure(targets: Sequence[Target], at: int, bounds: Bounds) -> Any:
    """Where one of the targets is kept for sure."""
    target, figure = targets[at], bounds.figures[:, at]
    if isinstance(target, Floor):
        return figure * (1.0 - SLACK) >= target.limit
    more = np.maximum(bounds.osl - 1.0, 0.0)
    gap = np.where(more > 0, bounds.longest_gap_ms, 0.0)
    first, p99 = bounds.longest_ttft_ms, np.minimum(bounds.longest_ttft_ms, bounds.p99_high_ms)
    if target.quantile == "mean":
        ttft = np.where(first < np.inf, 0.99 * p99 + 0.01 * first, np.inf)
    else:
        ttft = p99 if float(target.quantile) <= 0.99 else first
    most = {"ttft": ttft, "queue": ttft, "e2e": first + np.where(more > 0, more * gap, 0.0), "tpot": gap, "itl": gap}
    return np.fmin(most[target.metric] * (1.0 + ROUNDING), figure * (1.0 + SLACK)) <= target.limit_ms
