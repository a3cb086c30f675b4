"""Drives the kernel: grows its tables, asks Python timing models, and turns its stops into answers or errors."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from passcal.core.plan import PassShape
from passcal.core.rank import HELD_BUDGET
from passcal.core.tables import NOBODY, State, grown
from passcal.errors import Stalled, TimingError
from passcal.kernel import AGAIN, ASK, GROW, SLICE, STALLED, run
from passcal.progress import tell
from passcal.timing.base import TimingModel

__all__ = ["IdentitiesNeeded", "Machine", "priced"]


class IdentitiesNeeded(Exception):
    """Cached KV could be hit that was only counted: assemble the run again, with identities."""


SLICE_PASSES = 200_000  # so that Ctrl-C and progress wait for a fraction of a second
BY_REQUEST = ("sglang_lives", "trtllm_lives", "vllm_lives")  # tables of an engine with a row a request


class Machine:
    """A run in progress: the tables, the timing models that price its passes, one a stage, and how to build the same run at time zero."""

    def __init__(self, state: State, timings: tuple[TimingModel, ...], rebuild: "Callable[[], Machine]") -> None:
        self.state = state
        self.timings = timings
        self.rebuild = rebuild
        self._prices: list[dict[PassShape, float] | None] = [{} if getattr(t, "pure", False) else None for t in timings]

    @property
    def world(self) -> Any:
        """The WORLD row."""
        return self.state.world[0]

    @property
    def rank(self) -> Any:
        """The RANK row, of the first rank."""
        return self.state.ranks[0]

    @property
    def by_content(self) -> bool:
        """Whether some rank keeps KV by content."""
        return bool(self.state.ranks["identities"].any())

    def advance(self, passes: int) -> int:
        """Run until the kernel's own conditions hold or this many more passes have been planned; returns DONE, SLICE or CYCLE.

        Raises:
            Stalled: nothing can run any more though requests wait.
            IdentitiesNeeded: the run must be assembled again with identities.
            TimingError: the timing model raised or answered with something that is not a duration.
        """
        self.world["until_pass"] = self.world["passes"] + passes
        apart = 1 if self.world["stages"] > 1 else None
        while True:
            reason = int(run(self.state, apart))
            if reason == ASK:
                self.world["answer_ms"] = self._ask()
            elif reason == GROW:
                self._grow()
            elif reason == AGAIN:
                raise IdentitiesNeeded
            elif reason == STALLED:
                raise Stalled(self._why_stalled())
            else:
                return reason

    def finish(self) -> None:
        """Run until the kernel's own conditions hold, however many passes it takes; raises as `advance` does."""
        while self.advance(SLICE_PASSES) == SLICE:
            tell(int(self.world["done"]), int(self.world["limit"]))

    def _grow(self) -> None:
        state, world = self.state, self.world
        if world["runs"] + 4 * len(state.ranks) + 1 > len(state.runs):
            state = state._replace(runs=grown(state.runs, 0))
        listed = int(world["stalls"]) + state.running.size * (1 + int(world["most_drafts"]))
        if listed > len(state.stalls):
            state = state._replace(stalls=grown(state.stalls, listed))
        more = min(
            int(world["limit"] - world["sent"]), int(world["unborn"]) + min(state.running.size, int(world["clients"]))
        )
        wanted = int(world["rows"]) + more
        while (state.ranks["identities"] * (state.ranks["slots_free"] < slots_wanted(state))).any():
            state = more_slots(state)
        if world["stages"] > 1 and int(world["transfers"]) + len(state.leaving) > len(state.transfers):
            state = state._replace(transfers=grown(state.transfers, 0))
        if world["closed"] and wanted > len(state.requests):
            state = more_requests(state, wanted)
        self.state = state

    def _ask(self) -> float:
        sums, stage = self.state.shape[0], int(self.state.ranks["form"][self.world["cursor"]])
        timing, prices = self.timings[stage], self._prices[stage]
        chunks = int(sums["prefill_requests"])
        shape = PassShape(
            chunks,
            int(sums["prefill_tokens"]),
            int(sums["prefill_kv_tokens"]),
            int(sums["decode_requests"]),
            int(sums["decode_kv_tokens"]),
            tuple(map(tuple, self.state.chunks[:chunks].tolist())),
            int(sums["prefill_partial"]) == 0,
            int(sums["draft_tokens"]),
        )
        if prices is None:
            return priced(timing, shape)
        answer = prices.get(shape)
        if answer is None:
            answer = prices[shape] = priced(timing, shape)
        return answer

    def _why_stalled(self) -> str:
        state = self.state
        stuck = np.flatnonzero(state.ranks["waiting_head"] >= 0)
        asking = np.flatnonzero(state.ranks["asking_head"] >= 0)
        if not len(stuck) and len(asking):
            rank = state.ranks[int(asking[0])]
            tokens, free, all_ = (
                int(state.legs[int(rank["asking_head"])]["isl"]),
                int(rank["free"]),
                int(rank["usable"]),
            )
            return f"stalled: a hand-off of {tokens} tokens waits for KV of which {free} of {all_} units are free, and nothing will end; give more KV (D6)"
        if not len(stuck):
            return "stalled: no request waits and none will arrive, though some are not done; please report this input"
        rank = state.ranks[int(stuck[0])]
        i = int(rank["waiting_head"])
        tokens = int(state.legs[i]["isl"]) + int(state.sequences[i]["generated"])
        who = f"stalled: a prompt of {tokens} tokens (output so far included) can never be admitted"
        if rank["held_by"] == HELD_BUDGET:
            return f"{who} with max_num_batched_tokens={int(rank['budget'])} and chunked prefill off; raise the budget"
        free, size, mark = int(rank["free"]), int(rank["block_size"]), int(rank["mark"])
        return f"{who} with {free} free blocks of {size} and {mark} kept by the watermark; give more blocks"


