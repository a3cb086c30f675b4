"""When every output token appears, as array functions of the log.

A request emits at its first pass, then in every pass of its rank that has decode rows, unless the log lists a stall: a pass without decode
rows pauses whoever runs (SGLang), and a stall says in which pass the pause of one request ended (preemption, a row left out).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from passcal.core.tables import State
from passcal.core.tandem_tables import FIRST_DECODE_PASS
from passcal.passes import expand, repetition
from passcal.window import Measured

__all__ = ["Emissions", "emissions", "pass_table", "token_times"]

LOGGED = ("engine", "prefill_tokens", "prefill_requests", "prefill_kv_tokens", "decode_requests")
RANK_BITS = 44  # a pass is found by rank << RANK_BITS | number


def pass_table(measured: Measured) -> dict[str, Any]:
    """One entry a pass, by start and then by engine: times (ms), chunks and rows; contexts of repeated passes grow by one a row."""
    row, start, end = expand(measured.state, measured.runs)
    runs = measured.state.runs
    table = {"start_ms": start, "end_ms": end, **{name: runs[name][row] for name in LOGGED}}
    later = repetition(measured.state, measured.runs, row)
    table["decode_kv_tokens"] = runs["decode_kv_tokens"][row] + later * runs["decode_requests"][row]
    if len(measured.state.ranks) > 1:  # the log is in order of launches, and ranks look ahead
        order = np.lexsort((table["engine"], start))
        table = {name: column[order] for name, column in table.items()}
    return table


@dataclass(frozen=True)
class Emissions:
    """The log as tokens need it: passes by rank and number, stalls by request and time.

    Attributes:
        state: the tables.
        keys: rank and number of each pass, ascending.
        ends: when each ends (ms).
        upto: passes with decode rows up to each, itself included.
        decodes: places of these passes.
        stalls: rows of STALL.
    """

    state: State
    keys: Any
    ends: Any
    upto: Any
    decodes: Any
    stalls: Any

    def places(self, requests: Any, numbers: Any) -> Any:
        """Where the passes with these numbers, on the ranks of these requests, stand."""
        ranks = self.state.legs["engine"][requests].astype(np.int64)
        return np.searchsorted(self.keys, ranks << RANK_BITS | numbers)

    def of(self, rows: slice) -> tuple[Any, Any]:
        """All tokens (ms) of these rows of the request table, one request after the other, and where each request's begin."""
        state = self.state
        stages = int(state.world["stages"][0])
        if stages == 1:
            return self.emitted(np.arange(rows.start, rows.stop), state.requests["osl"][rows].astype(np.int64))
        before = 1 - int(state.hops["first_token"][-1] == FIRST_DECODE_PASS)  # shown before the last stage emits any
        table = state.requests[rows]
        tokens = table["osl"].astype(np.int64)
        heads = np.cumsum(tokens) - tokens
        went = np.flatnonzero(tokens > before)
        last = (rows.start + went) * stages + stages - 1
        times, _ = self.emitted(last, tokens[went] - before)
        if before:
            times = np.insert(times, heads - np.arange(len(heads)), table["first_ms"])
        return times, heads

    def emitted(self, ids: Any, osl: Any) -> tuple[Any, Any]:
        """All tokens (ms) that these legs emitted, so many each, one leg after the other, and where each leg's begin.

        A leg's tokens fall into stretches: one from its first token on, and one from the end of each of its stalls on.
        """
        heads = np.cumsum(osl) - osl
        if not len(ids):
            return np.zeros(0), heads
        table, stalled = self.state.legs[ids], self.stalls["request"]
        stalls = self.stalls[np.searchsorted(stalled, ids[0]) : np.searchsorted(stalled, ids[-1] + 1)]
        rank = self.state.ranks[0]
        if rank["launching"] or rank["selecting"]:  # every token but the first is listed (V14, S19)
            return np.insert(stalls["end_ms"], np.searchsorted(stalls["request"], ids), table["first_ms"]), heads
        begins, request = self.places(ids, table["first_pass"]), ids
        tokens = osl
        if len(stalls):
            before = np.searchsorted(stalls["request"], ids)  # stalls of earlier requests
            begins = np.insert(self.places(stalls["request"], stalls["to_pass"]), before, begins)
            request = np.insert(stalls["request"], before, ids)
            tokens = self._stretches(stalls, before, begins, request, osl)
        token = np.arange(int(osl.sum())) - np.repeat(np.cumsum(tokens) - tokens, tokens)
        if len(self.decodes) == len(self.ends):
            return self.ends[np.repeat(begins, tokens) + token], heads
        places, later = np.repeat(begins, tokens), token > 0
        places[later] = self.decodes[(np.repeat(self.upto[begins] - 1, tokens) + token)[later]]
        return self.ends[places], heads

    def _stretches(self, stalls: Any, before: Any, begins: Any, request: Any, osl: Any) -> Any:
        """Tokens of each stretch: up to the pass in which a stall begins, and what is left of the output for a request's last one."""
        last = np.append(request[1:] != request[:-1], True)
        tokens = np.zeros(len(begins), np.int64)
        ends = self.places(stalls["request"], stalls["from_pass"])
        tokens[~last] = 1 + self.upto[ends] - self.upto[begins[~last]]
        given = np.cumsum(tokens)[last]
        tokens[last] = osl - np.diff(given, prepend=0)
        return tokens


def emissions(measured: Measured) -> Emissions:
    """Put the log in the order that tokens need; the log goes on beyond the window, to the end of its last request."""
    state, world = measured.state, measured.state.world[0]
    runs = slice(0 if len(state.ranks) > 1 else measured.runs.start, int(world["runs"]))
    row, _, ends = expand(state, runs)
    keys = state.runs["number"][row] + repetition(state, runs, row)
    decodes = state.runs["decode_requests"][row] > 0
    if len(state.ranks) > 1:
        keys += state.runs["engine"][row].astype(np.int64) << RANK_BITS
        order = np.argsort(keys, kind="stable")
        keys, ends, decodes = keys[order], ends[order], decodes[order]
    stalls = state.stalls[: int(world["stalls"])]
    stalls = stalls[np.argsort(stalls["request"], kind="stable")]  # within a request they stand in order of time
    return Emissions(state, keys, ends, np.cumsum(decodes), np.flatnonzero(decodes), stalls)


def token_times(measured: Measured) -> list[Any]:
    """One ascending array of ms for each request of the window, in dispatch order."""
    times, heads = emissions(measured).of(measured.rows)
    return np.split(times, heads[1:])
