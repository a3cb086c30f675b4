"""Agent sessions: one JSON object a line, `{"id", "block_size", "requests": [{"t", "in", "out", "hash_ids", "api_time"}, ...]}`.

A request of type `subagent` holds requests of its own: a sub-agent's, spawned after the request before it and, if it ended by then, awaited by
the next one (the order in the file says so). They are flattened: every agent is a chain of turns, and a row is one turn of one chain.
"""

import os
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from passcal.errors import TraceError
from passcal.sources.readers.clock import Columns, Spread
from passcal.sources.readers.objects import cell, check_keys, objects
from passcal.sources.readers.pages import PageIds, framed
from passcal.sources.readers.rows import Floats, Rows
from passcal.sources.readers.source import Source, load, shown

__all__ = ["agent_frame", "read_agent"]

SESSION_NEEDS = ("id", "block_size", "requests")
SESSION_TELLS = ("models", "tool_tokens", "system_tokens", "totals")
SESSION_KNOWS = dict.fromkeys((*SESSION_NEEDS, "hash_id_scope", *SESSION_TELLS))
TURN_NEEDS = ("t", "in", "out")
TURN_TELLS = ("model", "input_types", "output_types", "stop", "think_time", "ttft")
TURN_KNOWS = dict.fromkeys((*TURN_NEEDS, "hash_ids", "api_time", "type", *TURN_TELLS))
AGENT_NEEDS = ("t", "type", "requests")
AGENT_TELLS = ("subagent_type", "duration_ms", "total_tokens", "tool_use_count", "status", *SESSION_TELLS)
AGENT_KNOWS = dict.fromkeys((*AGENT_NEEDS, "agent_id", *AGENT_TELLS))
LABELS = ("session", "agent", "turn", "parent", "parent_turn")
MAIN = "main"
ROUNDING_MS = 1e-6
"""Of sums of seconds: 0.1 + 0.2 is no later than 0.3."""


def read_agent(path: str | os.PathLike[str], *, spread: Spread = "none") -> pd.DataFrame:
    """Read agent sessions (JSONL, one session a line, also gzip).

    Times are in seconds; those of a sub-agent whose first one is before its spawn count from the spawn. The end of a turn is `t + api_time`, or
    `t` where `api_time` is not known. Think time is from the end of the turn before in its chain, and of the sub-agents that the turn awaited,
    to its own `t`; for a sub-agent's first turn from the end of the turn that spawned it; 0 for the first turn of a session, and where a turn
    began before that.

    Args:
        path: the file.
        spread: `"uniform"` deals rows that sit on regular ticks out evenly.

    Returns:
        One row a turn, sorted by time: `dispatch_ms`, `isl`, `prefix` (0), `osl` as a replay takes them, then `session` (its id), `agent`
        (`main`, or the sub-agent's name, unique in its session), `turn` (from 0 in its chain), `parent` and `parent_turn` (which turn of
        which agent spawned it; missing and -1 for `main`), `think_ms`, `api_ms` (NaN where not known). `frame.attrs["pages"]` holds the
        `hash_ids` by the frame's index: see `with_prefix`; ids of `"hash_id_scope": "local"` mean nothing outside their session.

    Raises:
        TraceError: the file, a session or a request breaks a rule; the message names the line and the request in it.
    """
    return agent_frame(load(path), spread)


@dataclass
class Turns:
    """The turns of all sessions in file order, column by column.

    Attributes:
        cells: what rules are asked of: `t` (on the session's clock), `in`, `out`, `api_time`.
        labels: `session`, `agent`, `turn`, `parent`, `parent_turn`.
        follows: pairs (turn, a turn that it comes after).
        page_ids: of each turn.
        lines, numbers: where each turn stands: the line, and the request on it.
        unused: keys that were seen and not read.
        relative: sub-agents whose times count from their spawn.
    """

    cells: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in (*TURN_NEEDS, "api_time")})
    labels: dict[str, list[Any]] = field(default_factory=lambda: {key: [] for key in LABELS})
    follows: list[tuple[int, int]] = field(default_factory=list)
    page_ids: PageIds = field(default_factory=PageIds)
    lines: list[int] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    unused: set[str] = field(default_factory=set)
    relative: int = 0


