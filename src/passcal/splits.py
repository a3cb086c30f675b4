"""Where the time to a request's first token goes, and what moving its KV takes: array functions of the log (D2)."""

from typing import Any

import numpy as np

from passcal.core.tandem_tables import FIRST_DECODE_PASS, FIRST_PREFILL
from passcal.window import Measured

__all__ = [
    "HAND_OFF",
    "SPLIT",
    "apart",
    "hand_off",
    "hand_off_times",
    "legs_at",
    "staging_stalls",
    "staging_wait",
    "ttft_split",
]

SPLIT = ("plane", "queue", "encode", "prefill", "hold", "transfer", "attach", "first_pass")
HAND_OFF = ("hold", "transfer", "attach")


def apart(part: Measured) -> bool:
    """Whether prompts move with their KV."""
    return len(part.state.stages) > 1 and not part.state.hops["fresh"][-1]


def legs_at(part: Measured, stage: int) -> Any:
    """The legs of the window's requests at a stage."""
    stages = len(part.state.stages)
    return part.state.legs[part.rows.start * stages + stage : part.rows.stop * stages : stages]


def hand_off_times(part: Measured) -> dict[str, Any]:
    """Of each request of the window: when its prefill ended, its memory was asked for and granted, its transfer began and ended, and a decode
    pass first carried it (ms; NaN where it never went over); and the decode rank.
    """
    stages = len(part.state.stages)
    prefill, decode = legs_at(part, stages - 2), legs_at(part, stages - 1)
    hand = part.state.hands[part.rows.start * (stages - 1) + stages - 2 : part.rows.stop * (stages - 1) : stages - 1]
    went = hand["end_ms"] >= 0.0
    times = {"prefill_done_ms": prefill["done_ms"]}
    for name, source in (
        ("asked_ms", hand["asked_ms"]),
        ("granted_ms", hand["granted_ms"]),
        ("transfer_start_ms", hand["start_ms"]),
        ("transfer_done_ms", hand["end_ms"]),
        ("attach_ms", decode["admitted_ms"]),
    ):
        times[name] = np.where(went, source, np.nan)
    times["decode_engine"] = np.where(went, decode["engine"], -1)
    return times


def hand_off(part: Measured) -> dict[str, Any]:
    """Of each request of the window that went over (ms): `hold`, from the end of its prefill to its transfer; `transfer`; `attach`, from there to
    the first decode pass that carries it.
    """
    times = hand_off_times(part)
    done, start, end = times["prefill_done_ms"], times["transfer_start_ms"], times["transfer_done_ms"]
    begins = np.maximum(start, done)  # chunks may be sent before
    spans = {"hold": begins - done, "transfer": end - begins, "attach": times["attach_ms"] - end}
    return {name: span[~np.isnan(end)] for name, span in spans.items()}


def ttft_split(part: Measured) -> dict[str, Any]:
    """The TTFT of each request of the window in parts (ms), which add up to it; all of `SPLIT`, zeros where a part does not apply."""
    state, stages = part.state, len(part.state.stages)
    table = state.requests[part.rows]
    parts = {name: np.zeros(len(table)) for name in SPLIT}
    parts["plane"] = table["visible_ms"] - table["dispatch_ms"]
    parts["queue"] = table["admitted_ms"] - table["visible_ms"]
    if not apart(part):
        begun = legs_at(part, stages - 1)["admitted_ms"]
        parts["encode"], parts["prefill"] = begun - table["admitted_ms"], table["first_ms"] - begun
        return parts
    times = hand_off_times(part)
    parts["prefill"] = times["prefill_done_ms"] - table["admitted_ms"]
    if stages > 2:
        begun = legs_at(part, stages - 2)["admitted_ms"]
        parts["encode"] = begun - table["admitted_ms"]
        parts["prefill"] = times["prefill_done_ms"] - begun
    where = state.hops["first_token"][-1]
    if where == FIRST_PREFILL:
        return parts
    begins = np.maximum(times["transfer_start_ms"], times["prefill_done_ms"])
    parts["hold"], parts["transfer"] = begins - times["prefill_done_ms"], times["transfer_done_ms"] - begins
    parts["attach"] = times["attach_ms"] - times["transfer_done_ms"]
    if where == FIRST_DECODE_PASS:
        parts["first_pass"] = table["first_ms"] - times["attach_ms"]
    return parts


def staging_wait(part: Measured) -> Any:
    """How long each hand-off of the window waited for memory of its decode rank (ms; D6)."""
    times = hand_off_times(part)
    waited = times["granted_ms"] - times["asked_ms"]
    return waited[~np.isnan(waited)]


def staging_stalls(part: Measured) -> int:
    """Hand-offs of the window that had to wait for memory."""
    if not apart(part):
        return 0
    return int((staging_wait(part) > 0.0).sum())