def slots_wanted(state: State) -> int:
    """Block tables that the kernel wants to be free on each rank: of a pass, or of all hand-offs that may come at an instant."""
    return len(state.gone) if state.world["stages"][0] > 1 else state.running.shape[1]


def more_requests(state: State, wanted: int) -> State:
    """Room for at least so many requests; their legs are the same table where there is one stage."""
    legs, hops = int(state.world["stages"][0]), int(state.world["stages"][0]) - 1
    requests = grown(state.requests, wanted)
    rows = {"requests": requests, "sequences": grown(state.sequences, wanted * legs)}
    rows["legs"] = grown(state.legs, wanted * legs) if hops else requests
    if hops:
        rows["hands"] = grown(state.hands, wanted * hops)
    for name in BY_REQUEST:
        if len(getattr(state, name)) > 1:
            rows[name] = grown(getattr(state, name), wanted * legs)
    return state._replace(**rows)


def more_slots(state: State) -> State:
    """Twice the block tables of the prefix cache; new slots are free."""
    ranks, slots, width = state.tables.shape
    tables, stack = np.zeros((ranks, 2 * slots, width), np.int64), np.zeros((ranks, 2 * slots), np.int64)
    tables[:, :slots] = state.tables
    for k in range(ranks):
        free = int(state.ranks[k]["slots_free"])
        stack[k, :free], stack[k, free : free + slots] = state.slots[k, :free], np.arange(slots, 2 * slots)
        state.ranks[k]["slots_free"] += slots
    contents = np.concatenate([state.contents, np.full((ranks, slots * width), NOBODY)], axis=1)
    return state._replace(tables=tables, slots=stack, contents=contents)


def priced(timing: TimingModel, shape: PassShape) -> float:
    """The model's answer for this shape, checked."""
    brief = f"{shape.prefill_requests} chunks of {shape.prefill_tokens} tokens, {shape.decode_requests} rows of {shape.decode_kv_tokens}"
    try:
        answer: Any = timing.pass_ms(shape)
    except Exception as error:
        raise TimingError(
            f"pass_ms raised {type(error).__name__}: {str(error)[:60]} for a pass of {brief}; mend the model"[:199]
        ) from error
    try:
        number = float(answer) if not isinstance(answer, str | bytes | bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or number < 0:
        value = repr(answer)[:30]
        raise TimingError(
            f"pass_ms={value} for a pass of {brief}: must be a finite number of ms, not negative; mend the model"[:199]
        )
    return number
