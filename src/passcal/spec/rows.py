"""Rows as callers write them: lengths dealt or listed, checked and turned into columns."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from passcal.errors import SpecError

__all__ = [
    "ASKED",
    "REPLAY_COLUMNS",
    "SHAPE_KEYS",
    "Rows",
    "asked_columns",
    "check_lengths",
    "replay_columns",
    "shape_row",
    "shape_rows",
    "whole_column",
]

MOST = 2**31 - 1
ASKED = ("isl", "prefix", "osl", "group", "shared", "pinned", "most", "vision")  # what a request asks for, as stored
SHAPE_KEYS = ("isl", "prefix", "osl", "prefix_group", "prefix_len", "data_parallel_rank", "max_tokens", "vision_tokens")
ZERO = ("prefix", "prefix_len", "vision_tokens")  # what is none where it is not given
REPLAY_COLUMNS = ("dispatch_ms", *SHAPE_KEYS)
Rows = tuple[tuple[int, int, int, int, int, int, int, int], ...]  # as ASKED


def check_lengths(isl: Any, prefix: Any, osl: Any, where: str) -> None:
    """Arrays of lengths obey the rules, else the first row that does not is named."""
    rules = (
        (isl < 1, "isl", isl, "must be at least 1"),
        (osl < 1, "osl", osl, "must be at least 1"),
        (prefix < 0, "prefix", prefix, "must not be negative"),
        (prefix >= isl, "prefix", prefix, "must be below isl: at least one prompt token is computed"),
        (isl + osl > MOST, "isl", isl, "must stay below 2^31 tokens with osl"),
    )
    for broken, name, values, rule in rules:
        if broken.any():
            at = int(np.argmax(broken))
            extra = f" with isl={int(isl[at])}" if name == "prefix" else ""
            raise SpecError(f"{where}{at}: {name}={values[at]}{extra}: {rule}; correct this row")


def whole_column(values: Any, name: str, where: str) -> Any:
    """A column of token counts as int64; fractions, NaN, booleans and text are refused by row."""
    column = np.asarray(values)
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind == "O":  # mixed Python values: ints and floats are fine if each is whole
        try:
            column = np.array([float("nan") if isinstance(v, bool | str) else float(v) for v in column])
        except (TypeError, ValueError):
            raise SpecError(f"{where}: {name}: must be whole numbers; correct the column") from None
    if column.dtype.kind != "f":
        raise SpecError(f"{where}: {name}={column.ravel()[:1].tolist()}: must be whole numbers; correct the column")
    broken = ~np.isfinite(column) | (column != np.floor(column)) | (np.abs(column) > MOST)
    if broken.any():
        at = int(np.argmax(broken))
        raise SpecError(f"{where}{at}: {name}={column[at]}: must be a whole number below 2^31; correct this row")
    return column.astype(np.int64)


def shape_rows(rows: Any) -> Rows:
    """Dealt shapes as rows of ASKED, from what the caller wrote."""
    if isinstance(rows, str) or not isinstance(rows, Iterable):
        raise SpecError(f"shapes={rows!r}: must be rows (isl, osl); write [(isl, osl)]"[:199])
    listed = [shape_row(row, k) for k, row in enumerate(rows)]
    if not listed:
        raise SpecError("shapes=[]: there must be at least one row (isl, osl); add one")
    columns = asked_columns(dict(zip(SHAPE_KEYS, zip(*listed, strict=True), strict=True)), "shapes row ")
    return tuple(zip(*(column.tolist() for column in columns.values()), strict=True))


def shape_row(row: Any, at: int) -> tuple[Any, ...]:
    """A dealt shape as SHAPE_KEYS, from what the caller wrote."""
    if isinstance(row, Mapping):
        unknown = sorted(set(row) - set(SHAPE_KEYS))
        if unknown or "isl" not in row or "osl" not in row:
            raise SpecError(
                f"shapes row {at}: needs isl and osl and may have {', '.join(SHAPE_KEYS)}; has {', '.join(map(str, row))}"[
                    :199
                ]
            )
        return tuple(row.get(name, 0 if name in ZERO else None) for name in SHAPE_KEYS)
    row = tuple(row) if isinstance(row, Iterable) and not isinstance(row, str) else (row,)
    if len(row) == 2:
        return row[0], 0, row[1], None, 0, None, None, 0
    if len(row) == 3:
        return row[0], row[1], row[2], None, 0, None, None, 0
    if len(row) == len(ASKED):  # as stored
        return row[0], row[1], row[2], None if row[3] == -1 else row[3], *row[4:]
    raise SpecError(f"shapes row {at}: {row!r}: must be (isl, osl) or (isl, prefix, osl); correct this row"[:199])


def replay_columns(rows: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Columns of a replay from whatever the caller has, checked."""
    notes: tuple[str, ...] = tuple(getattr(rows, "attrs", {}).get("notes", ()))
    if isinstance(rows, np.ndarray) and rows.dtype.names:
        given = {name: rows[name] for name in rows.dtype.names}
    elif hasattr(rows, "columns"):
        given = {str(name): rows[name].to_numpy() for name in rows.columns}
    elif isinstance(rows, Mapping):
        given = {str(name): values for name, values in rows.items()}
    else:
        given = columns_of_rows(rows)
    unknown = sorted(set(given) - set(REPLAY_COLUMNS))
    if unknown:
        raise SpecError(f"replay has no column {unknown[0]!r}; it has {', '.join(REPLAY_COLUMNS)}; drop or rename it")
    for name in ("dispatch_ms", "isl", "osl"):
        if name not in given:
            raise SpecError(f"replay: column {name!r} is missing; add it")
    try:
        dispatch = np.asarray(given["dispatch_ms"], np.float64)
    except (TypeError, ValueError):
        raise SpecError("replay: dispatch_ms must be numbers, in milliseconds; correct the column") from None
    if dispatch.ndim != 1 or len(dispatch) == 0:
        raise SpecError("replay: there must be at least one row; give one")
    if not np.isfinite(dispatch).all():
        at = int(np.argmax(~np.isfinite(dispatch)))
        raise SpecError(f"replay row {at}: dispatch_ms={dispatch[at]}: must be finite; correct this row")
    if (dispatch < 0).any():
        at = int(np.argmax(dispatch < 0))
        raise SpecError(
            f"replay row {at}: dispatch_ms={dispatch[at]}: must not be negative; shift the clock to start at 0"
        )
    if any(np.shape(values) != dispatch.shape for values in given.values()):
        raise SpecError("replay: columns differ in length; give every row all its values")
    return {"dispatch_ms": dispatch, **asked_columns(given, "replay row ")}, notes


