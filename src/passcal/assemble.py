"""Spec to tables: the one place that reads every field of every spec, and refuses by name what is not modelled.

What is the same for all engines stands here; what an engine needs beyond it comes as a `Fitting` from `fitting_vllm` and its like.
"""

from collections.abc import Callable
from functools import partial
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
from passcal.core.plan import SHAPE, PassShape
from passcal.core.stage import LEAST_LOADED, PREFIX_AFFINITY, ROUND_ROBIN
from passcal.core.tables import (
    LANE,
    LISTS,
    MARK,
    NOBODY,
    REQUEST,
    RUN,
    SEQUENCE,
    SHAPES,
    STALL,
    TURN,
    WORLD,
    State,
)
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths
from passcal.fitting_sessions import fit_sessions, session_lengths
from passcal.fitting_sglang import fit_sglang
from passcal.fitting_trtllm import fit_trtllm
from passcal.fitting_vllm import fit_vllm
from passcal.machine import Machine, priced
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import Sglang, Trtllm, Vllm
from passcal.spec.sessions import Sessions
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.timing.base import ASK, FORM, KernelTiming, TimingModel
from passcal.traffic import dealt

__all__ = ["assemble"]

# What each engine adds to the tables; the flag asks for KV by content.
FITTINGS: dict[type, Callable[[Any, Lengths, bool], Fitting]] = {
    Vllm: fit_vllm,
    Sglang: fit_sglang,
    Trtllm: fit_trtllm,
}
FOREVER = 2**31 - 1
ROUTINGS = {"round_robin": ROUND_ROBIN, "least_loaded": LEAST_LOADED, "prefix_affinity": PREFIX_AFFINITY}
BY_RANK = (  # tables with a row a rank
    "ranks",
    "running",
    "late",
    "bucket_head",
    "bucket_tail",
    "residues",
    "blocks",
    "contents",
    "tables",
    "slots",
    "resident",
    "lists",
    "sglang",
    "trtllm",
    "launches",
    "outs",
)


def assemble(workload: Workload, deployment: Aggregated, timing: TimingModel, *, identities: bool = False) -> Machine:
    """The tables of a run at time zero.

    Args:
        workload: who sends what.
        deployment: the engines.
        timing: the price of a pass.
        identities: keep KV by content from the start, because a run without it (which is faster) met a case where cached KV could be hit.

    Raises:
        Unsupported: a wish that is not modelled.
        SpecError: lengths that the engine can never run.
    """
    if not callable(getattr(timing, "pass_ms", None)):
        raise SpecError(
            f"timing={type(timing).__name__}: must have pass_ms(shape) -> ms; use pc.LinearTiming or pc.PhaseTiming"
        )
    lengths = lengths_of(workload)
    fit = FITTINGS[type(deployment.engine)](deployment.engine, lengths, identities)
    if int(lengths.pinned.max()) >= fit.width:
        raise SpecError(
            f"data_parallel_rank={int(lengths.pinned.max())}: must be below the worker's {fit.width} ranks; lower it, or give the engine more"
        )
    closed = isinstance(workload, ClosedLoop)
    capacity = min(lengths.limit, max(1024, 4 * lengths.alive + fit.seats)) if closed else lengths.limit
    world, ranks = world_row(workload, lengths.limit), deployment.replicas * fit.width
    world["workers"], world["width"], world["routing"] = deployment.replicas, fit.width, ROUTINGS[deployment.routing]
    requests, sequences = np.zeros(capacity, REQUEST), np.zeros(capacity, SEQUENCE)
    lanes = isinstance(workload, Sessions) or (isinstance(workload, Replay) and workload.max_concurrency is not None)
    if isinstance(workload, Replay) and not lanes:
        fill_replay(workload, lengths, fit, requests, sequences, world)
    form, captured = kernel_form(timing)
    ring, room = int(fit.osl.max()) + 2, 32 + 8 * lengths.alive + ranks * (16 + 16 * fit.seats + fit.room)
    tables: dict[str, Any] = {
        "world": table(world),
        "requests": table(requests),
        "sequences": table(sequences),
        "runs": table(np.zeros(max(1024, min(4 * capacity, 1 << 18)), RUN)),
        "stalls": table(np.zeros(ranks * fit.seats + 64, STALL)),
        "ranks": fit.rank,
        "shapes": table(dealt_shapes(lengths, fit) if closed or lanes else np.zeros(1, SHAPES)),
        "turns": table(np.zeros(1, TURN)),
        "lanes": table(np.zeros(1, LANE)),
        "thinking": np.zeros(1, np.int64),
        "origins": np.zeros(1, np.int64),
        "forms": table(form),
        "captured": captured.reshape(1, -1),
        "shape": table(np.zeros(1, SHAPE)),
        "chunks": np.zeros((fit.seats, 2), np.int64),
        "running": np.zeros((1, fit.seats), np.int64),
        "late": np.zeros((1, fit.seats), np.int64),
        "gone": np.zeros(ranks * fit.seats, np.int64),
        "scratch": np.zeros(fit.seats, np.int64),
        "bucket_head": np.full((1, ring), NOBODY, np.int64),
        "bucket_tail": np.full((1, ring), NOBODY, np.int64),
        "residues": np.zeros((1, int(fit.rank["block_size"][0]) or 1), np.int64),
        "homes": np.full(max(1, int(lengths.group.max()) + 1), NOBODY),
        "resident": np.zeros((1, max(1, int(lengths.group.max()) + 1)), np.int64),
        "blocks": table(np.zeros((1, 2), BLOCK)),
        "contents": np.zeros((1, 1), np.int64),
        "tables": np.zeros((1, 1, 1), np.int64),
        "slots": np.zeros((1, 1), np.int64),
        "lists": np.zeros((1, LISTS, 1), np.int64),
        "sglang": table(np.zeros(1, SGLANG)),
        "sglang_lives": table(np.zeros(1, SGLANG_LIFE)),
        "nodes": table(np.zeros(1, NODE)),
        "trtllm": table(np.zeros(1, TRTLLM)),
        "trtllm_lives": table(np.zeros(1, TRTLLM_LIFE)),
        "vllm_lives": table(np.zeros(1, VLLM_LIFE)),
        "launches": table(np.zeros(1, LAUNCH)),
        "outs": table(np.zeros((1, 1), OUT)),
        "marks": table(np.zeros(2, MARK)),
        "kept": np.zeros(room),
        "fresh": np.zeros(room),
    }
    tables.update(fit.tables(capacity))
    if isinstance(workload, Sessions | Replay) and lanes:
        tables.update(fit_sessions(workload, world[0]))
    for name in BY_RANK:
        tables[name] = np.repeat(tables[name], ranks, axis=0)
    if "nodes" in fit.fixed:  # a tree a rank, one behind the other
        own, each = tables["sglang"], len(tables["nodes"])
        tables["nodes"] = table(np.tile(tables["nodes"], ranks))
        own["first_node"] = each * np.arange(ranks)
        own["nodes"] += own["first_node"]
    rows = tables["ranks"] = table(tables["ranks"])
    if fit.rank["lightest"][0]:  # a rank without rows runs one token (T7)
        rows["null_ms"] = priced(timing, PassShape.of((), 1, 1))
    rows["index"] = np.arange(ranks)
    rows["leader"] = rows["index"] // fit.width * fit.width
    return Machine(State(**tables), timing, partial(assemble, workload, deployment, timing, identities=identities))


