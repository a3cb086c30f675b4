"""Sessions: lanes of turns, whose arrivals are an output."""

from collections.abc import Hashable, Iterable, Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, model_validator

from passcal.errors import SpecError
from passcal.spec.base import Count, Duration, Spec, Tokens
from passcal.spec.rows import ASKED, SHAPE_KEYS, asked_columns, shape_row, whole_column
from passcal.spec.workload import Workload

__all__ = ["Sessions", "Turn"]

TURNS = np.dtype([(name, "i8") for name in ("session", "turn", "call", *ASKED)] + [("think_ms", "f8")])
COLUMNS = ("session", "turn", "call", *SHAPE_KEYS[:3], "think_ms", *SHAPE_KEYS[3:])


def rows_of_calls(value: Any) -> Any:
    """Calls as SHAPE_KEYS, however they are written."""
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise ValueError("must be rows (isl, prefix, osl)")
    try:
        return tuple(shape_row(row, at) for at, row in enumerate(value))
    except SpecError as error:
        raise SpecError(str(error).replace("shapes", "Turn.calls", 1)[:199]) from None


Calls = Annotated[tuple[tuple[Any, ...], ...], BeforeValidator(rows_of_calls)]


class Turn(Spec):
    """One turn of a session: a request, and the calls that go out with it.

    Attributes:
        isl: prompt tokens.
        osl: output tokens.
        prefix: prompt tokens that are cached already, below isl.
        think_ms: from when the turn before is done to this one's dispatch; of a session's first turn, from the session's start.
        prefix_group: requests of a group, in whatever session, share their first `prefix_len` tokens, of the shorter one.
        prefix_len: how many.
        data_parallel_rank: the rank of its worker that it is pinned to.
        max_tokens: outputs that the engine reckons with; above osl a stop token ends the request, which no plan foresees.
        vision_tokens: of the prompt's tokens, how many an encoder makes.
        calls: rows (isl, osl) or (isl, prefix, osl), or mappings with `isl`, `osl` and optionally `prefix`, `prefix_group`, `prefix_len`,
            `data_parallel_rank`, `max_tokens`, `vision_tokens`: concurrent requests dispatched together with the turn's own, as an agent does. A turn is
            done when its own request and all of its calls are.
    """

    isl: Count
    osl: Count
    prefix: Tokens = 0
    think_ms: Duration = 0.0
    prefix_group: Hashable = None
    prefix_len: Tokens = 0
    data_parallel_rank: Tokens | None = None
    max_tokens: Count | None = None
    vision_tokens: Tokens = 0
    calls: Calls = ()

    def __init__(self, isl: Any = None, osl: Any = None, **values: Any) -> None:
        given = {name: value for name, value in (("isl", isl), ("osl", osl)) if value is not None}
        super().__init__(**given, **values)

    @model_validator(mode="after")
    def _lengths(self) -> "Turn":
        asked_columns(by_name(self.requests), "Turn: request ")
        for at, request in enumerate(self.requests):
            asked = dict(zip(SHAPE_KEYS, request, strict=True))
            if asked["prefix_len"] and asked["prefix_group"] is None:
                raise SpecError(
                    f"Turn: request {at}: prefix_len={asked['prefix_len']}: shares nothing without prefix_group; give both"
                )
        return self

    @property
    def requests(self) -> tuple[tuple[Any, ...], ...]:
        """Its own request and its calls, each by SHAPE_KEYS."""
        return tuple(getattr(self, name) for name in SHAPE_KEYS), *self.calls


def by_name(requests: Iterable[tuple[Any, ...]]) -> dict[str, Any]:
    """Columns by SHAPE_KEYS."""
    return dict(zip(SHAPE_KEYS, zip(*requests, strict=True), strict=True))


class Sessions(Workload):
    """Lanes of turns; see `Workload.sessions`.

    Attributes:
        rows: read-only structured array, one row a request: `session` and `turn` (numbers from 0), `call` (0: the turn's own request),
            `think_ms` (0 of calls), and what the request asks for (ASKED); by session, turn and call.
        labels: what each session was called; None: its number.
        stagger_ms: session k starts at k * stagger_ms.
    """

    rows: Any
    labels: Any = None
    stagger_ms: Duration = 0.0

    @model_validator(mode="before")
    @classmethod
    def _rows(cls, values: Any) -> Any:
        columns = columns_of(values["rows"])
        rows, labels = table_of_lanes(values["rows"]) if columns is None else table_of_columns(columns)
        rows.flags.writeable = False
        return {**values, "rows": rows, "labels": labels}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sessions) and self.scalars == other.scalars and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((self.scalars, self.rows.tobytes()))

    @property
    def scalars(self) -> tuple[Any, ...]:
        """All that is not in the rows."""
        named = None if self.labels is None else tuple(self.labels)
        return self.turnaround_ms, self.ingest_us_per_token, self.stagger_ms, named


def columns_of(rows: Any) -> dict[str, Any] | None:
    """Columns by name from a frame, a mapping or a structured array; None if these are lanes."""
    if isinstance(rows, np.ndarray) and rows.dtype.names:
        return {name: rows[name] for name in rows.dtype.names}
    if hasattr(rows, "columns"):
        return {str(name): rows[name].to_numpy() for name in rows.columns}
    return {str(name): values for name, values in rows.items()} if isinstance(rows, Mapping) else None


