"""`python -m tools.validation [--data DIR] [--page FILE] [--check]`: renew the tables of docs/design/validation.md.

With `--check` nothing is written, and the exit code is 1 if a table would change. The measurements are never needed elsewhere.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.validation import burst, cadence, early, held_out, misses, options, pd_apart, pd_vs_agg, rates, seats
from tools.validation.page import renewed, write_whole

__all__ = ["main", "tables"]

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT.parent / "shared" / "data"
PAGE = ROOT / "docs" / "design" / "validation.md"


def main(arguments: list[str] | None = None) -> int:
    """Make all tables, and put them into the page."""
    parser = argparse.ArgumentParser(prog="python -m tools.validation", description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="folder with `measurements`")
    parser.add_argument("--page", type=Path, default=PAGE, help="page with markers")
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 if a table would change")
    asked = parser.parse_args(arguments)
    if not (asked.data / "measurements").is_dir():
        print(f"data={asked.data}: has no folder `measurements`; name the folder that has", file=sys.stderr)
        return 2
    before = asked.page.read_text()
    after = renewed(before, dict(tables(asked.data)))
    if asked.check:
        print("unchanged" if after == before else "changed")
        return int(after != before)
    write_whole(asked.page, after)
    return 0


def tables(data: Path) -> Iterator[tuple[str, str]]:
    """Every table of the page, by name."""
    halves = held_out.halves(data)
    yield from held_out.sections(halves).items()
    yield from misses.sections(halves).items()
    yield "early", early.early(halves)
    yield "options", options.changed(halves)
    for part in (pd_vs_agg, pd_apart, rates, burst, cadence, seats):
        yield from part.sections(data).items()


if __name__ == "__main__":
    sys.exit(main())
