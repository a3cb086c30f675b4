"""Per-request results that benchmark tools save: what was sent, when, and what was measured.

    vllm bench serve    --save-result --save-detailed: one JSON object, lists with an entry a request (several objects, a line each, if appended)
    GuideLLM            benchmarks.json: one JSON object, a list of benchmarks with their requests
    aiperf              profile_export.jsonl: one JSON object a request

What failed, was cancelled or was a warm-up is left out, with a note.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from passcal.errors import TraceError
from passcal.sources.readers.clock import Columns, Spread, arranged
from passcal.sources.readers.objects import cell, decoded, objects
from passcal.sources.readers.rows import Rows
from passcal.sources.readers.source import Source, load, shown

__all__ = ["RESULT_KEYS", "read_results", "results_frame"]

RESULT_KEYS = ({"request_throughput"}, {"benchmarks"}, {"metadata", "metrics"})
"""Keys of the first object of vLLM's, GuideLLM's and aiperf's files."""
UNITS_MS = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "sec": 1000.0, "s": 1000.0}
FAILED, CANCELLED, WARMUP = "failed", "were cancelled or cut short", "were warm-ups"


@dataclass
class Found:
    """One run of a tool: a cell for each request that succeeded, and how the file calls what is in it.

    Attributes:
        called: `start`, `isl`, `osl`, `ttft`, `e2e` to the names in the file.
        units_ms: milliseconds of the units of `start`, `ttft`, `e2e`.
        unit: what `numbers` counts.
        cells: columns by the names in the file.
        ids: of the requests, where the file has them.
        numbers: of the requests in the file.
        left_out: how many of those sent are not among them, by reason.
    """

    called: dict[str, str]
    units_ms: dict[str, float]
    unit: str
    cells: dict[str, list[Any]] = field(default_factory=dict)
    ids: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)

    def leave_out(self, reason: str, count: int = 1) -> None:
        """So many requests are not among the cells."""
        self.left_out[reason] = self.left_out.get(reason, 0) + count


def read_results(path: str | os.PathLike[str], *, run: int | None = None, spread: Spread = "none") -> pd.DataFrame:
    """Read per-request results of vllm bench serve, GuideLLM or aiperf (JSON or JSON Lines, also gzip); which tool is told by the keys.

    Args:
        path: the file.
        run: which run of a file that holds several, from 0; None: it holds one.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly.

    Returns:
        One row a request that succeeded, sorted by time: `dispatch_ms` (when it was sent, the first at 0), `isl`, `prefix` (0), `osl` as a
        replay takes them, then what was measured: `measured_ttft_ms`, `measured_e2e_ms`, both from the send (NaN: not measured).
        `frame.attrs["notes"]` lists what was noticed, changed or left out.

    Raises:
        TraceError: the file or a request breaks a rule, lacks per-request figures, or holds several runs and `run` does not say which.
    """
    return results_frame(load(path), spread, run)


def results_frame(source: Source, spread: Spread, run: int | None = None) -> pd.DataFrame:
    """`read_results` on a file that is loaded already."""
    found = chosen(source, run)
    if not found.numbers:
        raise source.refusal("no request succeeded; a trace needs at least one")
    called, units_ms = found.called, found.units_ms
    rows = Rows(source, pd.DataFrame(found.cells), first=1, unit=found.unit, numbers=found.numbers)
    start_ms = rows.times(called["start"], units_ms["start"])
    isl, osl = rows.tokens(called["isl"], "isl", least=1), rows.tokens(called["osl"], "osl", least=1)
    ttft_ms, e2e_ms = (rows.durations(called[name], units_ms[name]) for name in ("ttft", "e2e"))
    rows.demand(~(e2e_ms < ttft_ms * (1 - 1e-9)), called["e2e"], "must not end before the first token; mend the times")
    if found.ids:
        rows.frame["id"] = found.ids
        rows.demand(~rows.frame["id"].duplicated().to_numpy(), "id", "must be there once; delete the copy")
    rows.settle()
    notes = [f"{count} requests {reason}: left out" for reason, count in found.left_out.items() if count]
    began = float(start_ms.min())
    if began > 0:
        notes.append(f"times count from the first request: {began:.3f} ms taken off")
    columns: Columns = {"dispatch_ms": start_ms - began, "isl": isl, "prefix": np.zeros_like(isl), "osl": osl}
    measured = {"measured_ttft_ms": pd.Series(ttft_ms), "measured_e2e_ms": pd.Series(e2e_ms)}
    return arranged({**columns, **measured}, notes, spread)


def chosen(source: Source, run: int | None) -> Found:
    """The run that is asked for."""
    first, over_lines = first_object(source)
    runs: list[Callable[[], Found]]
    if {"metadata", "metrics"} <= first.keys():
        runs = [partial(aiperf, source)]
    elif "benchmarks" in first:
        benchmarks = first["benchmarks"]
        if not isinstance(benchmarks, list) or not all(isinstance(one, dict) for one in benchmarks) or not benchmarks:
            raise source.refusal("benchmarks must be a list of objects; save the whole report as JSON", 1)
        runs = [partial(guidellm, source, one) for one in benchmarks]
    else:
        runs = [partial(vllm, source, one) for one in ([first] if over_lines else (one for _, one in objects(source)))]
    if run is None and len(runs) > 1:
        raise source.refusal(f"holds {len(runs)} runs; read_results(path, run=0) takes the first, and so on")
    if run is not None and (type(run) is not int or not 0 <= run < len(runs)):
        raise source.refusal(f"run is {shown(run)}, must be from 0 to {len(runs) - 1}")
    return runs[run or 0]()