def lengths_of(workload: Workload) -> Lengths:
    """All lengths that the workload deals or lists, and how many requests may live at a time."""
    if isinstance(workload, ClosedLoop):
        rows = dealt(workload.shapes)
        limit = workload.requests or FOREVER
        return Lengths.of(rows, limit, min(workload.concurrency, limit))
    if isinstance(workload, Replay):
        most = min(workload.max_concurrency or len(workload.rows), len(workload.rows))
        return Lengths.of(workload.rows, len(workload.rows), most)
    if isinstance(workload, Sessions):
        return session_lengths(workload)
    raise Unsupported(
        f"workload={type(workload).__name__}: must be a closed loop, a replay or sessions; ask pc.evaluate, which makes it one"
    )


def dealt_shapes(lengths: Lengths, fit: Fitting) -> Any:
    """The lengths that clients of a closed loop are dealt, or that lanes send."""
    dealt = np.zeros(len(lengths.isl), SHAPES)
    dealt["isl"], dealt["prefix"], dealt["osl"], dealt["most"] = lengths.isl, lengths.prefix, fit.osl, fit.most
    dealt["group"], dealt["shared"], dealt["pinned"] = lengths.group, lengths.shared, lengths.pinned
    return dealt


def world_row(workload: Workload, limit: int) -> Any:
    """Traffic and clock at time zero."""
    world = np.zeros(1, WORLD)
    w = world[0]
    w["turnaround_ms"], w["ingest_ms"] = workload.turnaround_ms, workload.ingest_us_per_token / 1000.0
    w["limit"], w["until_done"], w["until_row"], w["until_pass"] = limit, limit, FOREVER, FOREVER
    w["inbox_head"] = w["inbox_tail"] = NOBODY
    w["cursor"], w["renew"], w["logging"], w["spare"] = 1, 1, 1, NOBODY
    if isinstance(workload, ClosedLoop):
        w["closed"], w["clients"], w["stagger_ms"] = 1, min(workload.concurrency, limit), workload.stagger_ms
        w["unborn"] = w["clients"]
    return world


def kernel_form(timing: TimingModel) -> tuple[Any, Any]:
    """How the timing model enters the kernel: by its own formula, or by asking."""
    if isinstance(timing, KernelTiming):
        return timing.kernel_form()
    form = np.zeros(1, FORM)
    form["kind"] = ASK
    return form, np.zeros(1, np.int64)


def fill_replay(workload: Replay, lengths: Lengths, fit: Fitting, requests: Any, sequences: Any, world: Any) -> None:
    """All requests of a replay stand in the inbox from the start, by visibility."""
    rows = workload.rows
    for name in ("dispatch_ms", "isl", "prefix", "group", "shared", "pinned"):
        requests[name] = rows[name]
    requests["osl"], requests["most"] = fit.osl, fit.most
    requests["visible_ms"] = rows["dispatch_ms"] + world["turnaround_ms"] + rows["isl"] * world["ingest_ms"]
    for name in ("admitted_ms", "first_ms", "done_ms"):
        requests[name] = -1.0
    order = np.argsort(requests["visible_ms"], kind="stable")
    sequences["slot"] = NOBODY
    sequences["after"][order[:-1]], sequences["after"][order[-1]] = order[1:], NOBODY
    sequences["before"][order[1:]], sequences["before"][order[0]] = order[:-1], NOBODY
    world["inbox_head"], world["inbox_tail"], world["sent"] = order[0], order[-1], lengths.limit
    world["rows"] = lengths.limit
