"""Why a prediction misses: what the fit could not see, how errors grow over a run, and what a small change does."""

from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

import passcal as pc
from tools.validation.fit import Fitted, fit, replay_error
from tools.validation.held_out import BANDS, Half, as_predicted, utilisation
from tools.validation.lives import asked, replay
from tools.validation.tables import QUANTILES, figures, markdown, number

__all__ = ["sections"]

SPLITS = 6
MOVED_MS, MOVES = 1.0, 100


def sections(halves: list[Half]) -> dict[str, str]:
    """The evidence, by name."""
    found = {"seen": markdown(SEEN_HEAD, [row for one in halves for row in seen(one)])}
    found["emptier"] = markdown(EMPTIER_HEAD, [row for one in halves for row in emptier(one)])
    for one in halves:
        found[f"{one.log.gpu}-in-time"] = markdown(TIME_HEAD, in_time(one))
    limited = next(one for one in halves if one.log.engine.num_gpu_blocks is not None)
    return found | {"gap": markdown(GAP_HEAD, gap(limited)), "moved": markdown(MOVED_HEAD, moved(limited))}


# ---- what the fit could not see

SEEN_HEAD = ("run", "passes with decode rows", "n", "rows, 5-95%", "context tokens, 5-95%", "correlation")


def seen(one: Half) -> list[list[str]]:
    """Decode rows and their contexts in the passes that the first half lived through, and in those after."""
    passes, told = one.calendar.passes, one.calendar.requests
    until = told["done_ms"][one.log.fitted].max()
    rows = []
    for name, those in {
        "until the first half is done": passes["end_ms"] <= until,
        "after": passes["end_ms"] > until,
    }.items():
        decode = passes[those & (passes["decode_requests"] > 0)]
        sizes, contexts = decode["decode_requests"], decode["decode_kv_tokens"]
        ranges = ["-".join(number(value) for value in column.quantile([0.05, 0.95])) for column in (sizes, contexts)]
        rows.append([one.log.name if not rows else "", name, str(len(decode)), *ranges, f"{sizes.corr(contexts):.2f}"])
    return rows


EMPTIER_HEAD = ("run", "coefficients from", "d0 ms", "d1 us", "d2 ns", *(f"TPOT p50, {band}" for band in BANDS))


def emptier(one: Half) -> list[list[str]]:
    """TPOT of the second half by band, with its own coefficients too; those are a diagnosis and predict nothing."""
    own = fit(one.log.requests, one.log.engine, ~one.log.fitted)
    return [
        emptier_row(one, one.log.name, "first half", one.fitted),
        emptier_row(one, "", "second half (diagnosis)", own),
    ]


def emptier_row(one: Half, name: str, source: str, fitted: Fitted) -> list[str]:
    """Coefficients of decode passes, and the error of the median TPOT in each band."""
    told = as_predicted(replay(one.log.requests, one.log.engine, fitted.timing))["tpot"]
    share, (d0, d1, d2) = utilisation(one.log), fitted.timing.decode
    errors = []
    for low, high in BANDS.values():
        those = ~one.log.fitted & (share >= low) & (share < high)
        errors.append(f"{100 * (told[those].median() / one.measured['tpot'][those].median() - 1):+.1f}%")
    return [name, source, number(d0), number(1e3 * d1), number(1e6 * d2), *errors]


# ---- errors over a run

TIME_HEAD = ("first token measured at", "n", "its median error", "largest", "TPOT, median error", "seats in use")


def in_time(one: Half) -> list[list[str]]:
    """Errors request by request, over the run; and how far the seats in use are off."""
    first = one.log.requests["first_ms"]
    late = one.calendar.requests["first_ms"] - first
    slow = np.abs(one.predicted["tpot"] / one.measured["tpot"] - 1)
    seats, rows = seats_apart(one), []
    for begin, end in pairwise(np.linspace(0, float(first.max()) * (1 + 1e-9), SPLITS + 1)):
        those = (first >= begin) & (first < end)
        apart = seats["apart"][seats["end_ms"].between(begin, end)].mean()
        errors = (
            f"{late[those].median():+,.0f} ms",
            f"{late[those].abs().max():,.0f} ms",
            f"{100 * slow[those].median():.2f}%",
        )
        rows.append([f"{begin / 1e3:.0f}-{end / 1e3:.0f} s", str(those.sum()), *errors, f"{apart:+.1f}"])
    return rows