@dataclass
class Session:
    """One line of the file, on its way into the columns."""

    source: Source
    turns: Turns
    name: str
    line: int
    requests: int = 0
    agents: dict[str, int] = field(default_factory=lambda: {MAIN: 1})

    def walk(
        self, requests: Any, agent: str, spawner: tuple[str | None, int, int | None], offset_s: float
    ) -> int | None:
        """The turns of one agent, and of those that it spawns; answers its last turn. `spawner`: agent, turn of its chain, turn of all."""
        if not isinstance(requests, list):
            raise self.source.refusal(f"requests is {shown(requests)}, must be a list; mend the session", self.line)
        parent, parent_turn, last = spawner
        turn, awaited = 0, list[int]()
        for request in requests:
            self.requests += 1
            if not isinstance(request, dict):
                raise self.refusal(f"{shown(request)} is not a JSON object")
            if request.get("type") == "subagent":
                ended = self._spawn(request, (agent, turn - 1, last), offset_s)
                awaited += [] if ended is None else [ended]
                continue
            row = self._turn(request, offset_s)
            labels = (self.name, agent, turn, parent, parent_turn)
            for column, label in zip(self.turns.labels.values(), labels, strict=True):
                column.append(label)
            self.turns.follows += [(row, before) for before in (last, *awaited) if before is not None]
            last, awaited, turn = row, [], turn + 1
        return last if turn else None

    def _spawn(self, request: dict[str, Any], spawner: tuple[str, int, int | None], offset_s: float) -> int | None:
        """A sub-agent: its chain, on the clock of the session."""
        check_keys(self.source, request, AGENT_NEEDS, AGENT_KNOWS, self.line)
        self.turns.unused |= request.keys() & set(AGENT_TELLS)
        spawned, inner = cell(request["t"]), request["requests"]
        if isinstance(spawned, str):
            raise self.refusal(f"t is {shown(spawned)}, must be a finite number")
        first = inner[0].get("t") if isinstance(inner, list) and inner and isinstance(inner[0], dict) else None
        if isinstance(first, int | float) and first < spawned:
            self.turns.relative += 1
            offset_s += spawned
        return self.walk(inner, self._named(request.get("agent_id")), spawner, offset_s)

    def _named(self, label: object) -> str:
        """A name for a sub-agent that no other of its session has."""
        name = label if isinstance(label, str) and label else f"agent_{len(self.agents)}"
        self.agents[name] = self.agents.get(name, 0) + 1
        return name if self.agents[name] == 1 else self._named(f"{name}.{self.agents[name]}")

    def _turn(self, request: dict[str, Any], offset_s: float) -> int:
        """The next turn of all; answers its number."""
        check_keys(self.source, request, TURN_NEEDS, TURN_KNOWS, self.line)
        if (kind := request.get("type", "n")) not in ("n", "s"):
            raise self.refusal(f"type is {shown(kind)}, must be n, s or subagent")
        turns = self.turns
        turns.unused |= request.keys() & set(TURN_TELLS)
        for key, column in turns.cells.items():
            value = cell(request.get(key))
            column.append(value + offset_s if key == "t" and not isinstance(value, str) else value)
        turns.page_ids.add(request.get("hash_ids", []))
        turns.lines.append(self.line)
        turns.numbers.append(self.requests)
        return len(turns.lines) - 1

    def refusal(self, problem: str) -> TraceError:
        """The error that names the line and the request in it."""
        return self.source.refusal(f"request {self.requests}: {problem}", self.line)


def agent_frame(source: Source, spread: Spread) -> pd.DataFrame:
    """`read_agent` on a file that is loaded already."""
    turns = Turns()
    seen: dict[str, int] = {}
    local: list[int] = []
    page_size = 0
    for line, record in objects(source):
        check_keys(source, record, SESSION_NEEDS, SESSION_KNOWS, line)
        name, scope = str(record["id"]), record.get("hash_id_scope", "global")
        page_size = checked(source, record, seen, page_size, line)
        turns.unused |= record.keys() & set(SESSION_TELLS)
        seen[name] = line
        Session(source, turns, name, line).walk(record["requests"], MAIN, (None, -1, None), 0.0)
        local += [len(seen) if scope == "local" else 0] * (len(turns.lines) - len(local))
    if not turns.lines:
        raise source.refusal("no session has a request; a trace needs at least one")
    return assembled(source, turns, np.array(local), page_size, spread)


