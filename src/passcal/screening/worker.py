"""Engine options of candidates to what the closed form reads: budget, seats, what is planned ahead, and what KV holds."""

from typing import Any

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
    isl, osl = rows["isl"][here], rows["osl"][here]
    covered = np.ones(len(here), bool)
    for name, values in NEUTRAL[backend].items():
        covered &= take.among(name, values)
    rows["budget"][here], rows["seats"][here], rows["unit"][here] = take(BUDGET[backend]), take(SEATS[backend]), 1.0
    fill = {"vllm": fill_vllm, "sglang": fill_sglang, "trtllm": fill_trtllm}[backend]
    longest, held, let_in = fill(rows, take, here, isl, osl)
    covered &= ~(isl + osl > longest) & ~(held < 1)  # NaN: no limit
    if backend == "sglang":
        covered &= (rows["budget"][here] > 0) & (take("max_prefill_tokens") >= rows["budget"][here])
        rows["budget"][here] = np.maximum(rows["budget"][here], 1.0)
    needed = np.where(rows["rate"][here] > 0, rows["seats"][here], rows["clients"][here])
    fits = ~(held < np.minimum(needed, rows["seats"][here]))
    rows["covered"][here], rows["proven"][here] = covered, fits
    rows["in_kv"][here] = np.where(fits, np.inf, np.maximum(let_in, 1.0))
    rows["kv"][here] = np.where(np.isnan(let_in), np.inf, let_in)


def fill_vllm(rows: Any, take: Any, here: Any, isl: Any, osl: Any) -> tuple[Any, Any, Any]:
    """Calendar and lookahead; returns the longest request, and how many requests KV holds whole, and on average."""
    budget, seats = rows["budget"][here], rows["seats"][here]
    if (budget < seats).any():
        at = int(np.argmax(budget < seats))
        raise SpecError(
            f"max_num_batched_tokens={budget[at]:.0f}: must be at least max_num_seqs={seats[at]:.0f}; raise the one or lower the other"
        )
    ahead = take("async_scheduling")
    rows["calendar"][here], rows["ahead"][here] = VLLM, np.where(np.isnan(ahead), 1.0, ahead)
    size, blocks = take("block_size"), take("num_gpu_blocks")
    pool = blocks - 1 - np.floor(take("watermark") * blocks)
    held, let_in = pool // np.ceil((isl + osl - 1) / size), pool // np.ceil((isl + osl / 2) / size)
    return take("max_model_len"), held, let_in


def fill_sglang(rows: Any, take: Any, here: Any, isl: Any, osl: Any) -> tuple[Any, Any, Any]:
    """The same for SGLang, which reserves whole outputs."""
    rows["calendar"][here] = np.where(take("enable_mixed_chunk") > 0, SGLANG_MIXED, ALTERNATING)
    rows["ahead"][here] = 1.0 - take("disable_overlap_schedule")
    held = (take("max_total_tokens") - 1) // (isl + np.minimum(osl, CLIP) + 2)
    return take("context_length") - 1, held, held


def fill_trtllm(rows: Any, take: Any, here: Any, isl: Any, osl: Any) -> tuple[Any, Any, Any]:
    """The same for TensorRT-LLM, which reserves whole outputs unless it may pause requests."""
    past = rows["past"][here]
    if past.any():
        raise Unsupported(
            f"trtllm: prefix={past.max():.0f}: block reuse is not modelled; give prompts without a prefix"
        )
    rows["calendar"][here] = TRTLLM
    rows["ahead"][here] = take("overlap_scheduler") * np.where(take("admission_lookahead") == 0, 0.0, 1.0)
    size, unit = take("tokens_per_block"), take("chunk_unit")
    rows["unit"][here] = np.where(np.isnan(unit), size, unit)
    starved = rows["budget"][here] < rows["unit"][here]
    if starved.any():
        at = here[int(np.argmax(starved))]
        raise SpecError(
            f"max_num_tokens={rows['budget'][at]:.0f}: must be at least the chunk unit of {rows['unit'][at]:.0f}; raise it, or lower chunk_unit"
        )
    held = take("max_tokens_in_kv") // size // np.ceil((isl + osl) / size)
    average = take("max_tokens_in_kv") // size // np.ceil((isl + osl / 2) / size)
    return take("max_seq_len"), held, np.where(take.among("capacity_policy", ("GUARANTEED_NO_EVICT",)), held, average)
