"""vLLM's part of the tables, and what its scheduler can never run."""

from typing import Any

import numpy as np

from passcal.calendar.backends import BACKENDS
from passcal.core.compiled import table
from passcal.core.engine_tables import BLOCK, LAUNCH, OUT, VLLM_LIFE
from passcal.core.tables import LISTS, NOBODY
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths, clipped, empty_rank
from passcal.spec.engine import Vllm

__all__ = ["fit_vllm"]


def fit_vllm(engine: Vllm, lengths: Lengths, identities: bool) -> Fitting:
    """Knobs, pool and, where prompts can hit cached blocks, the tables of the prefix cache.

    Raises:
        Unsupported: options that are not modelled together.
        SpecError: a request that can never run.
    """
    most = clipped(lengths, engine.max_model_len, "max_model_len")
    osl = np.minimum(lengths.osl, most)
    check_fit(engine, lengths, osl)
    seats = min(engine.max_num_seqs, lengths.alive)
    rank = rank_row(engine)
    if (most > osl).any():
        stop_tokens(engine, rank)
    grouped = engine.enable_prefix_caching and bool((lengths.group >= 0).any())
    fixed: dict[str, Any] = {}
    room = 0
    if grouped and engine.num_gpu_blocks is None:  # what was computed once stays
        rank["caching"], rank["sharing"] = 1, 1
    elif grouped:
        fixed, room = cache_tables(engine, lengths, osl, rank, seats)
    if engine.launch is not None:
        fixed |= launch_tables(engine, lengths, rank, seats)
        room += 4 + 2 * seats + lengths.alive
    lives = {"vllm_lives": VLLM_LIFE} if rank["drafts"][0] or rank["offload"][0] else {}
    room += (3 * seats + lengths.alive) * len(lives)
    return Fitting(rank, seats, osl, most, fixed, lives, room, width=engine.data_parallel_size)


def check_fit(engine: Vllm, lengths: Lengths, osl: Any) -> None:
    """Requests that the engine could never run are refused before the run (V6, V11)."""
    budget, longest = engine.max_num_batched_tokens, int(lengths.isl.max())
    if not engine.enable_chunked_prefill and longest > budget:
        raise SpecError(
            f"isl={longest}: exceeds max_num_batched_tokens={budget} with chunked prefill off and can never run; raise the budget"
        )
    if engine.num_gpu_blocks is None:
        return
    usable, size = engine.num_gpu_blocks - 1, engine.block_size
    need = -(-int((lengths.isl + osl - 1).max()) // size)
    if need > usable:
        raise SpecError(
            f"num_gpu_blocks={engine.num_gpu_blocks}: the longest request needs {need} of {usable} usable blocks; give more blocks"
        )


def rank_row(engine: Vllm) -> Any:
    """RANK[1] of a worker."""
    ranks = empty_rank()
    r = ranks[0]
    r["backend"] = BACKENDS["vllm"].code
    r["budget"], r["max_seats"], r["chunked"] = (
        engine.max_num_batched_tokens,
        engine.max_num_seqs,
        engine.enable_chunked_prefill,
    )
    r["long_prefill"], r["interval"] = engine.long_prefill_token_threshold, engine.prefill_schedule_interval
    r["lookahead"] = engine.async_scheduling is not False
    r["block_size"], r["reserve_full"] = engine.block_size, engine.scheduler_reserve_full_isl
    if engine.speculation is not None:
        r["drafts"], r["accepted"] = engine.speculation.drafts, engine.speculation.accepted
    r["offload"] = engine.host_offload and engine.num_gpu_blocks is not None
    r["crowded"] = engine.long_prefill_token_threshold == 0 and not (r["drafts"] or r["offload"])
    if engine.num_gpu_blocks is not None:
        r["memory"], r["caching"] = 1, engine.enable_prefix_caching
        r["usable"] = r["free"] = r["blank"] = engine.num_gpu_blocks - 1
        r["mark"] = int(engine.watermark * engine.num_gpu_blocks)
    return ranks


def stop_tokens(engine: Vllm, rank: Any) -> None:
    """Some requests end by a stop token, which an async plan does not foresee: a row of it is wasted, so rows are kept one by one.

    Raises:
        Unsupported: with options under which that is not modelled.
    """
    for name, value in (
        ("launch", engine.launch),
        ("speculation", engine.speculation),
        ("host_offload", engine.host_offload),
    ):
        if value:
            raise Unsupported(f"vllm: max_tokens above osl is not modelled with {name}; leave out the one or the other")
    if rank["lookahead"][0]:
        rank["stopping"], rank["crowded"] = 1, 0


def launch_tables(engine: Vllm, lengths: Lengths, rank: Any, seats: int) -> dict[str, Any]:
    """Launch times, and room for what has not left and not come out (V14).

    Raises:
        Unsupported: without async scheduling, or with several ranks.
    """
    if engine.async_scheduling is False or engine.data_parallel_size > 1:
        raise Unsupported(
            "vllm: launch is not modelled without async_scheduling, or with data_parallel_size above 1; leave it unset"
        )
    assert engine.launch is not None
    times = np.zeros(1, LAUNCH)
    for name in ("decode_ms", "piecewise_ms", "eager_ms", "detokenizer_ms"):
        times[name] = getattr(engine.launch, name)
    times["capture"] = engine.launch.max_cudagraph_capture_size
    times["eager_fraction"] = engine.launch.eager_queue_fraction
    rank["launching"], rank["crowded"] = 1, 0
    lists = np.zeros((1, LISTS, seats), np.int64)
    return {"launches": table(times), "lists": lists, "outs": table(np.zeros((1, lengths.alive), OUT))}


def cache_tables(engine: Vllm, lengths: Lengths, osl: Any, rank: Any, seats: int) -> tuple[dict[str, Any], int]:
    """The free queue with every block in it, nothing registered, and how many numbers a written state may need for them."""
    assert engine.num_gpu_blocks is not None
    count, size = engine.num_gpu_blocks - 1, engine.block_size
    groups = int(lengths.group.max()) + 1
    width = max(-(-int((lengths.isl + osl).max()) // size), -(-int(lengths.shared.max()) // size)) + 1
    slots = 2 * seats + 2
    blocks = np.zeros(count + 2, BLOCK)
    blocks["content"] = blocks["twin"] = NOBODY
    line = np.array([0, *range(2, count + 2), 1])  # the front, every block, the back
    blocks["after"][line[:-1]], blocks["before"][line[1:]] = line[1:], line[:-1]
    r = rank[0]
    r["identities"], r["crowded"], r["groups"], r["slots_free"] = 1, 0, groups, slots
    tables = {
        "blocks": table(blocks[np.newaxis]),
        "contents": np.full((1, (groups + slots) * width), NOBODY, np.int64),
        "tables": np.zeros((1, slots, width), np.int64),
        "slots": np.arange(slots - 1, -1, -1)[np.newaxis],
    }
    return tables, count + 3 * groups * width