def seats_apart(one: Half) -> pd.DataFrame:
    """Second by second: decode rows of the pass under way in the replay, less the requests that the log says were running."""
    passes, load = one.calendar.passes, one.log.load
    at = np.minimum(np.searchsorted(passes["end_ms"], load["end_ms"]), len(passes) - 1)
    rows = passes["decode_requests"].to_numpy()[at]
    return pd.DataFrame({"end_ms": load["end_ms"], "apart": rows - load["running"].to_numpy()})


# ---- where the p90 falls

GAP_HEAD = (
    "second half",
    "admitted before the gap",
    "last TTFT before it",
    "first behind it",
    "TTFT p50",
    "TTFT p90",
    "first tokens over 3 s off, of 300",
    "error on the first half",
)
BLOCKS = {"predicted": 0.0, "1% fewer blocks": -0.01, "1% more blocks": 0.01, "1.5% more blocks": 0.015}
FAR_MS = 3000.0


def gap(one: Half) -> list[list[str]]:
    """The widest gap between successive TTFTs above their median: prompts enter in bursts, when long requests leave.

    Also with a few KV blocks more or less, the timing being the same.
    """
    was, second = one.measured["ttft"], ~one.log.fitted
    rows = [["measured", *place(was[second].to_numpy()), "", "", "", ""]]
    for name, more in BLOCKS.items():
        engine = one.log.engine.model_copy(update={"num_gpu_blocks": round((1 + more) * one.log.engine.num_gpu_blocks)})
        calendar = replay(one.log.requests, engine, one.fitted.timing)
        told = as_predicted(calendar)["ttft"]
        errors = (figures(told[second]) / figures(was[second]) - 1)[1:3]
        far = str(int((np.abs(told - was) > FAR_MS).sum()))
        error = replay_error(one.log.requests, calendar, one.log.fitted)
        cells = (*place(told[second].to_numpy()), *(f"{100 * e:+.1f}%" for e in errors), far, f"{100 * error:.1f}%")
        rows.append([name, *cells])
    return rows


def place(values: np.ndarray[Any, Any]) -> list[str]:
    """Where the gap is."""
    ttft = np.sort(values)
    middle = len(ttft) // 2
    at = middle + int(np.argmax(np.diff(ttft[middle:])))
    return [f"{at + 1} of {len(ttft)}", f"{ttft[at] / 1e3:.1f} s", f"{ttft[at + 1] / 1e3:.1f} s"]


# ---- what a small change does

MOVED_HEAD = (
    "second half",
    "measured",
    "predicted",
    f"arrivals moved by up to {MOVED_MS:g} ms, least to most of {MOVES}",
)


def moved(one: Half) -> list[list[str]]:
    """What remains of the figures when every arrival is moved by less than the clocks are known to agree."""
    draw = np.random.default_rng(0)
    second, requests = ~one.log.fitted, one.log.requests
    found = []
    for _ in range(MOVES):
        shift = draw.uniform(-MOVED_MS, MOVED_MS, len(requests))
        other = requests.assign(dispatch_ms=np.maximum(requests["dispatch_ms"] + shift, 0.0))
        told = pc.evaluate_replay(asked(other), one.log.engine, one.fitted.timing)
        found.append(both(told.requests(), second))
    was = np.concatenate([figures(one.measured[metric][second]) for metric in ("ttft", "tpot")])
    names = [f"{metric} {figure}, ms" for metric in ("TTFT", "TPOT") for figure in ("mean", *QUANTILES)]
    columns = (names, was, both(one.calendar.requests, second), np.min(found, axis=0), np.max(found, axis=0))
    return [[name, number(a), number(b), f"{number(c)}-{number(d)}"] for name, a, b, c, d in zip(*columns, strict=True)]


def both(told: pd.DataFrame, second: Any) -> np.ndarray[Any, Any]:
    """Figures of TTFT and TPOT."""
    told = told[second]
    tpot = (told["done_ms"] - told["first_ms"]) / (told["osl"] - 1)
    return np.concatenate([figures(told["first_ms"] - told["dispatch_ms"]), figures(tpot)])
