"""A report as a terminal table, a JSON object or a line of CSV."""

import csv
import io
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passcal.errors import SpecError
from passcal.files import check_target

if TYPE_CHECKING:
    from rich.console import Console

    from passcal.gate import Outcome
    from passcal.report import Report

__all__ = [
    "as_csv",
    "as_json",
    "as_record",
    "as_text",
    "check_outputs",
    "figure",
    "plain",
    "print_gate",
    "print_report",
]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
ROWS = {"TTFT": "ttft_ms", "ITL": "itl_ms", "TPOT": "tpot_ms", "E2E": "e2e_ms", "queue": "queue_ms"}
VERDICTS = {
    "agreed": "agreed",
    "unsupported": "not modelled here",
    "refused": "refused by both sides",
    "differs": "differ",
}
WINDOWS = {"cycle": "limit cycle (exact)", "window": "window", "drained": "whole run"}


def figure(value: float) -> str:
    """Four significant digits, never as a power of ten; a dash where nothing was measured."""
    if not math.isfinite(value):
        return "-"
    digits = 3 - (math.floor(math.log10(abs(value))) if value else 0)
    return f"{round(value, digits):,.{max(0, digits)}f}" if digits < 9 else "0"


def print_report(report: "Report", console: "Console", notes: Iterable[str] = ()) -> None:
    """Latencies as a table, parts of the hand-off among them where there is one, then rates, the window, what binds, and notes."""
    from rich.table import Table

    table = Table("ms", "mean", *QUANTILES, title="Latency", title_justify="left", pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    rows = {label: getattr(report, name) for label, name in ROWS.items()}
    for label, measured in {**rows, **report.hand_off_ms}.items():
        table.add_row(label, figure(measured.mean), *map(figure, measured.quantiles(QUANTILES.values())))
    console.print(table)
    window, binding = report.window, report.binding
    lines = {
        "throughput": f"{figure(report.throughput_per_s)} requests/s, {figure(report.output_tokens_per_s)} output tokens/s",
        "start-up": f"TTFT mean {figure(report.startup_ttft_ms.mean)} ms, max {figure(report.startup_ttft_ms.max)} ms",
        "window": f"{WINDOWS[window.kind]}: {window.requests:,} requests, {window.passes:,} passes, {figure(window.length_ms)} ms",
        "interval": f"95%: TTFT mean ± {figure(window.half_width_ms)} ms, p99 ± {figure(window.p99_half_width_ms)} ms",
        "capacity": f"{figure(report.capacity_per_s)} requests/s, where the queue is never empty",
        "busy": ", ".join(f"{stage} {share:.0%}" for stage, share in report.stage_utilisation.items()) + " of the time",
        "staging": f"{report.staging_stalls:,} hand-offs waited for memory of the decode side",
        "binding": f"{binding}: {binding.why}",
        "KV": f"{report.block_utilisation:.0%} held on average, {report.block_utilisation_peak:.0%} at most",
        "evicted": f"{report.preemptions:,} times, {report.recomputed_tokens:,} tokens computed again"
        f" ({report.wasted_prefill_share:.0%} of prompt tokens)",
    }
    if not report.startup_ttft_ms.count:
        del lines["start-up"]
    if not window.half_width_ms:
        del lines["interval"]
    if not report.hand_off_ms:
        del lines["busy"]
    if not report.staging_stalls:
        del lines["staging"]
    if math.isnan(report.capacity_per_s):
        del lines["capacity"]
    if math.isnan(report.block_utilisation):
        del lines["KV"]
    if not report.preemptions:
        del lines["evicted"]
    for label, text in lines.items():
        console.print(f"{label:<11}{text}", highlight=False, markup=False, soft_wrap=True)
    for note in (*report.notes, *notes):
        console.print(f"{'note':<11}{note}", highlight=False, markup=False, soft_wrap=True)


def print_gate(outcomes: list["Outcome"], console: "Console") -> None:
    """How many agree, every scenario that does not, and the first disagreement in full."""
    from rich.table import Table

    counts = {verdict: [o for o in outcomes if o.verdict == verdict] for verdict in VERDICTS}
    table = Table("scenarios", "count", title="Gate: passcal against the oracle", title_justify="left", pad_edge=False)
    table.columns[1].justify = "right"
    table.add_row("agreed, every token", f"{len(counts['agreed'])}/{len(outcomes)}")
    for verdict, label in VERDICTS.items():
        if verdict != "agreed" and counts[verdict]:
            table.add_row(label, str(len(counts[verdict])))
    console.print(table)
    for verdict in ("unsupported", "refused", "differs"):
        for outcome in counts[verdict]:
            more = f" (and {len(outcome.details) - 1} more)" if verdict == "differs" and outcome.details[1:] else ""
            line = f"{verdict:<12}{outcome.name}: {outcome.details[0]}{more}"
            console.print(line, highlight=False, markup=False, soft_wrap=True)


def as_json(report: "Report", notes: Iterable[str] = ()) -> str:
    """`as_record` as text."""
    return as_text(as_record(report, notes))


def as_text(record: dict[str, Any]) -> str:
    """JSON, indented."""
    return json.dumps(record, indent=2, allow_nan=False) + "\n"


def as_record(report: "Report", notes: Iterable[str] = ()) -> dict[str, Any]:
    """The columns of the report by name, with why the limit binds, the window and the notes; NaN is null."""
    columns = {name: plain(value) for name, value in report.to_columns().items()}
    window = {name: plain(value) for name, value in vars(report.window).items()}
    more = {"binding_why": report.binding.why, "window": window, "capacity_per_s": plain(report.capacity_per_s)}
    more["notes"] = [*report.notes, *notes]
    return {**columns, **more}


def plain(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, str) or value is None:
        return str(value) if isinstance(value, str) else None
    if isinstance(value, int):
        return value
    return float(value) if math.isfinite(value) else None


def as_csv(report: "Report") -> str:
    """The columns of the report: a header and one line; NaN is an empty cell."""
    text, columns = io.StringIO(), report.to_columns()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerow(["" if plain(value) is None else plain(value) for value in columns.values()])
    return text.getvalue()


def check_outputs(json: bool, csv: str | None) -> None:
    """Refuse, before any work is done, outputs that cannot be delivered; `-` is standard output.

    Raises:
        SpecError: both go there, or the file could not be written.
    """
    if json and csv == "-":
        raise SpecError("--json, --csv -: both go to standard output; give --csv a file")
    check_target(None if csv in (None, "-") else Path(str(csv)), "--csv")