def asked_columns(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What requests ask for, as stored (ASKED), from columns of one length by SHAPE_KEYS; checked."""
    isl, osl = (whole_column(given[name], name, where) for name in ("isl", "osl"))
    count = len(isl)
    prefix = whole_column(given["prefix"], "prefix", where) if "prefix" in given else np.zeros(count, np.int64)
    group, shared = prefix_groups(given.get("prefix_group"), given.get("prefix_len"), count, where)
    pinned = pinned_ranks(given.get("data_parallel_rank"), count, where)
    check_lengths(isl, prefix, osl, where)
    most = outputs_reckoned_with(given.get("max_tokens"), osl, where)
    vision = vision_tokens(given.get("vision_tokens"), isl, where)
    return dict(zip(ASKED, (isl, prefix, osl, group, shared, pinned, most, vision), strict=True))


def prefix_groups(groups: Any, lengths: Any, count: int, where: str) -> tuple[Any, Any]:
    """Prefix groups as numbers from 0 (none: -1), and how many leading tokens each shares."""
    if groups is None and lengths is None:
        return np.full(count, -1), np.zeros(count, np.int64)
    if groups is None or lengths is None:
        raise SpecError("prefix_group and prefix_len must come together; give both, or neither")
    numbers: dict[Any, int] = {}
    listed = [None if g is None or g != g or str(g) == "<NA>" else g for g in np.asarray(groups, object).tolist()]
    group = np.array([-1 if g is None else numbers.setdefault(g, len(numbers)) for g in listed], np.int64)
    shared = whole_column(np.array([0 if v is None else v for v in np.asarray(lengths, object)]), "prefix_len", where)
    if (shared < 0).any():
        at = int(np.argmax(shared < 0))
        raise SpecError(f"{where}{at}: prefix_len={shared[at]}: must not be negative; correct this row")
    return group, np.where(group >= 0, shared, 0)


def pinned_ranks(ranks: Any, count: int, where: str) -> Any:
    """The rank of its worker that each request asks for; -1: any."""
    if ranks is None:
        return np.full(count, -1)
    listed = [-1 if r is None or r != r or str(r) == "<NA>" else r for r in np.asarray(ranks, object).tolist()]
    pinned = whole_column(listed, "data_parallel_rank", where)
    if (pinned < -1).any():
        at = int(np.argmax(pinned < -1))
        raise SpecError(
            f"{where}{at}: data_parallel_rank={pinned[at]}: must not be negative; leave it out for any rank"
        )
    return pinned


def outputs_reckoned_with(most: Any, osl: Any, where: str) -> Any:
    """`max_tokens` of each request, osl where it is not given."""
    if most is None:
        return osl
    listed = np.asarray(most, object).tolist()
    filled = [o if m is None or m != m or str(m) == "<NA>" else m for m, o in zip(listed, osl.tolist(), strict=True)]
    column = whole_column(filled, "max_tokens", where)
    if (column < osl).any():
        at = int(np.argmax(column < osl))
        raise SpecError(f"{where}{at}: max_tokens={column[at]}: must be at least osl={osl[at]}; correct this row")
    return column


def vision_tokens(given: Any, isl: Any, where: str) -> Any:
    """How many of its prompt tokens an encoder makes for each request."""
    if given is None:
        return np.zeros(len(isl), np.int64)
    vision = whole_column(given, "vision_tokens", where)
    broken = (vision < 0) | (vision > isl)
    if broken.any():
        at = int(np.argmax(broken))
        raise SpecError(
            f"{where}{at}: vision_tokens={vision[at]} with isl={int(isl[at])}: must not be negative, nor above isl, which counts them; correct this row"
        )
    return vision


def columns_of_rows(rows: Iterable[Any]) -> dict[str, Any]:
    """Columns from an iterable of rows (dispatch_ms, isl[, prefix], osl) or of mappings."""
    try:
        listed = list(rows)
    except TypeError:
        raise SpecError(
            f"replay: rows={rows!r}: must be a frame, columns, or rows (dispatch_ms, isl, osl)"[:199]
        ) from None
    if not listed:
        raise SpecError("replay: there must be at least one row; give one")
    if isinstance(listed[0], Mapping):
        names = list(listed[0])
        if any(not isinstance(row, Mapping) or list(row) != names for row in listed):
            raise SpecError("replay: rows have different keys; give every row the same ones")
        return {str(name): [row[name] for row in listed] for name in names}
    width = len(listed[0])
    if width not in (3, 4) or any(len(row) != width for row in listed):
        raise SpecError(
            "replay: rows must all be (dispatch_ms, isl, osl) or (dispatch_ms, isl, prefix, osl); correct them"
        )
    names = ["dispatch_ms", "isl", "osl"] if width == 3 else ["dispatch_ms", "isl", "prefix", "osl"]
    return {name: [row[k] for row in listed] for k, name in enumerate(names)}
