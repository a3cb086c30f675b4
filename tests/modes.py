"""Every backend in its main modes: what is fixed there, what may be drawn beside it, what no pass may exceed, what the engine promises."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from hypothesis import strategies as st

import passcal as pc

__all__ = ["MODES", "Limits", "Mode", "evicts_the_newest", "in_order", "limits", "never_pauses", "pooled", "sleeps_on"]

Rows = list[tuple[int, int, int]]  # isl, prefix, osl


@dataclass(frozen=True)
class Mode:
    """A backend, the options that make the mode, and how many of a profile's examples it gets."""

    backend: str
    fixed: dict[str, Any] = field(default_factory=dict)
    share: float = 0.2

    def options(self, rows: Rows) -> st.SearchStrategy[dict[str, Any]]:
        """Options under which all of these rows can run; KV is often tight."""
        return OPTIONS[self.backend](rows, self.fixed)

    def pressed(self, seats: int, budget: int, kv_tokens: int, block: int = 16) -> dict[str, Any]:
        """Options with these limits; where it has the choice, the engine admits more than it can hold to the end."""
        return self.fixed | PRESSED[self.backend](seats, budget, kv_tokens // block * block, block)

    @property
    def prefixes(self) -> bool:
        """Whether prompts may have a cached prefix."""
        return self.backend != "trtllm"


@dataclass(frozen=True)
class Limits:
    """What no pass may exceed: tokens (None: no limit), seats, and KV in blocks (None: no limit) of so many tokens."""

    budget: int | None
    seats: int
    blocks: int | None
    block: int


def limits(spec: pc.EngineSpec) -> Limits:
    """The limits of an engine in common words."""
    if isinstance(spec, pc.Vllm):
        blocks = None if spec.num_gpu_blocks is None else spec.num_gpu_blocks - 1
        return Limits(spec.max_num_batched_tokens, spec.max_num_seqs, blocks, spec.block_size)
    if isinstance(spec, pc.Sglang):
        pages = None if spec.max_total_tokens is None else spec.max_total_tokens // spec.page_size
        chunk = spec.chunked_prefill_size
        return Limits(chunk if chunk > 0 else None, spec.max_running_requests, pages, spec.page_size)
    blocks = None if spec.max_tokens_in_kv is None else spec.max_tokens_in_kv // spec.tokens_per_block
    return Limits(spec.max_num_tokens, spec.max_batch_size, blocks, spec.tokens_per_block)


def pooled(spec: pc.EngineSpec, tokens: int | None) -> dict[str, Any]:
    """Options that give an engine so many tokens of KV, or memory that never binds."""
    if isinstance(spec, pc.Vllm):
        return {"num_gpu_blocks": None if tokens is None else tokens // spec.block_size + 1, "watermark": 0.0}
    return {"max_total_tokens" if isinstance(spec, pc.Sglang) else "max_tokens_in_kv": tokens}


def in_order(spec: pc.EngineSpec) -> bool:
    """Whether requests are admitted first come first served; TensorRT-LLM lets a shorter prompt overtake one that got no whole unit (T9)."""
    if isinstance(spec, pc.Trtllm) and spec.enable_chunked_prefill:
        return spec.chunk_policy == "FCFS" and spec.unit == 1
    return True


def never_pauses(spec: pc.EngineSpec) -> bool:
    """Whether a row that is not evicted gets its token in every pass; SGLang's prefills pause it, and so does MAX_UTILIZATION (S2, T2)."""
    if isinstance(spec, pc.Trtllm):
        return spec.capacity_policy != "MAX_UTILIZATION"
    return isinstance(spec, pc.Vllm)


def evicts_the_newest(spec: pc.EngineSpec) -> bool:
    """Whether victims are the newest, so that the oldest always gets on; SGLang looks at outputs instead (S13)."""
    return not isinstance(spec, pc.Sglang)


def sleeps_on(spec: pc.EngineSpec) -> bool:
    """Whether an idle engine may wait for an arrival though requests wait, as recorded of SGLang between prefills (S1, S14)."""
    return isinstance(spec, pc.Sglang) and spec.prefill_decode_interval > 0


@st.composite
def vllm(draw: st.DrawFn, rows: Rows, fixed: dict[str, Any]) -> dict[str, Any]:
    """Options of vLLM."""
    seats, chunked = draw(st.sampled_from([64, 5, 2, 1])), draw(st.booleans())
    longest = max(isl + osl for isl, _, osl in rows)
    options: dict[str, Any] = fixed | {
        "max_num_seqs": seats,
        "max_num_batched_tokens": draw(st.integers(max(seats, 1 if chunked else longest), 1500)),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 0, 64, 256])),
    }
    if draw(st.sampled_from([True, True, False])):
        size = draw(st.sampled_from([1, 16, 32]))
        needed = -(-longest // size) + 1
        options |= {
            "block_size": size,
            "num_gpu_blocks": draw(st.integers(needed, 2 * needed)),
            "scheduler_reserve_full_isl": draw(st.booleans()),
            "watermark": draw(st.sampled_from([0.0, 0.0, 0.05])),
            "enable_prefix_caching": draw(st.sampled_from([False, False, True])),
        }
    return options


@st.composite
def sglang(draw: st.DrawFn, rows: Rows, fixed: dict[str, Any]) -> dict[str, Any]:
    """Options of SGLang; the pool leaves every output its full length (S17)."""
    page = draw(st.sampled_from([1, 1, 4, 16]))
    chunks = st.integers(page, 800)
    options: dict[str, Any] = fixed | {
        "chunked_prefill_size": draw(chunks if fixed["enable_mixed_chunk"] else st.one_of(st.just(-1), chunks)),
        "max_prefill_tokens": draw(st.sampled_from([16384, 300])),
        "max_running_requests": draw(st.sampled_from([64, 5, 2, 1])),
        "page_size": page,
        "schedule_conservativeness": draw(st.sampled_from([1.0, 0.1, 0.1])),
        "prefill_decode_interval": draw(st.sampled_from([0, 0, 2])),
        "ignore_eos": draw(st.sampled_from([True, False, False])),
        "disable_radix_cache": draw(st.booleans()),
    }
    if draw(st.sampled_from([True, True, False])):
        needed = -(-max(isl + osl for isl, _, osl in rows) // page) + 4
        options["max_total_tokens"] = draw(st.integers(needed, 2 * needed)) * page
    return options


@st.composite
def trtllm(draw: st.DrawFn, rows: Rows, fixed: dict[str, Any]) -> dict[str, Any]:
    """Options of TensorRT-LLM."""
    chunked, size = draw(st.booleans()), draw(st.sampled_from([1, 4, 16, 32]))
    longest = max(isl + osl for isl, _, osl in rows)
    options: dict[str, Any] = fixed | {
        "tokens_per_block": size,
        "max_batch_size": draw(st.sampled_from([64, 5, 2, 1])),
        "enable_chunked_prefill": chunked,
        "max_num_tokens": draw(st.integers(64 if chunked else longest, 1500)),
        "batch_wait_timeout_iters": draw(st.sampled_from([0, 0, 2])),
        "batch_wait_max_tokens_ratio": 0.5,
    }
    if chunked:
        options |= {
            "chunk_policy": draw(st.sampled_from(["FCFS", "FCFS", "EQUAL_PROGRESS"])),
            "chunk_unit": draw(st.sampled_from([None, 1, 64])),
        }
    if draw(st.sampled_from([True, True, False])):
        needed = -(-longest // size)
        options["max_tokens_in_kv"] = draw(st.integers(needed, 2 * needed)) * size + draw(st.integers(0, size - 1))
    return options


OPTIONS: dict[str, Callable[[Rows, dict[str, Any]], st.SearchStrategy[dict[str, Any]]]] = {
    "vllm": vllm,
    "sglang": sglang,
    "trtllm": trtllm,
}
PRESSED: dict[str, Callable[[int, int, int, int], dict[str, Any]]] = {
    "vllm": lambda seats, budget, kv, block: {
        "max_num_seqs": seats,
        "max_num_batched_tokens": budget,
        "num_gpu_blocks": kv // block,
        "block_size": block,
    },
    "sglang": lambda seats, budget, kv, page: {
        "max_running_requests": seats,
        "chunked_prefill_size": budget,
        "max_total_tokens": kv,
        "page_size": page,
        "ignore_eos": False,
        "schedule_conservativeness": 0.1,
        "disable_radix_cache": page == 1,  # either way
    },
    "trtllm": lambda seats, budget, kv, block: {
        "max_batch_size": seats,
        "max_num_tokens": budget,
        "max_tokens_in_kv": kv,
        "tokens_per_block": block,
    },
}
MODES = {
    "vllm sync": Mode("vllm", {"async_scheduling": False}, 0.5),
    "vllm async": Mode("vllm", {"async_scheduling": True}, 0.5),
}
for mixed, overlap in product((False, True), (False, True)):
    name = f"sglang {'mixed' if mixed else 'alternating'}{' overlap' if overlap else ''}"
    MODES[name] = Mode("sglang", {"enable_mixed_chunk": mixed, "disable_overlap_schedule": not overlap})
for policy, overlap in product(("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"), (False, True)):
    name = f"trtllm {policy}{' overlap' if overlap else ''}"
    MODES[name] = Mode("trtllm", {"capacity_policy": policy, "overlap_scheduler": overlap})