def table_of_lanes(lanes: Any) -> tuple[Any, None]:
    """The rows of lanes of turns."""
    if isinstance(lanes, str) or not isinstance(lanes, Iterable):
        raise SpecError(
            f"sessions: lanes={lanes!r}: must be lanes of turns; write [[pc.Turn(isl, osl), ...], ...]"[:199]
        )
    places: list[tuple[Any, ...]] = []
    listed: list[tuple[Any, ...]] = []
    for k, lane in enumerate(lanes):
        turns = [turn_of(turn, k, j) for j, turn in enumerate(lane_of(lane, k))]
        if not turns:
            raise SpecError(f"sessions lane {k}: there must be at least one turn; add one, or drop the lane")
        for j, turn in enumerate(turns):
            places += [(k, j, call, 0.0 if call else turn.think_ms) for call in range(1 + len(turn.calls))]
            listed += turn.requests
    if not listed:
        raise SpecError("sessions: lanes=[]: there must be at least one session; give one")
    columns = asked_columns(by_name(listed), "sessions request ")
    columns |= zip(("session", "turn", "call", "think_ms"), zip(*places, strict=True), strict=True)
    table = np.empty(len(listed), TURNS)
    for name, values in columns.items():
        table[name] = values
    return table, None


def lane_of(lane: Any, k: int) -> Iterable[Any]:
    """The turns of a lane; a lone turn is no lane."""
    if isinstance(lane, str | Mapping | Turn) or not isinstance(lane, Iterable):
        raise SpecError(f"sessions lane {k}: {lane!r}: must be a list of turns; write [pc.Turn(isl, osl), ...]"[:199])
    return lane


def turn_of(turn: Any, k: int, j: int) -> Turn:
    """A turn, also from a mapping of its fields."""
    if isinstance(turn, Turn):
        return turn
    where = f"sessions lane {k}, turn {j}"
    if not isinstance(turn, Mapping):
        raise SpecError(f"{where}: {turn!r}: must be a turn; write pc.Turn(isl, osl)"[:199])
    try:
        return Turn(**{str(name): value for name, value in turn.items()})
    except SpecError as error:
        raise SpecError(f"{where}: {error}"[:199]) from None


def table_of_columns(given: Mapping[str, Any]) -> tuple[Any, Any]:
    """The rows of columns, and what each session was called; sessions are numbered as they come first."""
    check_names(given)
    session, labels = numbered(np.asarray(given["session"]))
    count, where = len(session), "sessions row "
    if any(np.shape(values) != session.shape for values in given.values()):
        raise SpecError("sessions: columns differ in length; give every row all its values")
    whole = asked_columns(given, where)
    for name in ("turn", "call"):
        whole[name] = whole_column(given.get(name, np.zeros(count, np.int64)), name, where)
    order = np.lexsort((whole["call"], whole["turn"], session))
    if "turn" not in given:
        order = np.argsort(session, kind="stable")
        whole["turn"] = np.arange(count)  # in order of appearance
    table = np.empty(count, TURNS)
    whole |= {"session": session, "think_ms": think_column(given, count)}
    for name, values in whole.items():
        table[name] = values[order]
    number_turns(table, order)
    return table, labels


def numbered(names: Any) -> tuple[Any, Any]:
    """Sessions as numbers, as they come first, and what each is called."""
    if names.ndim != 1 or not len(names):
        raise SpecError("sessions: there must be at least one row; give one")
    numbers: dict[Any, int] = {}
    session = np.array([numbers.setdefault(name, len(numbers)) for name in names.tolist()], np.int64)
    nameless = [at for at, name in enumerate(names.tolist()) if name is None or name != name]
    if nameless:
        raise SpecError(f"sessions row {nameless[0]}: session={names[nameless[0]]}: must have a name; correct this row")
    return session, names[np.unique(session, return_index=True)[1]]


def check_names(given: Mapping[str, Any]) -> None:
    """The columns that must be there are, and no others than known ones."""
    for name in given:
        if name not in COLUMNS:
            raise SpecError(f"sessions have no column {name!r}; they have {', '.join(COLUMNS)}; drop or rename it")
    for name in ("session", "isl", "osl"):
        if name not in given:
            raise SpecError(f"sessions: column {name!r} is missing; add it")
    if "call" in given and "turn" not in given:
        raise SpecError("sessions: column 'call' says nothing without 'turn'; give both")


def think_column(given: Mapping[str, Any], count: int) -> Any:
    """Think times (ms); none are zero."""
    try:
        think = np.asarray(given.get("think_ms", np.zeros(count)), np.float64)
    except (TypeError, ValueError):
        raise SpecError("sessions: think_ms must be numbers, in milliseconds; correct the column") from None
    broken = ~(np.isfinite(think) & (think >= 0.0))
    if broken.any():
        at = int(np.argmax(broken))
        raise SpecError(f"sessions row {at}: think_ms={think[at]}: must be finite and not negative; correct this row")
    return think


def number_turns(table: Any, order: Any) -> None:
    """Number turns within sessions, and calls within turns, from 0; `order` says where each row was given."""
    head = np.append(True, np.diff(table["session"]) != 0)
    begins = head | np.append(True, np.diff(table["turn"]) != 0)
    twice = ~begins & (np.append(0, np.diff(table["call"])) == 0)
    for broken, rule in (
        (twice, "the same session, turn and call are given twice; number calls in a column 'call'"),
        (begins & (table["call"] != 0), "its turn has no request with call=0, which is its own; add it"),
        (~begins & (table["think_ms"] != 0.0), "calls go out with their turn's own request; set their think_ms to 0"),
    ):
        if broken.any():
            raise SpecError(f"sessions row {int(order[np.argmax(broken)])}: {rule}")
    turn = np.cumsum(begins) - 1
    table["turn"] = turn - np.maximum.accumulate(np.where(head, turn, 0))
    at = np.arange(len(table))
    table["call"] = at - np.maximum.accumulate(np.where(begins, at, 0))
