"""TensorRT-LLM's part of the tables, and what its scheduler can never run."""

from typing import Any

import numpy as np

from passcal.calendar.backends import BACKENDS
from passcal.calendar.trtllm_batch import CHUNKING, UNCUT
from passcal.calendar.trtllm_capacity import POLICIES
from passcal.core.compiled import table
from passcal.core.engine_tables import TRTLLM, TRTLLM_LIFE
from passcal.core.tables import LISTS
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths, clipped, empty_rank
from passcal.spec.trtllm import Trtllm

__all__ = ["fit_trtllm"]

NEUTRAL = {  # options that are not modelled yet: their value that changes nothing, and what to do instead
    "speculation": (None, "leave it unset and put the accepted tokens into the timing"),
}
BOUNDLESS = 1 << 40  # blocks, where memory never binds


def fit_trtllm(engine: Trtllm, lengths: Lengths, identities: bool) -> Fitting:
    """Knobs, pool and lists.

    Raises:
        Unsupported: an option that is not modelled, or prompts with a cached prefix.
        SpecError: a request that can never run.
    """
    for name, (neutral, remedy) in NEUTRAL.items():
        value = getattr(engine, name)
        if value != neutral:
            raise Unsupported(f"trtllm: {name}={value!r} is not modelled; {remedy}")
    if lengths.prefix.any() or (lengths.group >= 0).any():
        wish = f"prefix={int(lengths.prefix.max())}" if lengths.prefix.any() else "prefix_group"
        raise Unsupported(f"trtllm: {wish}: block reuse is not modelled; give prompts without a prefix")
    most = clipped(lengths, engine.max_seq_len, "max_seq_len")
    check_fit(engine, lengths.isl, most)
    seats = min(engine.max_batch_size, lengths.alive)
    fixed = {"trtllm": table(own_row(engine)), "lists": np.zeros((1, LISTS, seats + 1), np.int64)}
    osl, lives = np.minimum(lengths.osl, most), {"trtllm_lives": TRTLLM_LIFE}
    return Fitting(rank_row(engine), seats, osl, most, fixed, lives, width=engine.attention_dp)


def check_fit(engine: Trtllm, isl: Any, outputs: Any) -> None:
    """Requests that would stop the engine for ever, as far as their outputs are reckoned with, are refused before the run (T1, T10, T14)."""
    pausing = engine.capacity_policy == "MAX_UTILIZATION" and engine.max_tokens_in_kv is not None
    if not engine.enable_chunked_prefill:
        longest, resumed = int(isl.max()), int((isl + outputs - 1).max())
        if longest > engine.max_num_tokens:
            raise SpecError(
                f"isl={longest}: exceeds max_num_tokens={engine.max_num_tokens} with chunked prefill off and can never run; raise the budget"
            )
        if pausing and resumed > engine.max_num_tokens:
            raise SpecError(
                f"isl + osl - 1={resumed}: exceeds max_num_tokens={engine.max_num_tokens} with chunked prefill off, so a paused request "
                "could never resume; raise it"
            )
    if engine.max_tokens_in_kv is None:
        return
    size, most = engine.tokens_per_block, int((isl + outputs).max()) - pausing  # the last output is never stored (T11)
    need, blocks = -(-most // size), engine.max_tokens_in_kv // size
    if need > blocks:
        raise SpecError(
            f"max_tokens_in_kv={engine.max_tokens_in_kv}: the longest request needs {need} of {blocks} blocks under "
            f"{engine.capacity_policy} and would block all behind it; raise it"
        )


def rank_row(engine: Trtllm) -> Any:
    """RANK[1] of a worker."""
    ranks = empty_rank()
    r = ranks[0]
    r["backend"] = BACKENDS["trtllm"].code
    r["budget"], r["max_seats"] = engine.max_num_tokens, engine.max_batch_size
    r["block_size"], r["usable"] = engine.tokens_per_block, BOUNDLESS
    if engine.max_tokens_in_kv is not None:
        r["memory"], r["usable"] = 1, engine.max_tokens_in_kv // engine.tokens_per_block
    r["free"] = r["usable"]
    r["most_flying"] = 2 if engine.overlap_scheduler and engine.admission_lookahead is not False else 1
    r["nulls"] = r["lightest"] = engine.attention_dp > 1
    return ranks


def own_row(engine: Trtllm) -> Any:
    """TRTLLM[1] of a worker."""
    rows = np.zeros(1, TRTLLM)
    own = rows[0]
    own["policy"] = POLICIES[engine.capacity_policy]
    own["chunking"] = CHUNKING[engine.chunk_policy] if engine.enable_chunked_prefill else UNCUT
    own["unit"] = engine.unit
    own["patience"], own["ratio"] = engine.batch_wait_timeout_iters, engine.batch_wait_max_tokens_ratio
    if engine.attention_dp_balance is not None:
        own["balance"] = 1
        own["most_waits"] = engine.attention_dp_balance.timeout_iters
        own["most_batches"] = engine.attention_dp_balance.batching_wait_iters
    return rows
