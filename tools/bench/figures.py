"""A measured figure, the limit that it is held against, and the table of all."""

import json
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Console
from rich.table import Table

__all__ = ["Figure", "show"]


@dataclass(frozen=True)
class Figure:
    """One row: `wall` and `cpu` (processor time) in `unit`; `keep` says on which side of the limit `wall` must stay."""

    name: str
    wall: float
    unit: str
    limit: float | None = None
    keep: Literal["below", "above"] = "below"
    cpu: float | None = None
    note: str = ""

    @property
    def verdict(self) -> str:
        """`met` or `missed` on the wall clock; `cpu` where only processor time keeps the limit, as on a busy machine."""
        if self.limit is None:
            return ""
        kept = [
            v is not None and (v <= self.limit if self.keep == "below" else v >= self.limit)
            for v in (self.wall, self.cpu)
        ]
        return "met" if kept[0] else "cpu" if kept[1] else "missed"


def show(figures: list[Figure], as_json: bool) -> None:
    """Print the figures as a table or as JSON."""
    if as_json:
        print(json.dumps([asdict(figure) | {"verdict": figure.verdict} for figure in figures], indent=1))
        return
    table = Table("figure", "wall", "cpu", "unit", "limit", "", "what was run")
    for figure in figures:
        limit = "" if figure.limit is None else f"{'<' if figure.keep == 'below' else '>'} {figure.limit:,g}"
        cpu = "" if figure.cpu is None else readable(figure.cpu)
        table.add_row(figure.name, readable(figure.wall), cpu, figure.unit, limit, figure.verdict, figure.note)
    Console(width=150).print(table)


def readable(value: float) -> str:
    """Four digits, and no exponent for large ones."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
