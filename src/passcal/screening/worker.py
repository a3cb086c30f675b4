"""Engine options of candidates to what the closed form reads: budget, seats, what is planned ahead, and what KV holds."""

from typing import Any, NamedTuple

import numpy as np

from passcal.errors import SpecError, Unsupported
from passcal.screening.columns_in import Coded, Columns, given, number
from passcal.screening.options import BUDGET, NEUTRAL, SEATS, default
from passcal.screening.tables import ALTERNATING, SGLANG_MIXED, TRTLLM, VLLM

__all__ = ["fill_worker"]

CLIP = 4096  # outputs beyond this SGLang does not reserve (S6)


class Options:
    """Options of one backend in its rows."""

    def __init__(self, backend: str, columns: Columns, here: Any) -> None:
        self.backend, self.here = backend, here
        self.columns = {
            name: Coded(column.codes[here], column.values) if isinstance(column, Coded) else column[here]
            for name, column in columns.items()
            if name in NEUTRAL[backend] or default(backend, name) is not Ellipsis
        }

    def __call__(self, name: str) -> Any:
        """Its numbers, the engine's default where a row has none; NaN stands for None."""
        return number(self.columns, name, default(self.backend, name))

    def among(self, name: str, values: tuple[Any, ...]) -> Any:
        """Where an option is left alone, or has one of these values."""
        if name not in self.columns:
            return default(self.backend, name) in (None, *values)
        column = self.columns[name]
        if not isinstance(column, Coded):
            return ~given(column) | np.isin(column, np.array(values, float))
        allowed = np.array([*(value in values for value in column.values), True])  # the last: no value
        return allowed[column.codes]


def fill_worker(rows: Any, backend: str, columns: Columns, here: Any) -> None:
    """Fill the rows `here`, all of one backend.

    Raises:
        SpecError: a budget below the seats, or below a chunk's unit.
        Unsupported: a prefix where it is not modelled.
    """
    take = Options(backend, columns, here)
    covered = np.ones(len(here), bool)
    for name, values in NEUTRAL[backend].items():
        covered &= take.among(name, values)
    isl, osl, past = (rows[name][here] for name in ("isl", "osl", "past"))
    sizes = Sizes(isl, osl, past, take(BUDGET[backend]), take(SEATS[backend]))
    reads = {"vllm": read_vllm, "sglang": read_sglang, "trtllm": read_trtllm}[backend]
    known, longest, held, let_in = reads(take, sizes)
    covered &= ~(isl + osl > longest)  # NaN: no limit
    known |= {"proven": 1.0, "in_kv": np.inf, "kv": np.inf, "seats": sizes.seats}
    if np.ndim(held):  # memory may bind
        covered &= ~(held < 1)
        needed = np.where(rows["rate"][here] > 0, sizes.seats, rows["clients"][here])
        fits = ~(held < np.minimum(needed, sizes.seats))
        known |= {"proven": fits, "in_kv": np.where(fits, np.inf, np.maximum(let_in, 1.0))}
        known["kv"] = np.where(np.isnan(let_in), np.inf, let_in)
    known["covered"] = covered & known.get("covered", True)
    for name, values in known.items():
        rows[name][here] = values


class Sizes(NamedTuple):
    """Of rows of one backend."""

    isl: Any
    osl: Any
    past: Any
    budget: Any
    seats: Any


# fields, the longest request, and how many requests KV holds whole, and on average
Read = tuple[dict[str, Any], Any, Any, Any]


def read_vllm(take: Options, sizes: Sizes) -> Read:
    """Calendar, budget and lookahead, and what limits."""
    budget, seats = sizes.budget, sizes.seats
    if np.any(budget < seats):
        at = int(np.argmax(budget < seats))
        most, least = (float(np.broadcast_to(values, sizes.isl.shape)[at]) for values in (budget, seats))
        raise SpecError(
            f"max_num_batched_tokens={most:.0f}: must be at least max_num_seqs={least:.0f}; raise the one or lower the other"
        )
    ahead = take("async_scheduling")
    known = {"calendar": VLLM, "budget": budget, "unit": 1.0, "ahead": np.where(np.isnan(ahead), 1.0, ahead)}
    size, blocks = take("block_size"), take("num_gpu_blocks")
    pool = blocks - 1 - np.floor(take("watermark") * blocks)
    whole, average = sizes.isl + sizes.osl - 1, sizes.isl + sizes.osl / 2
    if not np.ndim(pool):
        return known, take("max_model_len"), np.nan, np.nan
    return known, take("max_model_len"), pool // np.ceil(whole / size), pool // np.ceil(average / size)


def read_sglang(take: Options, sizes: Sizes) -> Read:
    """The same for SGLang, which reserves whole outputs."""
    budget = sizes.budget
    known = {"calendar": np.where(take("enable_mixed_chunk") > 0, SGLANG_MIXED, ALTERNATING), "unit": 1.0}
    known |= {"ahead": 1.0 - take("disable_overlap_schedule"), "budget": np.maximum(budget, 1.0)}
    known["covered"] = (budget > 0) & (take("max_prefill_tokens") >= budget)
    tokens = take("max_total_tokens")
    held = (tokens - 1) // (sizes.isl + np.minimum(sizes.osl, CLIP) + 2) if np.ndim(tokens) else np.nan
    return known, take("context_length") - 1, held, held


def read_trtllm(take: Options, sizes: Sizes) -> Read:
    """The same for TensorRT-LLM, which reserves whole outputs unless it may pause requests."""
    if sizes.past.any():
        raise Unsupported(
            f"trtllm: prefix={sizes.past.max():.0f}: block reuse is not modelled; give prompts without a prefix"
        )
    size, unit = take("tokens_per_block"), take("chunk_unit")
    unit = np.where(np.isnan(unit), size, unit)
    starved = sizes.budget < unit
    if np.any(starved):
        most, least = (
            float(np.broadcast_to(v, sizes.isl.shape)[int(np.argmax(starved))]) for v in (sizes.budget, unit)
        )
        raise SpecError(
            f"max_num_tokens={most:.0f}: must be at least the chunk unit of {least:.0f}; raise it, or lower chunk_unit"
        )
    ahead = take("overlap_scheduler") * np.where(take("admission_lookahead") == 0, 0.0, 1.0)
    known = {"calendar": TRTLLM, "budget": sizes.budget, "unit": unit, "ahead": ahead}
    tokens = take("max_tokens_in_kv")
    if not np.ndim(tokens):
        return known, take("max_seq_len"), np.nan, np.nan
    held = tokens // size // np.ceil((sizes.isl + sizes.osl) / size)
    average = tokens // size // np.ceil((sizes.isl + sizes.osl / 2) / size)
    let_in = np.where(take.among("capacity_policy", ("GUARANTEED_NO_EVICT",)), held, average)
    return known, take("max_seq_len"), held, let_in
