"""Report to pandas: frames, and the one list of column names. pandas is imported where a frame is made: an answer without one does not wait for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from passcal import samples
from passcal.splits import HAND_OFF, apart, hand_off_times
from passcal.tokens import pass_table
from passcal.window import Measured

if TYPE_CHECKING:
    import pandas as pd

    from passcal.report import Report
    from passcal.spec.sla import Target
    from passcal.trials import Point

__all__ = [
    "COLUMNS",
    "PASS_COLUMNS",
    "QUANTILES",
    "REQUEST_COLUMNS",
    "pass_frame",
    "point_frame",
    "request_frame",
    "to_columns",
    "turn_frame",
]

QUANTILES = {"p50": 0.5, "p75": 0.75, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
REQUEST_COLUMNS = (
    "request",
    "dispatch_ms",
    "visible_ms",
    "admitted_ms",
    "first_ms",
    "done_ms",
    "isl",
    "prefix",
    "osl",
    "preemptions",
)
PASS_COLUMNS = (
    "engine",
    "start_ms",
    "end_ms",
    "prefill_tokens",
    "prefill_requests",
    "decode_requests",
    "decode_kv_tokens",
)
COLUMNS = (
    *(f"ttft_steady_{name}" for name in ("mean", *QUANTILES)),
    "ttft_steady_p99_lo",
    "ttft_steady_p99_hi",
    "ttft_transient_mean",
    "ttft_transient_max",
    "itl_mean",
    "itl_p50",
    "itl_p99",
    "queueing_tier",
    *(f"{metric}_{name}" for metric in ("tpot", "e2e", "queue") for name in ("mean", *QUANTILES)),
    "throughput_rps",
    "output_tokens_per_s",
    "window_kind",
    "fidelity",
    "binding",
    "preemptions",
    "recomputed_tokens",
    "wasted_prefill_share",
    "kv_utilisation",
    *(f"{name}_mean" for name in HAND_OFF),
    "staging_stalls",
)


def to_columns(report: Report) -> dict[str, Any]:
    """The columns of one report, in the order of `COLUMNS`."""
    levels = tuple(QUANTILES.values())
    ttft = report.ttft_ms.quantiles(levels)
    p99, half = ttft[4], report.window.p99_half_width_ms
    itl50, itl99 = report.itl_ms.quantiles((0.5, 0.99))
    startup = report.startup_ttft_ms
    values: list[Any] = [report.ttft_ms.mean, *ttft, max(0.0, p99 - half), p99 + half, startup.mean, startup.max]
    values += [report.itl_ms.mean, itl50, itl99, "quantitative"]
    for metric in (report.tpot_ms, report.e2e_ms, report.queue_ms):
        values += [metric.mean, *metric.quantiles(levels)]
    values += [
        report.throughput_per_s,
        report.output_tokens_per_s,
        report.window.kind,
        report.fidelity,
        str(report.binding),
        report.preemptions,
        report.recomputed_tokens,
        report.wasted_prefill_share,
        report.block_utilisation,
        *(report.hand_off_ms[name].mean if report.hand_off_ms else 0.0 for name in HAND_OFF),
        report.staging_stalls,
    ]
    return dict(zip(COLUMNS, values, strict=True))


def request_frame(parts: tuple[Measured, ...]) -> pd.DataFrame:
    """One row a request of the window, in dispatch order.

    Further columns where they apply: `session`, `turn` and `call` (0: the turn's own request), and `worker`, `rank` (of its worker) and
    `phase` where there are several; and with prefill and decode apart those of `splits.hand_off_times`, `transfer_ms` and `decode_worker`
    (-1: it never went over).
    """
    import pandas as pd

    frames = []
    for part in parts:
        table, stage = part.state.requests[part.rows], part.state.stages[0]
        numbers = np.arange(part.first_id, part.first_id + len(table))
        columns = {"request": numbers, **{name: table[name] for name in REQUEST_COLUMNS[1:]}}
        if samples.has_turns(part):
            sent = part.state.turns[part.state.origins[part.rows]]
            calls = ("call",) if sent["call"].any() else ()
            columns |= {"session": sent["lane"]} | {name: sent[name] for name in ("turn", *calls)}
        if stage["workers"] > 1:
            columns["worker"] = table["engine"] // stage["width"]
        if stage["width"] > 1:
            columns["rank"] = table["engine"] % stage["width"]
        if apart(part):
            columns |= hand_off_columns(part)
        frames.append(pd.DataFrame(columns))
    return joined(frames)


def hand_off_columns(part: Measured) -> dict[str, Any]:
    """How each request of the window went over to the decode pool."""
    times, stage = hand_off_times(part), part.state.stages[-1]
    engine = times.pop("decode_engine")
    worker = np.where(engine < 0, -1, (engine - stage["first"]) // stage["width"])
    return {**times, "transfer_ms": times["transfer_done_ms"] - times["transfer_start_ms"], "decode_worker": worker}


def turn_frame(part: Measured) -> pd.DataFrame:
    """One row a turn of the sessions, by session and turn."""
    import pandas as pd

    return pd.DataFrame(samples.turn_table(part))


def pass_frame(parts: tuple[Measured, ...]) -> pd.DataFrame:
    """One row a pass of the window, by start and then by engine; a column `phase` if there are several."""
    import pandas as pd

    return joined([pd.DataFrame(pass_table(part))[list(PASS_COLUMNS)] for part in parts])


def point_frame(points: Sequence[Point], sla: Sequence[Target]) -> pd.DataFrame:
    """One row a load of a search for capacity, ascending; a column a target, by its word."""
    import pandas as pd

    from passcal.targets import written

    rows = [
        {
            "load": point.load,
            "throughput_rps": point.throughput_rps,
            **dict(zip(map(written, sla), point.figures, strict=True)),
            "ttft_p99_half_width_ms": point.half_width_ms,
            "kept": point.kept,
            "violated": " ".join(map(written, point.violated)),
            "queueing_tier": point.queueing_tier,
        }
        for point in sorted(points, key=lambda point: point.load)
    ]
    names = [
        "load",
        "throughput_rps",
        *map(written, sla),
        "ttft_p99_half_width_ms",
        "kept",
        "violated",
        "queueing_tier",
    ]
    return pd.DataFrame(rows, columns=list(dict.fromkeys(names))).astype({"kept": "boolean"})


def joined(frames: list[pd.DataFrame]) -> pd.DataFrame:
    """One frame of all phases."""
    import pandas as pd

    if len(frames) == 1:
        return frames[0]
    return pd.concat([frame.assign(phase=k) for k, frame in enumerate(frames)], ignore_index=True)