def checked(source: Source, record: dict[str, Any], seen: dict[str, int], page_size: int, line: int) -> int:
    """The rules of a session; answers its page size, which is the same in the whole file."""
    name, size, scope = record["id"], record["block_size"], record.get("hash_id_scope", "global")
    if type(name) not in (str, int):
        raise source.refusal(f"id is {shown(name)}, must be a text; name the session", line)
    if str(name) in seen:
        raise source.refusal(f"id {shown(name)} is on line {seen[str(name)]} too; give every session its own", line)
    if type(size) is not int or not 0 < size < 2**31:
        raise source.refusal(f"block_size is {shown(size)}, must be a whole number, at least 1", line)
    if page_size and size != page_size:
        raise source.refusal(f"block_size is {size}, and {page_size} before; split the file by block size", line)
    if scope not in ("local", "global"):
        raise source.refusal(f"hash_id_scope is {shown(scope)}, must be local or global", line)
    return size


def assembled(source: Source, turns: Turns, roots: Any, page_size: int, spread: Spread) -> pd.DataFrame:
    """The columns checked, think times, pages, and the frame in order of time."""
    rows = Rows(source, pd.DataFrame(turns.cells), first=1, numbers=turns.lines, within=turns.numbers)
    times_ms = rows.times("t", 1000.0)
    isl, osl = rows.tokens("in", "isl", least=1), rows.tokens("out", "osl", least=1)
    api_ms = rows.durations("api_time", 1000.0)
    turns.page_ids.hold(rows, isl, page_size)
    rows.settle()
    think_ms, overlaps = think(
        times_ms, times_ms + np.nan_to_num(api_ms), np.array(turns.follows, np.int64).reshape(-1, 2)
    )
    sessions, names = pd.factorize(pd.Series(turns.labels["session"]))
    labels: dict[str, Floats | pd.Series] = {
        name: np.array(column, np.float64) if name in ("turn", "parent_turn") else pd.Series(column, dtype="string")
        for name, column in turns.labels.items()
    }
    columns: Columns = {
        "dispatch_ms": times_ms,
        "isl": isl,
        "prefix": np.zeros_like(isl),
        "osl": osl,
        **labels,
        "think_ms": pd.Series(think_ms),
        "api_ms": pd.Series(api_ms),
    }
    pages = replace(turns.page_ids.pages(page_size), sessions=sessions, roots=roots)
    first = np.array(
        [agent == MAIN and turn == 0 for agent, turn in zip(turns.labels["agent"], turns.labels["turn"], strict=True)]
    )
    together = len(names) > 1 and not times_ms[first].any()
    return framed(columns, pages, remarks(turns, int(np.isnan(api_ms).sum()), overlaps, together), spread)


def think(start_ms: Floats, end_ms: Floats, follows: Any) -> tuple[Floats, int]:
    """From the latest end, no later than its start, of what a turn comes after, to that start; and how many began before one of these ended."""
    turn, before = follows.T
    ended = end_ms[before] <= start_ms[turn] + ROUNDING_MS
    latest = np.full(len(start_ms), -np.inf)
    np.maximum.at(latest, turn[ended], end_ms[before[ended]])
    overlaps = len(np.unique(turn[~ended]))
    return np.maximum(0.0, np.where(np.isfinite(latest), start_ms - latest, 0.0)), overlaps


def remarks(turns: Turns, unknown: int, overlaps: int, together: bool) -> list[str]:
    """What a reader should know."""
    total = len(turns.lines)
    notes = []
    if turns.unused:
        notes.append(f"not used: {', '.join(sorted(turns.unused))}"[:190])
    if turns.relative:
        notes.append(f"times of {turns.relative} sub-agents count from their spawn, which has been added")
    if unknown:
        notes.append(f"api_time is missing in {unknown} of {total} turns: taken to end as they begin")
    if overlaps:
        notes.append(
            f"{overlaps} of {total} turns began before one that they come after had ended: it is not counted as think time"
        )
    if together:
        notes.append(
            "every session starts at 0: times count from each session's own start, and a replay starts them all at once"
        )
    return notes
