"""A search for capacity as a terminal table, a JSON object or CSV; and what there is of one that was interrupted."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passcal.capacity import Capacity
from passcal.columns import point_frame
from passcal.files import write_frame
from passcal.render import as_record, as_text, figure, plain, print_report
from passcal.spec.sla import Target
from passcal.targets import written
from passcal.trials import EVALUATED, Point

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["deliver_capacity", "deliver_points", "glance"]

UNITS = {"clients": "clients", "rate": "requests/s"}
KEPT = {True: "yes", False: "no", None: "latencies are"}


def glance(point: Point) -> str:
    """A load in a few words."""
    return f"{point.load:.6g} {'violates ' + written(point.violated[0]) if point.violated else 'is kept'}"


def deliver_capacity(found: Capacity, console: "Console", json: bool, csv: str | None, quiet: bool) -> None:
    """Print the answer and the report at it, and write the loads tried to the CSV file if one is asked for."""
    write_points(found.tried, found.sla, csv)
    if json:
        sys.stdout.write(as_text(answer(found)))
    elif csv != "-":
        print_answer(found, console)
    elif not quiet:
        for line in (headline(found), *found.notes):
            sys.stderr.write(f"note: {line}\n")


def deliver_points(
    points: Sequence[Point], sla: Sequence[Target], console: "Console", json: bool, csv: str | None
) -> None:
    """The same of a search that was interrupted: the loads that are done."""
    write_points(points, sla, csv)
    if json:
        sys.stdout.write(as_text({"interrupted": True, "points": records(points, sla)}))
    elif csv != "-":
        print_points(points, sla, console)


def print_answer(found: Capacity, console: "Console") -> None:
    """The answer, its neighbour that violates, notes, and the report."""
    lines = [("capacity", headline(found))]
    if found.load and found.binds is not None:
        (beyond,) = (point for point in found.tried if point.load == found.violated_load)
        value = beyond.figures[found.sla.index(found.binds)]
        lines.append(("limit", f"{written(found.binds)}: {figure(value)} at {found.violated_load:.6g}"))
    lines += [("note", note) for note in found.notes]
    for label, text in lines:
        console.print(f"{label:<11}{text}", highlight=False, markup=False, soft_wrap=True)
    if found.report is None:
        print_points(found.tried, found.sla, console)
    else:
        console.print()
        print_report(found.report, console)


def print_points(points: Sequence[Point], sla: Sequence[Target], console: "Console") -> None:
    """One row a load."""
    from rich.table import Table

    names = [written(target) for target in sla]
    asked = sum(point.queueing_tier == EVALUATED for point in points)
    title = f"{len(points)} loads tried, {asked} of them evaluated"
    table = Table("load", *names, "kept", title=title, title_justify="left", pad_edge=False)
    for column in table.columns[:-1]:
        column.justify = "right"
    for point in sorted(points, key=lambda point: point.load):
        table.add_row(f"{point.load:.6g}", *map(figure, point.figures), KEPT[point.kept])
    console.print(table)


def headline(found: Capacity) -> str:
    """The answer in a line."""
    return f"{found.load:.6g} {UNITS[found.unit]}" if found.load else f"none: {found.reason}"


def answer(found: Capacity) -> dict[str, Any]:
    """All of the answer as JSON has it."""
    return {
        "unit": found.unit,
        "load": found.load,
        "violated_load": found.violated_load,
        "binds": written(found.binds) if found.binds else None,
        "reason": found.reason,
        "sla": [written(target) for target in found.sla],
        "notes": list(found.notes),
        "points": records(found.tried, found.sla),
        "report": as_record(found.report) if found.report else None,
    }


def records(points: Sequence[Point], sla: Sequence[Target]) -> list[dict[str, Any]]:
    """The loads tried, ascending."""
    columns: dict[Any, Any] = point_frame(points, sla).to_dict("list")
    columns["kept"] = [point.kept for point in sorted(points, key=lambda point: point.load)]
    return [dict(zip(columns, map(plain, row), strict=True)) for row in zip(*columns.values(), strict=True)]


def write_points(points: Sequence[Point], sla: Sequence[Target], csv: str | None) -> None:
    """The loads tried as CSV, to a file or to standard output."""
    if csv is None:
        return
    frame = point_frame(points, sla)
    if csv == "-":
        frame.to_csv(sys.stdout, index=False, lineterminator="\n")
    else:
        write_frame(Path(csv), "--csv", frame, parquet=False)
