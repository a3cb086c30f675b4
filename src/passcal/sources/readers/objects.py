"""JSON objects, one a line, to records: keys given once, numbers told apart from what only looks like one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from passcal.sources.readers.source import Source, shown

__all__ = ["cell", "check_keys", "decoded", "objects"]

FAR = 1e18
"""JSON integers have no bound, columns have; no number that a rule lets through is as large."""


def objects(source: Source) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of the file in order, one a line, with the line of each.

    Raises:
        TraceError: a line is no JSON object, or repeats a key.
    """
    for number, line in enumerate(source.text.decode("utf-8").split("\n")[:-1], start=1):
        record = decoded(source, line, number)
        if not isinstance(record, dict):
            raise source.refusal(f"{shown(record)} is not a JSON object; one object a line", number)
        yield number, record


def decoded(source: Source, text: str, line: int) -> Any:
    """What a JSON text holds; a refusal names the line, counted on from that of the text."""
    try:
        return DECODE(text)
    except json.JSONDecodeError as error:
        problem = f"not one whole JSON object ({error.msg}, column {error.colno}); mend or delete the line"
        raise source.refusal(problem, line + error.lineno - 1) from None
    except (ValueError, RecursionError) as error:
        raise source.refusal(f"not a record ({shown(error)}); mend or delete the line", line) from None


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object as a dict, unless a key is repeated and one value would vanish."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is repeated")
    return found


DECODE = json.JSONDecoder(object_pairs_hook=unique_keys).decode


def check_keys(
    source: Source, record: dict[str, Any], required: Iterable[str], known: Mapping[str, None], line: int
) -> None:
    """Refuse a record with a key that is not known, or without one that is needed.

    Raises:
        TraceError: naming the line, the key and the keys that are known or needed.
    """
    if not record.keys() <= known.keys():
        unknown = next(key for key in record if key not in known)
        raise source.refusal(f"unknown key {shown(unknown)}; known: {', '.join(known)}"[:140], line)
    for key in required:
        if key not in record:
            raise source.refusal(f"key {key} is missing; needed: {', '.join(required)}", line)


def cell(value: Any) -> Any:
    """A number as it is; anything else as it was written: "12", true and null are no numbers, and a refusal shows them."""
    return value if type(value) in (int, float) and abs(value) < FAR else json.dumps(value)
