"""SGLang's part of the tables, and what its scheduler can never run."""

from typing import Any

import numpy as np

from passcal.calendar.backends import BACKENDS
from passcal.calendar.sglang_batch import CLIP, HEADER
from passcal.core.compiled import table
from passcal.core.engine_tables import NODE, SGLANG, SGLANG_LIFE
from passcal.core.tables import LISTS, NOBODY
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths, empty_rank
from passcal.spec.sglang import Sglang

__all__ = ["fit_sglang"]

NEUTRAL = {  # options that are not modelled yet: their value that changes nothing, and what to do instead
    "speculation": (None, "leave it unset and put the accepted tokens into the timing"),
}
BOUNDLESS = 1 << 40  # tokens, where memory never binds
QUEUE = 128  # the longest queue that is sorted (S16)
SHARED_CONSERVATIVENESS = 0.3  # with attention data parallelism (S18)


def fit_sglang(engine: Sglang, lengths: Lengths, identities: bool) -> Fitting:
    """Knobs, pool, lists and, where prompts can hit cached pages, the prefix tree.

    Raises:
        Unsupported: an option that is not modelled.
        SpecError: a request that can never run.
    """
    for name, (neutral, remedy) in NEUTRAL.items():
        value = getattr(engine, name)
        if value != neutral:
            raise Unsupported(f"sglang: {name}={value!r} is not modelled; {remedy}")
    grouped = not engine.disable_radix_cache and bool((lengths.group >= 0).any())
    limits = reserved_outputs(engine, lengths)
    check_fit(engine, lengths.isl, limits)
    seats = min(engine.max_running_requests // engine.dp_size, lengths.alive)
    rank, own = rank_row(engine), own_row(engine)
    fixed = {
        "sglang": table(own),
        "lists": np.zeros((1, LISTS, seats + HEADER + 1), np.int64),
        "scratch": np.zeros(max(seats, QUEUE), np.int64),
    }
    if grouped or identities:
        fixed["nodes"] = table(tree(own[0], lengths, engine, seats))
    lives = {"sglang_lives": SGLANG_LIFE}
    osl = np.maximum(np.minimum(lengths.osl, limits), 1)
    return Fitting(rank, seats, osl, lengths.most, fixed, lives, room=8 * seats + 64, width=engine.dp_size)


def pool_of(engine: Sglang) -> int:
    """KV tokens, in whole pages (S17)."""
    return (
        BOUNDLESS if engine.max_total_tokens is None else engine.max_total_tokens // engine.page_size * engine.page_size
    )


def reserved_outputs(engine: Sglang, lengths: Lengths) -> Any:
    """Outputs that the scheduler reserves: what is asked, as far as context and pool allow (S17); a request emits at least one."""
    room = pool_of(engine) - -(-lengths.isl // engine.page_size) * engine.page_size - engine.page_size - 1
    if engine.context_length is not None:
        longest = int(lengths.isl.max())
        if longest >= engine.context_length:
            raise SpecError(
                f"isl={longest}: must be below context_length={engine.context_length}, or the engine refuses the request; raise the limit"
            )
        room = np.minimum(room, engine.context_length - lengths.isl - 1)
    return np.maximum(np.minimum(lengths.most, room), 0)


def check_fit(engine: Sglang, isl: Any, limits: Any) -> None:
    """Requests that an empty engine would not admit are refused before the run (S8, S9)."""
    page, pool = engine.page_size, pool_of(engine)
    if foresees(engine):
        prompts = -(-isl // page) * page + page
        lacking = np.where(limits > 0, prompts + limits + 2, prompts) - pool
    else:
        lacking = isl + np.minimum(limits, CLIP) + page + 1 - pool
    if (lacking > 0).any():
        at = int(np.argmax(lacking))
        raise SpecError(
            f"max_total_tokens={engine.max_total_tokens}: a prompt of {int(isl[at])} tokens is never admitted, since {int(lacking[at])} "
            "more would be needed; raise it"
        )


def foresees(engine: Sglang) -> bool:
    """Whether admission looks at every end to come (S9)."""
    return engine.ignore_eos and engine.disable_radix_cache


def rank_row(engine: Sglang) -> Any:
    """RANK[1]; its KV is counted in tokens, and slots are the worker's, shared among ranks (S18)."""
    ranks = empty_rank()
    r = ranks[0]
    r["backend"] = BACKENDS["sglang"].code
    r["max_seats"], r["block_size"] = engine.max_running_requests // engine.dp_size, 1
    r["nulls"], r["selecting"] = engine.dp_size > 1, engine.host_loop is not None
    r["memory"] = engine.max_total_tokens is not None
    r["usable"] = r["free"] = pool_of(engine)
    r["most_flying"] = 1 if engine.disable_overlap_schedule else 2
    return ranks


def own_row(engine: Sglang) -> Any:
    """SGLANG[1] of a rank; the chunk is the worker's, shared among ranks, which reserve less of an output than one alone (S18)."""
    rows = np.zeros(1, SGLANG)
    own = rows[0]
    own["chunk"], own["most_prefill"] = max(engine.chunked_prefill_size, 0) // engine.dp_size, engine.max_prefill_tokens
    own["page"], own["mixed"], own["interval"] = (
        engine.page_size,
        engine.enable_mixed_chunk,
        engine.prefill_decode_interval,
    )
    own["ignore_eos"], own["foresee"], own["radix"] = (
        engine.ignore_eos,
        foresees(engine),
        not engine.disable_radix_cache,
    )
    own["lpm"] = engine.schedule_policy == "lpm"
    own["context"] = BOUNDLESS if engine.context_length is None else engine.context_length
    conservativeness = engine.schedule_conservativeness * (SHARED_CONSERVATIVENESS if engine.dp_size > 1 else 1.0)
    own["ratio"] = own["first_ratio"] = first = min(1.0, 0.7 * conservativeness)
    own["least_ratio"] = least = first * 0.14
    own["decay"] = (first - least) / 600
    own["partial"] = own["spare"] = NOBODY
    if engine.host_loop is not None:
        own["prefill_select_ms"] = engine.host_loop.prefill_select_ms
        own["decode_select_ms"] = engine.host_loop.decode_select_ms
    return rows


def tree(own: Any, lengths: Lengths, engine: Sglang, seats: int) -> Any:
    """NODE[n]: a root for requests of no group and one for each group; every other node holds a page at least.

    Where memory never binds, what is done leaves its group's trunk only.
    """
    roots, page = int(lengths.group.max()) + 2, int(own["page"])
    pages = pool_of(engine) // page
    if len(lengths.isl) == lengths.limit:  # all requests are listed: no more can be distinct
        pages = min(pages, int((lengths.isl + lengths.osl).sum()) // page)
    if engine.max_total_tokens is None:
        trunks = np.zeros(roots, np.int64)
        np.maximum.at(trunks, lengths.group + 1, np.minimum(lengths.shared, lengths.isl))
        longest = int((lengths.isl + lengths.osl).max())
        pages = min(pages, int(trunks.sum()) // page + seats * (longest // page + 2))
    nodes = np.zeros(roots + pages + 4, NODE)
    nodes["parent"][:roots] = nodes["below"][:roots] = NOBODY
    own["tree"], own["nodes"] = 1, roots
    return nodes
