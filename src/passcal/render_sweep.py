"""Tables of candidates on a terminal, as JSON, CSV or Parquet."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from passcal.files import check_frame_target, write_frame
from passcal.render import as_text, check_outputs, figure, plain

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

__all__ = ["Outputs", "deliver_screen", "deliver_sweep"]

SHOWN = {  # columns of the table on a terminal, and their titles
    "output_tokens_per_s": "tokens/s",
    "output_tokens_per_s_per_gpu": "a GPU",
    "output_tokens_per_s_per_user": "a user",
    "goodput_rps": "goodput/s",
    "ttft_steady_p99": "TTFT p99",
    "itl_p99": "ITL p99",
    "e2e_p99": "E2E p99",
    "regime": "regime",
    "pareto": "front",
}
BEST = 10  # rows of a screen on a terminal


class Outputs(NamedTuple):
    """Where a table goes: files, or `-` for standard output."""

    json: bool
    csv: str | None
    parquet: Path | None
    quiet: bool

    def check(self) -> None:
        """Refuse what cannot be delivered, before any work is done."""
        check_outputs(self.json, self.csv)
        check_frame_target(self.parquet, "--parquet", True)

    def write(self, frame: "pd.DataFrame") -> None:
        """The files."""
        if self.csv is not None and self.csv != "-":
            write_frame(Path(self.csv), "--csv", frame, False)
        if self.parquet is not None:
            write_frame(self.parquet, "--parquet", frame, True)
        if self.csv == "-":
            frame.to_csv(sys.stdout, index=False, lineterminator="\n")


def deliver_sweep(found: "pd.DataFrame", candidates: "pd.DataFrame", outputs: Outputs, console: "Console") -> None:
    """The best rows, and what became of all candidates."""
    outputs.write(found)
    counts, notes = found.attrs["counts"], found.attrs["notes"]
    lines = [*told(counts), *notes]
    if outputs.json:
        sys.stdout.write(as_text({"counts": counts, "notes": notes, "rows": records(found)}))
    elif outputs.csv != "-":
        print_rows(found, varying(candidates), f"{len(found)} best", console)
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
    elif not outputs.quiet:
        sys.stderr.writelines(f"note: {line}\n" for line in lines)


def deliver_screen(screened: "pd.DataFrame", candidates: "pd.DataFrame", outputs: Outputs, console: "Console") -> None:
    """All rows, of which a terminal shows those with most tokens a second."""
    outputs.write(screened)
    if outputs.json:
        sys.stdout.write(as_text({"rows": records(screened)}))
    elif outputs.csv != "-":
        best = screened.sort_values("output_tokens_per_s", ascending=False, kind="stable").head(BEST)
        print_rows(best, varying(candidates), f"{len(best)} of {len(screened):,} candidates by tokens/s", console)


def told(counts: dict[str, Any]) -> list[str]:
    """What became of all candidates, in lines."""
    lines = [
        f"{counts['candidates']:,} candidates: {counts['rejected_by_bracket']:,} rejected by the bracket, {counts['refined']:,} evaluated, "
        f"{counts['rejected_by_evaluator']:,} of them rejected, {counts['confirmed']:,} confirmed; {counts['cannot_better']:,} cannot better the best"
    ]
    for kind in ("unsupported", "errors"):
        lines += [f"{count:,} {kind}: {why}" for why, count in counts[kind].items()]
    return lines


def varying(candidates: "pd.DataFrame") -> list[str]:
    """Columns in which candidates differ."""
    return [name for name in candidates.columns if len(set(map(repr, candidates[name]))) > 1]


def print_rows(frame: "pd.DataFrame", names: Sequence[str], title: str, console: "Console") -> None:
    """A table of these columns and of figures."""
    from rich.table import Table

    shown = {name: title for name, title in SHOWN.items() if name in frame.columns}
    table = Table(*names, *shown.values(), title=title, title_justify="left", pad_edge=False)
    for column in table.columns:
        column.justify = "right"
    for row in records(frame[[*names, *shown]]):
        table.add_row(*(cell(row[name]) for name in names), *(measured(row[name]) for name in shown))
    console.print(table)


def cell(value: Any) -> str:
    """A candidate's own value."""
    return "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def measured(value: Any) -> str:
    """A figure."""
    if isinstance(value, bool):
        return "yes" if value else ""
    return value if isinstance(value, str) else "-" if value is None else figure(float(value))


def records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """Rows as JSON has them."""
    columns = {str(name): [jsonable(value) for value in frame[name].tolist()] for name in frame.columns}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def jsonable(value: Any) -> Any:
    """A value; an option with fields of its own by its text."""
    return plain(value) if value is None or isinstance(value, str | int | float) else str(value)
