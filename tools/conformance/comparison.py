"""Run a recorded case and say in words where the answer departs from the recording."""

from dataclasses import dataclass
from typing import Any

import numpy as np

import passcal as pc
from tools.conformance.adapters import asked
from tools.conformance.recordings import Case

__all__ = ["Outcome", "compare", "differences"]

TOLERANCE = 1e-6  # relative; a recording keeps six decimals of a millisecond
ROUNDING_MS = 1e-6


@dataclass(frozen=True)
class Outcome:
    """What became of a case: `refused` says why it was not run, `found` lists departures."""

    name: str
    refused: str | None = None
    found: tuple[str, ...] = ()
    passes: int = 0

    @property
    def agrees(self) -> bool:
        """Whether it ran and nothing departs."""
        return self.refused is None and not self.found


def compare(case: Case) -> Outcome:
    """Run one case."""
    try:
        report = pc.evaluate(*asked(case))
    except pc.Unsupported as refusal:
        return Outcome(case["name"], refused=str(refusal))
    return Outcome(case["name"], found=tuple(differences(case, report)), passes=len(case["passes"]["end_ms"]))


def differences(case: Case, report: pc.Report) -> list[str]:
    """Departures in first and last tokens, preemptions, and the number, ends and loads of passes.

    A recorded closed loop starts without the turnaround that ours applies to the first burst too, so ours is earlier by as much.
    """
    ahead = case["traffic"].get("turnaround_ms", 0.0) if case["traffic"].get("mode") != "open" else 0.0
    requests, passes = report.requests(), report.passes()
    recorded, ran = case["requests"], case["passes"]
    found = []
    if "preemptions" in recorded:
        found += departures("preemptions", requests["preemptions"], recorded["preemptions"])
    for name in case["traffic"].keys() & {"pauses", "retractions"}:  # of all requests together
        found += departures(name, [requests["preemptions"].sum()], [case["traffic"][name]])
    for name in ("first_ms", "done_ms"):
        found += departures(name, requests[name] - ahead, recorded[name])
    if len(passes) != len(ran["end_ms"]):
        return [*found, f"{len(passes)} passes, recorded {len(ran['end_ms'])}"]
    found += departures("end_ms of pass", passes["end_ms"] - ahead, ran["end_ms"])
    for ours, theirs in (
        ("prefill_tokens", "prefill_tokens"),
        ("prefill_requests", "prefill_chunks"),
        ("decode_requests", "decode_rows"),
    ):
        found += departures(f"{theirs} of pass", passes[ours], ran[theirs])
    return found


def departures(name: str, ours: Any, theirs: Any) -> list[str]:
    """The first place where two columns part, and how many there are."""
    ours, theirs = np.asarray(ours, float), np.asarray(theirs, float)
    if ours.shape != theirs.shape:
        return [f"{name}: {len(ours)} values, recorded {len(theirs)}"]
    apart = np.flatnonzero(~np.isclose(ours, theirs, rtol=TOLERANCE, atol=ROUNDING_MS))
    if not len(apart):
        return []
    at = apart[0]
    return [f"{name} {at}: {ours[at]:.6f}, recorded {theirs[at]:.6f} ({len(apart)} of {len(ours)} differ)"]
