"""Mooncake traces: one JSON object a line with `timestamp`, `input_length`, `output_length`, `hash_ids`."""

import json
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from passcal.sources.readers.clock import Spread, arranged
from passcal.sources.readers.rows import Rows
from passcal.sources.readers.source import Source, load, shown

__all__ = ["mooncake_frame", "read_mooncake", "records"]

REQUIRED = ("timestamp", "input_length", "output_length")
KNOWN = frozenset((*REQUIRED, "hash_ids"))
FAR = 1e18
"""JSON integers have no bound, columns have; no number that a rule lets through is as large."""


def read_mooncake(path: str | os.PathLike[str], *, spread: Spread = "none") -> pd.DataFrame:
    """Read lengths and times of a Mooncake trace (JSONL, also gzip).

    The file's clock is relative (ms since the trace began) and is kept, so an excerpt starts where it was cut. These
    traces put most rows on ticks of about 3 s; that is detected and noted, because it makes bursts that no client sent.
    `hash_ids` (512-token blocks) are not read: `prefix` is 0 and a note says so.

    Args:
        path: the file.
        spread: `"uniform"` deals the rows of a tick out evenly until the next tick.

    Returns:
        One row a request, sorted by time: `dispatch_ms` (float, ms), `isl`, `prefix` (0), `osl`, tokens as int64.
        `frame.attrs["notes"]` lists what was noticed or changed.

    Raises:
        TraceError: the file or a row breaks a rule; the message names the line. Keys beyond the four are refused: they
            mark other formats, whose unit of time or block may differ.
    """
    return mooncake_frame(load(path), spread)


def mooncake_frame(source: Source, spread: Spread) -> pd.DataFrame:
    """`read_mooncake` on a file that is loaded already."""
    cells: dict[str, list[object]] = {key: [] for key in REQUIRED}
    hashed = False
    for record in records(source):
        hashed = hashed or "hash_ids" in record
        for key, column in cells.items():
            value = record[key]
            # Anything else stays as it was written: "12", true and null are no numbers, and a refusal shows them.
            plain = type(value) in (int, float) and abs(value) < FAR
            column.append(value if plain else json.dumps(value))
    rows = Rows(source, pd.DataFrame(cells), first=1)
    times_ms = rows.times("timestamp")
    isl = rows.tokens("input_length", "isl", least=1)
    osl = rows.tokens("output_length", "osl", least=1)
    rows.settle()
    notes = ["prefix is 0 in every row: hash_ids are not turned into cache hits"] if hashed else []
    return arranged({"dispatch_ms": times_ms, "isl": isl, "prefix": np.zeros_like(isl), "osl": osl}, notes, spread)


def records(source: Source) -> Iterator[dict[str, Any]]:
    """The JSON objects of the file in order, one a line, each with the required keys and no unknown one.

    Raises:
        TraceError: a line is no JSON object, lacks a key, repeats one or has one that is not known.
    """
    decode = json.JSONDecoder(object_pairs_hook=unique_keys).decode
    for number, line in enumerate(source.text.decode("utf-8").split("\n")[:-1], start=1):
        try:
            record = decode(line)
        except json.JSONDecodeError as error:
            problem = f"not one whole JSON object ({error.msg}, column {error.colno}); mend or delete the line"
            raise source.refusal(problem, number) from None
        except (ValueError, RecursionError) as error:
            raise source.refusal(f"not a record ({shown(error)}); mend or delete the line", number) from None
        if not isinstance(record, dict):
            raise source.refusal(f"{shown(record)} is not a JSON object; one object a line", number)
        keys = record.keys()
        if not keys <= KNOWN:
            unknown = next(key for key in keys if key not in KNOWN)
            raise source.refusal(f"unknown key {shown(unknown)}; known: {', '.join((*REQUIRED, 'hash_ids'))}", number)
        if missing := [key for key in REQUIRED if key not in keys]:
            raise source.refusal(f"key {missing[0]} is missing; needed: {', '.join(REQUIRED)}", number)
        yield record


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, unless a key is repeated and one value would vanish."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found
