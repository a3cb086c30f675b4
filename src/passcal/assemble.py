"""Spec to tables: the one place that reads every field of every spec, and refuses by name what is not modelled.

What is the same for all engines stands here; what an engine needs beyond it comes as a `Fitting` from `fitting_vllm` and its like.
"""

from functools import partial
from typing import Any

import numpy as np

from passcal.core.compiled import table
from passcal.core.plan import SHAPE
from passcal.core.tables import (
    LANE,
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
from passcal.core.tandem_tables import FIRST_DECODE_PASS
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths
from passcal.fitting_sessions import fit_sessions, session_lengths
from passcal.fitting_stages import Timings, encoder_ms, pools
from passcal.fitting_tables import engine_tables, hop_tables, request_tables, stage_rows, timing_forms
from passcal.machine import Machine
from passcal.spec.deployment import Deployment
from passcal.spec.sessions import Sessions
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.traffic import dealt

__all__ = ["assemble"]

FOREVER = 2**31 - 1


def assemble(workload: Workload, deployment: Deployment, timing: Timings, *, identities: bool = False) -> Machine:
    """The tables of a run at time zero.

    Args:
        workload: who sends what.
        deployment: the engines.
        timing: the price of a pass; a mapping gives each stage its own.
        identities: keep KV by content from the start, because a run without it (which is faster) met a case where cached KV could be hit.

    Raises:
        Unsupported: a wish that is not modelled.
        SpecError: lengths that the engine can never run.
    """
    lengths = lengths_of(workload)
    stages = pools(deployment, timing, lengths, identities)
    fit, legs = stages[-1].fit, len(stages)
    if int(lengths.pinned.max()) >= fit.width:
        raise SpecError(
            f"data_parallel_rank={int(lengths.pinned.max())}: must be below the worker's {fit.width} ranks; lower it, or give the engine more"
        )
    closed = isinstance(workload, ClosedLoop)
    ranks, seats = sum(pool.ranks for pool in stages), max(pool.fit.seats for pool in stages)
    room = (
        32 + 16 * lengths.alive * legs + sum(pool.ranks * (24 + 16 * pool.fit.seats + pool.fit.room) for pool in stages)
    )
    capacity = (
        min(lengths.limit, max(1024, 4 * lengths.alive + seats) * (2 if legs > 1 else 1)) if closed else lengths.limit
    )
    world = world_row(workload, lengths.limit)
    world["encoder_ms"] = encoder_ms(deployment)
    world["stages"], world["most_drafts"] = legs, max(int(pool.fit.rank["drafts"][0]) for pool in stages)
    requests, sequences = table(np.zeros(capacity, REQUEST)), np.zeros(capacity * legs, SEQUENCE)
    many = table(np.zeros(capacity * legs, REQUEST)) if legs > 1 else requests
    hops = hop_tables(deployment, stages, capacity)
    lanes = isinstance(workload, Sessions) or (isinstance(workload, Replay) and workload.max_concurrency is not None)
    replayed = isinstance(workload, Replay) and not lanes
    tables: dict[str, Any] = {
        "world": table(world),
        "requests": requests,
        "legs": many,
        "sequences": table(sequences),
        "runs": table(np.zeros(max(1024, min(4 * capacity, 1 << 18)), RUN)),
        "stalls": table(np.zeros(ranks * seats + 64, STALL)),
        "stages": table(stage_rows(stages)),
        "shapes": table(np.zeros(1, SHAPES) if replayed and legs == 1 else dealt_shapes(lengths, fit)),
        "turns": table(np.zeros(1, TURN)),
        "lanes": table(np.zeros(1, LANE)),
        "thinking": np.zeros(1, np.int64),
        "origins": np.zeros(1, np.int64),
        "shape": table(np.zeros(1, SHAPE)),
        "chunks": np.zeros((seats, 2), np.int64),
        "gone": np.zeros(ranks * seats + lengths.alive * (legs > 1), np.int64),
        "homes": np.full(max(1, int(lengths.group.max()) + 1), NOBODY),
        "marks": table(np.zeros(2, MARK)),
        "kept": np.zeros(room),
        "fresh": np.zeros(room),
        **hops,
        **timing_forms(stages),
        **engine_tables(stages, max(1, int(lengths.group.max()) + 1)),
        **request_tables(stages, capacity * legs),
    }
    if isinstance(workload, Sessions | Replay) and lanes:
        tables.update(fit_sessions(workload, world[0]))
    elif isinstance(workload, Replay):
        fill_replay(workload, lengths, fit, tables)
    again = partial(assemble, workload, deployment, timing, identities=identities)
    return Machine(State(**tables), tuple(pool.timing for pool in stages), again)


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
    dealt["vision"] = lengths.vision
    return dealt


def world_row(workload: Workload, limit: int) -> Any:
    """Traffic and clock at time zero."""
    world = np.zeros(1, WORLD)
    w = world[0]
    w["turnaround_ms"], w["ingest_ms"] = workload.turnaround_ms, workload.ingest_us_per_token / 1000.0
    w["limit"], w["until_done"], w["until_row"], w["until_pass"] = limit, limit, FOREVER, FOREVER
    w["inbox_head"] = w["inbox_tail"] = NOBODY
    w["cursor"], w["renew"], w["logging"] = FOREVER, 1, 1
    w["spare"] = w["spare_transfer"] = NOBODY
    if isinstance(workload, ClosedLoop):
        w["closed"], w["clients"], w["stagger_ms"] = 1, min(workload.concurrency, limit), workload.stagger_ms
        w["unborn"] = w["clients"]
    return world


def fill_replay(workload: Replay, lengths: Lengths, fit: Fitting, tables: dict[str, Any]) -> None:
    """All requests of a replay stand in the inbox from the start, by visibility."""
    rows, requests, sequences, world = workload.rows, tables["requests"], tables["sequences"], tables["world"][0]
    for name in ("dispatch_ms", "isl", "prefix", "group", "shared", "pinned", "vision"):
        requests[name] = rows[name]
    requests["osl"], requests["most"] = fit.osl, fit.most
    requests["visible_ms"] = rows["dispatch_ms"] + world["turnaround_ms"] + rows["isl"] * world["ingest_ms"]
    requests["visible_ms"] += np.where(requests["vision"] > 0, world["encoder_ms"], 0.0)
    for name in ("admitted_ms", "first_ms", "done_ms"):
        requests[name] = -1.0
    sequences["slot"] = NOBODY
    legs = int(world["stages"])
    if legs > 1:
        fill_legs(tables, legs)
    first = legs * np.argsort(requests["visible_ms"], kind="stable")
    sequences["after"][first[:-1]], sequences["after"][first[-1]] = first[1:], NOBODY
    sequences["before"][first[1:]], sequences["before"][first[0]] = first[:-1], NOBODY
    world["inbox_head"], world["inbox_tail"], world["sent"] = first[0], first[-1], lengths.limit
    world["rows"] = lengths.limit


def fill_legs(tables: dict[str, Any], legs: int) -> None:
    """What each request is at each stage, and its hand-offs, as `sources.asking` writes them."""
    requests, sequences, hands, hops = (tables[name] for name in ("requests", "sequences", "hands", "hops"))
    for leg in range(legs):
        own, s = tables["legs"][leg::legs], sequences[leg::legs]
        own[:] = requests
        own["pinned"] = NOBODY
        if leg < legs - 1:
            own["osl"] = own["most"] = 1
            if hops["fresh"][leg]:
                own["isl"], own["prefix"], own["group"], own["shared"] = requests["vision"], 0, NOBODY, 0
            continue
        if hops["fresh"][leg - 1]:
            own["pinned"] = requests["pinned"]
            continue
        own["prefix"] = 0
        s["generated"] = hops["first_token"][leg - 1] != FIRST_DECODE_PASS
        s["computed"] = requests["isl"] - 1 + s["generated"]
    for hop in range(legs - 1):
        own = hands[hop :: legs - 1]
        for name in ("asked_ms", "granted_ms", "start_ms", "end_ms", "staged_head", "staged_tail"):
            own[name] = -1
        if hops["missing"][hop]:
            own["sent"] = np.minimum(requests["prefix"], requests["isl"] - 1)