def first_object(source: Source) -> tuple[dict[str, Any], bool]:
    """The object on the first line, or one that goes over all lines, and whether it does."""
    text = source.text.decode("utf-8")
    head, _, rest = text.partition("\n")
    over_lines = False
    try:
        found = decoded(source, head, 1)
    except TraceError:
        if not rest:
            raise
        found, over_lines = decoded(source, text, 1), True
    if not isinstance(found, dict):
        raise source.refusal(f"{shown(found)} is not a JSON object; save the whole report", 1)
    return found, over_lines


def vllm(source: Source, record: dict[str, Any]) -> Found:
    """A result of `vllm bench serve`; E2E is `latencies`, or in older files TTFT and all gaps after it."""
    found = Found(
        {"start": "start_times", "isl": "input_lens", "osl": "output_lens", "ttft": "ttfts", "e2e": "latencies"},
        {"start": 1000.0, "ttft": 1000.0, "e2e": 1000.0},
        "request",
    )
    if "latencies" not in record and isinstance(record.get("itls"), list):
        pairs = zip(record.get("ttfts") or [], record["itls"], strict=False)
        record = {**record, "latencies": [summed(ttft, gaps) for ttft, gaps in pairs]}
    lists: dict[str, list[Any]] = {}
    for name in (*found.called.values(), "errors"):
        column = record.get(name, [""] * len(lists["start_times"]) if name == "errors" else None)
        if not isinstance(column, list):
            raise source.refusal(
                f"{name} is {shown(column)}, must be a list with an entry a request; save with --save-detailed"
            )
        lists[name] = column
        if len(column) != len(lists["start_times"]):
            raise source.refusal(
                f"{name} has {len(column)} entries, start_times has {len(lists['start_times'])}; mend the file"
            )
    errors = lists.pop("errors")
    kept = [at for at, error in enumerate(errors) if not error]
    found.leave_out(FAILED, len(errors) - len(kept))
    found.numbers = [at + 1 for at in kept]
    found.cells = {name: [cell(column[at]) for at in kept] for name, column in lists.items()}
    return found


def summed(ttft: Any, gaps: Any) -> Any:
    """TTFT and the gaps after it, or what is no number among them."""
    parts = [ttft, *gaps] if isinstance(gaps, list) else [ttft, gaps]
    strange = [part for part in parts if type(part) not in (int, float)]
    return strange[0] if strange else sum(parts)


def guidellm(source: Source, benchmark: dict[str, Any]) -> Found:
    """A benchmark of GuideLLM's report: its successful requests."""
    found = Found(
        {
            "start": "request_start_time",
            "isl": "prompt_tokens",
            "osl": "output_tokens",
            "ttft": "time_to_first_token_ms",
            "e2e": "request_latency",
        },
        {"start": 1000.0, "ttft": 1.0, "e2e": 1000.0},
        "request",
    )
    requests = benchmark.get("requests")
    listed = requests.get("successful") if isinstance(requests, dict) else None
    if not isinstance(requests, dict) or not isinstance(listed, list):
        raise source.refusal("requests.successful must be a list; save the report with its requests")
    for reason, kind in ((FAILED, "errored"), (CANCELLED, "incomplete")):
        found.leave_out(reason, len(requests.get(kind) or []))
    found.cells = {name: [] for name in found.called.values()}
    for number, request in enumerate(listed, start=1):
        if not isinstance(request, dict):
            raise source.refusal(f"{shown(request)} is not a JSON object; mend the report", number, "request")
        add(source, found, request, number)
        found.ids.append(str(request.get("request_id", number)))
    return found


def aiperf(source: Source) -> Found:
    """Records of aiperf's export: those of the profiling phase that succeeded."""
    found = Found(
        {
            "start": "request_start_ns",
            "isl": "input_sequence_length",
            "osl": "output_sequence_length",
            "ttft": "time_to_first_token",
            "e2e": "request_latency",
        },
        {"start": 1e-6, "ttft": 1.0, "e2e": 1.0},
        "line",
    )
    found.cells = {name: [] for name in found.called.values()}
    for line, record in objects(source):
        metadata, metrics = record.get("metadata"), record.get("metrics")
        if not isinstance(metadata, dict) or not isinstance(metrics, dict):
            raise source.refusal("metadata and metrics must be objects; mend or delete the line", line)
        reason = FAILED if record.get("error") else CANCELLED if metadata.get("was_cancelled") else None
        if reason or metadata.get("benchmark_phase", "profiling") != "profiling":
            found.leave_out(reason or WARMUP)
            continue
        values = {name: value_ms(source, name, metric, line) for name, metric in metrics.items() if name in found.cells}
        values.setdefault("time_to_first_token", None)
        add(source, found, {"request_start_ns": metadata.get("request_start_ns"), **values}, line)
        found.ids.append(str(metadata.get("x_request_id") or line))
    return found


def value_ms(source: Source, name: str, metric: Any, line: int) -> Any:
    """The value of a metric, times in milliseconds."""
    if not isinstance(metric, dict) or "value" not in metric:
        raise source.refusal(f"{name} is {shown(metric)}, must be an object with value and unit", line)
    value, unit = cell(metric["value"]), metric.get("unit")
    if isinstance(value, str) or name.endswith("sequence_length"):
        return metric["value"]
    if unit not in UNITS_MS:
        raise source.refusal(f"unit of {name} is {shown(unit)}, must be one of {', '.join(UNITS_MS)}", line)
    return value * UNITS_MS[unit]


def add(source: Source, found: Found, values: dict[str, Any], number: int) -> None:
    """A request, if it has all that is needed."""
    for name, column in found.cells.items():
        if name not in values:
            raise source.refusal(f"{name} is missing; save the report with per-request figures", number, found.unit)
        column.append(cell(values[name]))
    found.numbers.append(number)
