"""Stages as tables: what each stage's engine adds, put together, and the hops between them."""

from typing import Any

import numpy as np

from passcal.core.compiled import table
from passcal.core.engine_tables import (
    BLOCK,
    LAUNCH,
    NODE,
    OUT,
    SGLANG,
    SGLANG_LIFE,
    TRTLLM,
    TRTLLM_LIFE,
    VLLM_LIFE,
)
from passcal.core.plan import PassShape
from passcal.core.stage import LEAST_LOADED, PREFIX_AFFINITY, ROUND_ROBIN
from passcal.core.tables import LISTS, NEVER, NOBODY
from passcal.core.tandem_tables import (
    END,
    FIRST_DECODE,
    FIRST_DECODE_PASS,
    FIRST_PREFILL,
    HAND,
    HOP,
    PAIR,
    STAGE,
    TRANSFER,
)
from passcal.fitting_stages import Pool
from passcal.machine import priced
from passcal.spec.deployment import Deployment, Disaggregated, Link
from passcal.spec.engine import Sglang
from passcal.timing.base import ASK, FORM, KernelTiming

__all__ = ["engine_tables", "hop_tables", "request_tables", "stage_rows", "timing_forms"]

ROUTINGS = {"round_robin": ROUND_ROBIN, "least_loaded": LEAST_LOADED, "prefix_affinity": PREFIX_AFFINITY}
FIRST_TOKENS = {"prefill": FIRST_PREFILL, "decode": FIRST_DECODE, "decode_pass": FIRST_DECODE_PASS}


def stage_rows(stages: tuple[Pool, ...]) -> Any:
    """STAGE[stages]."""
    rows = np.zeros(len(stages), STAGE)
    for row, pool in zip(rows, stages, strict=True):
        row["ranks"], row["workers"], row["width"] = pool.ranks, pool.workers, pool.fit.width
        row["routing"] = ROUTINGS[pool.routing]
    rows["first"] = np.cumsum(rows["ranks"]) - rows["ranks"]
    return rows


def hop_tables(deployment: Deployment, stages: tuple[Pool, ...], capacity: int) -> dict[str, Any]:
    """The hops, their fabrics, and a hand-off a request and hop; one empty row of each where there is one stage."""
    names: dict[str, Any] = {"hops": HOP, "hands": HAND, "pairs": PAIR, "ends": END, "transfers": TRANSFER}
    if len(stages) == 1:
        none = {name: table(np.zeros(1, dtype)) for name, dtype in names.items()}
        return none | {"leaving": np.zeros((1, 2), np.int64)}
    hops = hop_rows(deployment)
    workers = np.array([pool.workers for pool in stages])
    hops["sources"], hops["sinks"] = workers[:-1], workers[1:]
    pairs, ends = hops["sources"] * hops["sinks"], hops["sources"] + hops["sinks"]
    hops["first_pair"], hops["first_end"] = np.cumsum(pairs) - pairs, np.cumsum(ends) - ends
    hops["next_ms"], hops["latent_head"], hops["latent_tail"] = NEVER, NOBODY, NOBODY
    leaving = 64 + sum(2 * pool.ranks * pool.fit.seats for pool in stages)
    sizes = (len(hops), capacity * len(hops), int(pairs.sum()), int(ends.sum()), 1024 + 2 * leaving)
    tables = {name: np.zeros(size, dtype) for (name, dtype), size in zip(names.items(), sizes, strict=True)}
    tables["hops"][:] = hops
    for name, lists in (("pairs", ("top",)), ("ends", ("head", "tail"))):
        for field in lists:
            tables[name][field] = NOBODY
    return {name: table(rows) for name, rows in tables.items()} | {"leaving": np.zeros((leaving, 2), np.int64)}


def hop_rows(deployment: Deployment) -> Any:
    """HOP[hops]: an encoder's output goes over as a prompt to be computed, a prompt with its KV."""
    encoder, rows = deployment.encoder, []
    if encoder is not None and encoder.engine is not None:
        row = hop_row(encoder.link)
        row["fresh"], row["first_token"] = 1, FIRST_DECODE_PASS  # nothing is shown before
        rows.append(row)
    if isinstance(deployment, Disaggregated):
        row = hop_row(deployment.link)
        row["early"], row["reserve"] = isinstance(deployment.decode, Sglang), deployment.num_reserved_decode_tokens
        row["first_token"] = FIRST_TOKENS[deployment.first_token]
        rows.append(row)
    return np.concatenate(rows)


def hop_row(link: Link | None) -> Any:
    """HOP[1] of a link; without one everything is there at once."""
    row = np.zeros(1, HOP)
    row["capacity"] = NEVER
    if link is not None:
        row["missing"] = link.transfer == "missing"
        row["bytes"], row["latency_ms"] = link.kv_bytes_per_token, link.latency_ms
        row["capacity"], row["most"] = link.gb_per_s * 1e6 * link.efficiency, link.max_transfers_per_worker or 0
    return row


