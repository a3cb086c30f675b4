"""Tables inside a page, each between two markers."""

import os
import re
from pathlib import Path

__all__ = ["renewed", "write_whole"]

BLOCK = "<!-- table: {} -->\n{}\n<!-- end -->"


def renewed(text: str, tables: dict[str, str]) -> str:
    """The page with its tables replaced.

    Raises:
        ValueError: a table without a place, or a place without a table.
    """
    places = re.findall(r"<!-- table: (\S+) -->", text)
    if sorted(places) != sorted(tables):
        raise ValueError(
            f"tables {sorted(set(places) ^ set(tables))}: each needs one place in the page; add or drop markers"
        )
    for name, table in tables.items():
        pattern = re.compile(rf"<!-- table: {re.escape(name)} -->\n.*?<!-- end -->", re.S)
        text, found = pattern.subn(lambda _, name=name, table=table: BLOCK.format(name, table), text)
        if found != 1:
            raise ValueError(f"table {name}: its place must be closed by an end marker, once; mend the page")
    return text


def write_whole(file: Path, text: str) -> None:
    """Replace a file at once or leave it as it is."""
    draft = file.with_suffix(".new")
    draft.write_text(text)
    os.replace(draft, file)
