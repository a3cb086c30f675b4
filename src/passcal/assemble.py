"""Spec to tables: the one place that reads every field of every spec, and refuses by name what is not modelled."""

from typing import Any

import numpy as np

from passcal.core.compiled import table
from passcal.core.plan import SHAPE
from passcal.core.tables import (
    LISTS,
    NOBODY,
    NODE,
    RANK,
    REQUEST,
    RUN,
    SEQUENCE,
    SGLANG,
    SGLANG_LIFE,
    SHAPES,
    STALL,
    TRTLLM,
    TRTLLM_LIFE,
    WORLD,
    State,
)
from passcal.errors import SpecError, Unsupported
from passcal.machine import Machine
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import Vllm
from passcal.spec.workload import ClosedLoop, Replay, Workload
from passcal.timing.base import ASK, FORM, KernelTiming, TimingModel

__all__ = ["assemble"]

FOREVER = 2**31 - 1
NEUTRAL = {  # options of Vllm that are not modelled yet: their value that changes nothing, and what to do instead
    "prefill_schedule_interval": (1, "leave it at 1"),
    "data_parallel_size": (1, "leave it at 1 and divide the clients among replicas by hand"),
    "launch": (None, "leave it unset: launches cost nothing"),
    "speculation": (None, "leave it unset and put the accepted tokens into the timing"),
    "host_offload": (False, "leave it off: a preempted sequence is recomputed"),
}


def assemble(
    workload: Workload, deployment: Aggregated, timing: TimingModel, *, requests: int | None = None
) -> Machine:
    """The tables of a run at time zero.

    Args:
        workload: who sends what.
        deployment: the engines.
        timing: the price of a pass.
        requests: how many requests clients of a closed loop send in all, instead of the workload's own number.

    Raises:
        Unsupported: a wish that is not modelled.
        SpecError: lengths that the engine can never run.
    """
    engine = deployment.engine
    refuse_unmodelled(deployment, timing)
    if isinstance(workload, ClosedLoop):
        shapes, rows, limit = closed_shapes(workload), None, requests or workload.requests or FOREVER
        most = min(workload.concurrency, limit)
    elif isinstance(workload, Replay):
        rows, limit = workload.rows, len(workload.rows)
        shapes, most = rows, limit
    else:
        raise Unsupported(
            f"workload={type(workload).__name__}: must be a closed loop or a replay; make it with pc.Workload.closed_loop"
        )
    isl, osl = shapes["isl"].astype(np.int64), clipped(shapes["isl"], shapes["osl"], engine)
    check_fit(isl, osl, engine)
    seats = min(engine.max_num_seqs, most)
    world, rank = world_row(workload, limit), rank_row(engine)
    form, captured = kernel_form(timing)
    dealt = np.zeros(len(isl) if rows is None else 1, SHAPES)
    capacity = limit if rows is not None else min(limit, max(1024, 4 * most + seats))
    requests_table, sequences = np.zeros(capacity, REQUEST), np.zeros(capacity, SEQUENCE)
    if not isinstance(workload, Replay):
        dealt["isl"], dealt["prefix"], dealt["osl"] = isl, shapes["prefix"], osl
    else:
        fill_replay(workload, requests_table, sequences, osl, world)
    state_room = 16 + 7 * (most + seats) + 3
    return Machine(
        State(
            world=table(world),
            requests=table(requests_table),
            sequences=table(sequences),
            runs=table(np.zeros(max(1024, min(4 * capacity, 1 << 16)), RUN)),
            stalls=table(np.zeros(seats + 64, STALL)),
            ranks=table(rank),
            shapes=table(dealt),
            forms=table(form),
            captured=captured.reshape(1, -1),
            shape=table(np.zeros(1, SHAPE)),
            chunks=np.zeros((seats, 2), np.int64),
            running=np.zeros((1, seats), np.int64),
            late=np.zeros((1, seats), np.int64),
            gone=np.zeros(seats, np.int64),
            scratch=np.zeros(seats, np.int64),
            bucket_head=np.full((1, int(osl.max()) + 2), NOBODY, np.int64),
            bucket_tail=np.full((1, int(osl.max()) + 2), NOBODY, np.int64),
            residues=np.zeros((1, engine.block_size), np.int64),
            lists=np.zeros((1, LISTS, 1), np.int64),
            sglang=table(np.zeros(1, SGLANG)),
            sglang_lives=table(np.zeros(1, SGLANG_LIFE)),
            nodes=table(np.zeros(1, NODE)),
            trtllm=table(np.zeros(1, TRTLLM)),
            trtllm_lives=table(np.zeros(1, TRTLLM_LIFE)),
            marks=np.zeros((2, 12)),
            kept=np.zeros(state_room),
            fresh=np.zeros(state_room),
        ),
        timing,
    )