def engine_tables(stages: tuple[Pool, ...], groups: int) -> dict[str, Any]:
    """Tables with a row a rank, stage behind stage, each as wide as the widest stage needs it; and the trees, a rank's behind another's."""
    ring = max(int(pool.fit.osl.max()) for pool in stages) + 2
    seats = max(pool.fit.seats for pool in stages)
    shared = {
        "running": np.zeros((1, seats), np.int64),
        "late": np.zeros((1, seats), np.int64),
        "bucket_head": np.full((1, ring), NOBODY, np.int64),
        "bucket_tail": np.full((1, ring), NOBODY, np.int64),
        "resident": np.zeros((1, groups), np.int64),
    }
    by_rank: dict[str, list[Any]] = {}
    for pool in stages:
        own = {
            **shared,
            "residues": np.zeros((1, int(pool.fit.rank["block_size"][0]) or 1), np.int64),
            "blocks": np.zeros((1, 2), BLOCK),
            "contents": np.full((1, 1), NOBODY, np.int64),
            "tables": np.zeros((1, 1, 1), np.int64),
            "slots": np.zeros((1, 1), np.int64),
            "lists": np.zeros((1, LISTS, 1), np.int64),
            "sglang": np.zeros(1, SGLANG),
            "trtllm": np.zeros(1, TRTLLM),
            "launches": np.zeros(1, LAUNCH),
            "outs": np.zeros((1, 1), OUT),
            **{name: rows for name, rows in pool.fit.fixed.items() if name not in ("nodes", "scratch")},
        }
        for name, rows in own.items():
            by_rank.setdefault(name, []).append(rows if pool.ranks == 1 else np.repeat(rows, pool.ranks, axis=0))
    tables: dict[str, Any] = {name: table(stacked(parts)) for name, parts in by_rank.items()}
    if len(stages) > 1 and len(tables["blocks"][0]) > 2:  # contents are found by the widest slot of any stage
        _, slots, width = tables["tables"].shape
        tables["contents"] = np.full((len(tables["tables"]), (groups + slots) * width), NOBODY, np.int64)
    tables["ranks"] = table(rank_rows(stages))
    tables["nodes"] = trees(stages, tables["sglang"])
    tables["scratch"] = np.zeros(max(seats, *(len(pool.fit.fixed.get("scratch", ())) for pool in stages)), np.int64)
    return tables


def stacked(parts: list[Any]) -> Any:
    """One array behind the other, all as wide as the widest."""
    if len(parts) == 1:
        return parts[0]
    shape = [max(part.shape[axis] for part in parts) for axis in range(1, parts[0].ndim)]
    whole = np.zeros((sum(len(part) for part in parts), *shape), parts[0].dtype)
    if not parts[0].dtype.names:
        whole[...] = NOBODY
    at = 0
    for part in parts:
        whole[(slice(at, at + len(part)), *(slice(0, width) for width in part.shape[1:]))] = part
        at += len(part)
    return whole


def rank_rows(stages: tuple[Pool, ...]) -> Any:
    """RANK[ranks] of all stages."""
    rows = stacked([np.repeat(pool.fit.rank, pool.ranks) for pool in stages])
    first = 0
    for s, pool in enumerate(stages):
        own = rows[first : first + pool.ranks]
        own["stage"] = own["form"] = s
        own["width"] = pool.fit.width
        own["index"] = first + np.arange(pool.ranks)
        own["leader"] = first + np.arange(pool.ranks) // pool.fit.width * pool.fit.width
        if pool.fit.rank["lightest"][0]:  # a rank without rows runs one token (T7)
            own["null_ms"] = priced(pool.timing, PassShape.of((), 1, 1))
        first += pool.ranks
    return rows


def trees(stages: tuple[Pool, ...], own: Any) -> Any:
    """NODE[n]: the prefix tree of every rank that has one; `own` is told where each begins."""
    parts, at, k = [], 0, 0
    for pool in stages:
        nodes = pool.fit.fixed.get("nodes")
        for rank in range(k, k + pool.ranks):
            if nodes is not None:
                own["first_node"][rank] = at
                own["nodes"][rank] += at
                parts.append(nodes)
                at += len(nodes)
        k += pool.ranks
    if len(stages) > 1 and parts:  # ranks without a tree look at the root that stands for none
        own["first_node"][(own["tree"] == 0)] = at
        parts.append(np.zeros(1, NODE))
    return table(np.concatenate(parts) if parts else np.zeros(1, NODE))


def request_tables(stages: tuple[Pool, ...], rows: int) -> dict[str, Any]:
    """Tables with a row a leg, by name."""
    wanted = {name: dtype for pool in stages for name, dtype in pool.fit.by_request.items()}
    known = {"sglang_lives": SGLANG_LIFE, "trtllm_lives": TRTLLM_LIFE, "vllm_lives": VLLM_LIFE}
    return {name: table(np.zeros(rows if name in wanted else 1, dtype)) for name, dtype in known.items()}


def timing_forms(stages: tuple[Pool, ...]) -> dict[str, Any]:
    """How each stage's timing model enters the kernel: by its own formula, or by asking."""
    forms, captured = [], []
    for pool in stages:
        if isinstance(pool.timing, KernelTiming):
            form, sizes = pool.timing.kernel_form()
        else:
            form, sizes = np.zeros(1, FORM), np.zeros(1, np.int64)
            form["kind"] = ASK
        forms.append(form)
        captured.append(sizes.reshape(1, -1))
    return {"forms": table(np.concatenate(forms)), "captured": stacked(captured)}
