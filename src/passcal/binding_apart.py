"""Which limit binds where prefill and decode are apart: the last place on a request's way where requests wait."""

from collections.abc import Sequence

import numpy as np

from passcal.binding import BUSY, OFTEN, Binding, spending
from passcal.passes import Usage
from passcal.splits import hand_off_times, legs_at, staging_wait
from passcal.timing.base import TimingModel
from passcal.window import Measured

__all__ = ["binding_apart"]

LADEN = 0.9  # of a worker's bandwidth, or of its transfers


def binding_apart(part: Measured, usages: Sequence[Usage], timings: Sequence[TimingModel], closed: bool) -> Binding:
    """What waits in front of a stage may be held up behind it, so the last stage is asked first: seats of `decode`, its memory (`staging`), the
    `fabric`, then `prefill`; if none has a queue, what decode passes spend their time on.
    """
    length, stages = part.window.length_ms or float("inf"), part.state.stages
    prefill, decode = usages[-2], usages[-1]
    seats = decode.seats_ms / (length * stages["ranks"][-1])
    if seats > OFTEN:
        return Binding(
            "decode", f"seats keep hand-offs waiting {seats:.0%} of the time; give decode more seats or workers"
        )
    staged = float(staging_wait(part).sum()) / (length * stages["ranks"][-1])
    if staged > OFTEN:
        return Binding(
            "staging", f"{staged:.2g} hand-offs wait for memory of a decode rank; give it more KV, or fewer seats (D6)"
        )
    laden = fabric_share(part)
    if laden > LADEN:
        return Binding("fabric", f"transfers take {laden:.0%} of what a worker's link can do; give it more bandwidth")
    held = max(prefill.kv_ms, prefill.seats_ms, prefill.budget_ms) / (length * stages["ranks"][-2])
    busy = prefill.busy_ms / (length * stages["ranks"][-2])
    if held > OFTEN or busy > BUSY:
        return Binding(
            "prefill", f"prompts wait {held:.0%} of the time, and prefill is busy {busy:.0%} of it; add workers"
        )
    if not decode.busy_ms:
        return Binding("clients", "decode passes cost nothing")
    if decode.busy_ms < BUSY * length * stages["ranks"][-1]:
        idle = 1 - decode.busy_ms / (length * stages["ranks"][-1])
        return Binding("clients", f"requests seldom wait, and decode idles {idle:.0%} of the time")
    return spending(decode, timings[-1], closed)


def fabric_share(part: Measured) -> float:
    """The share of its bandwidth, or of the transfers that it may have under way, that the busiest worker's end uses."""
    hop, stages, length = part.state.hops[-1], part.state.stages, part.window.length_ms
    times, table = hand_off_times(part), part.state.requests[part.rows]
    went = ~np.isnan(times["transfer_done_ms"])
    if not length or not went.any():
        return 0.0
    prefill = legs_at(part, len(stages) - 2)["engine"][went]
    tokens = table["isl"][went] - (np.minimum(table["prefix"], table["isl"] - 1)[went] if hop["missing"] else 0)
    took = (times["transfer_done_ms"] - times["transfer_start_ms"])[went]
    shares = [tokens * hop["bytes"] / hop["capacity"] / length]
    if hop["most"]:
        shares.append(took / hop["most"] / length)
    ends = (
        (prefill - stages["first"][-2]) // stages["width"][-2],
        (times["decode_engine"][went] - stages["first"][-1]) // stages["width"][-1],
    )
    rate = part.done / len(table)  # of a window: requests done in it, for each of its own
    return max(float(np.bincount(end, share).max()) for end in ends for share in shares) * rate