def refuse_unmodelled(deployment: Aggregated, timing: TimingModel) -> None:
    """Every wish that would otherwise be ignored raises, with its name and the nearest alternative."""
    engine = deployment.engine
    for name, (neutral, remedy) in NEUTRAL.items():
        value = getattr(engine, name)
        if value != neutral:
            raise Unsupported(f"{engine.backend}: {name}={value!r} is not modelled; {remedy}")
    if deployment.replicas != 1:
        raise Unsupported(
            f"replicas={deployment.replicas} is not modelled; evaluate one worker with its share of the clients"
        )
    if not callable(getattr(timing, "pass_ms", None)):
        raise SpecError(
            f"timing={type(timing).__name__}: must have pass_ms(shape) -> ms; use pc.LinearTiming or pc.PhaseTiming"
        )


def closed_shapes(workload: ClosedLoop) -> Any:
    """The dealt lengths as a structured array."""
    return np.array(list(workload.shapes), [("isl", "i8"), ("prefix", "i8"), ("osl", "i8")])


def clipped(isl: Any, osl: Any, engine: Vllm) -> Any:
    """Output lengths that the engine lets happen: generation stops at `max_model_len` (E2)."""
    if engine.max_model_len is None:
        return osl.astype(np.int64)
    if (isl >= engine.max_model_len).any():
        worst = int(isl.max())
        raise SpecError(
            f"isl={worst}: must be below max_model_len={engine.max_model_len}, or vLLM refuses the request; raise the limit"
        )
    return np.minimum(osl, engine.max_model_len - isl).astype(np.int64)


def check_fit(isl: Any, osl: Any, engine: Vllm) -> None:
    """Requests that the engine could never run are refused before the run (V11, V6)."""
    budget = engine.max_num_batched_tokens
    longest = int(isl.max())
    if not engine.enable_chunked_prefill and longest > budget:
        raise SpecError(
            f"isl={longest}: exceeds max_num_batched_tokens={budget} with chunked prefill off and can never run; raise the budget"
        )
    if engine.num_gpu_blocks is None:
        return
    usable, size = engine.num_gpu_blocks - 1, engine.block_size
    need = -(-int((isl + osl - 1).max()) // size)
    if need > usable:
        raise SpecError(
            f"num_gpu_blocks={engine.num_gpu_blocks}: the longest request needs {need} of {usable} usable blocks; give more blocks"
        )


def world_row(workload: Workload, limit: int) -> Any:
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


def rank_row(engine: Vllm) -> Any:
    ranks = np.zeros(1, RANK)
    r = ranks[0]
    r["budget"], r["max_seats"], r["chunked"] = (
        engine.max_num_batched_tokens,
        engine.max_num_seqs,
        engine.enable_chunked_prefill,
    )
    r["long_prefill"] = engine.long_prefill_token_threshold
    r["lookahead"] = engine.async_scheduling is not False
    r["block_size"], r["reserve_full"] = engine.block_size, engine.scheduler_reserve_full_isl
    if engine.num_gpu_blocks is not None:
        r["memory"] = 1
        r["usable"] = r["free"] = engine.num_gpu_blocks - 1
        r["mark"] = int(engine.watermark * engine.num_gpu_blocks)
    r["crowded"] = engine.long_prefill_token_threshold == 0
    r["arrived_head"] = r["arrived_tail"] = r["waiting_head"] = r["waiting_tail"] = NOBODY
    r["most_flying"], r["idle"] = 1, 1
    return ranks


def kernel_form(timing: TimingModel) -> tuple[Any, Any]:
    """How the timing model enters the kernel: by its own formula, or by asking."""
    if isinstance(timing, KernelTiming):
        return timing.kernel_form()
    form = np.zeros(1, FORM)
    form["kind"] = ASK
    return form, np.zeros(1, np.int64)


def fill_replay(workload: Replay, requests: Any, sequences: Any, osl: Any, world: Any) -> None:
    """All requests of a replay stand in the inbox from the start, by visibility."""
    rows = workload.rows
    for name in ("dispatch_ms", "isl", "prefix"):
        requests[name] = rows[name]
    requests["osl"] = osl
    requests["visible_ms"] = rows["dispatch_ms"] + world["turnaround_ms"] + rows["isl"] * world["ingest_ms"]
    for name in ("admitted_ms", "first_ms", "done_ms"):
        requests[name] = -1.0
    order = np.argsort(requests["visible_ms"], kind="stable")
    sequences["after"][order[:-1]], sequences["after"][order[-1]] = order[1:], NOBODY
    sequences["before"][order[1:]], sequences["before"][order[0]] = order[:-1], NOBODY
    world["inbox_head"], world["inbox_tail"], world["sent"] = order[0], order[-1], len(rows)
    world["rows"] = len(rows)
