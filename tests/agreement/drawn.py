"""Scenarios that Hypothesis draws.

All times are multiples of 1/1024 ms, and so are their sums, exactly: an arrival at the end of a pass is at that end on both sides.
"""

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]
STEP_MS = 1 / 8
DECODE = ([8.0, 0.25, 1 / 512], [4.0, 0.0, 0.0], [0.0, 1.5, 1 / 64], [1.0, 0.125, 0.0])
PREFILL = (
    [5.0, 1 / 64, 0.0, 0.0],
    [0.5, 1 / 32, 1 / 1024, 1 / 1024],
    [12.0, 0.0, 0.0, 0.0],
    [4.0, 1 / 64, 0.0, 1 / 1024],
)


def times(most: int) -> st.SearchStrategy[float]:
    """Multiples of the step, zero often."""
    return st.one_of(st.just(0.0), st.integers(0, most).map(lambda k: k * STEP_MS))


@st.composite
def lengths(draw: st.DrawFn, grouped: bool, prefixes: bool = True) -> Json:
    """Lengths, with a prefix group if asked; block edges are favoured, and a prefix may reach isl."""
    isl = draw(st.one_of(st.integers(1, 200), st.sampled_from([1, 15, 16, 17, 32, 64, 400])))
    osl = draw(st.one_of(st.integers(1, 4), st.integers(1, 48)))
    if not grouped:
        return {
            "isl": isl,
            "prefix": draw(st.integers(0, isl + 2)) if prefixes and draw(st.booleans()) else 0,
            "osl": osl,
        }
    group = {"prefix_group": draw(st.sampled_from([None, 0, 1])), "prefix_len": draw(st.integers(0, isl + 16))}
    return {"isl": isl, "prefix": 0, "osl": osl, **group}


@st.composite
def workloads(draw: st.DrawFn, row: st.SearchStrategy[Json]) -> Json:
    """A closed loop, a replay (sometimes through a client with a limit) or sessions, of such rows."""
    plane = {
        "turnaround_ms": draw(times(200)),
        "ingest_us_per_token": draw(st.sampled_from([0.0, 0.0, 125.0, 1000.0])),
    }
    mode = draw(st.sampled_from(["closed", "replay", "replay", "sessions"]))
    if mode == "closed":
        rows = draw(st.lists(row, min_size=1, max_size=6))
        sizes = {"concurrency": draw(st.integers(1, 10)), "requests": draw(st.integers(1, 30)), "shapes": rows}
        return {"mode": "closed", **sizes, "stagger_ms": draw(times(400)), **plane}
    if mode == "sessions":
        calls = st.one_of(st.just([]), st.just([]), st.lists(row, max_size=3))
        parts = st.tuples(row, st.one_of(st.just(0.0), times(2000)), calls)
        turn = parts.map(lambda drawn: {**drawn[0], "think_ms": drawn[1], "calls": drawn[2]})
        lanes = draw(st.lists(st.lists(turn, min_size=1, max_size=4), min_size=1, max_size=6))
        return {"mode": "sessions", "lanes": lanes, "stagger_ms": draw(times(400)), **plane}
    timed = st.lists(st.tuples(times(4000), row), min_size=1, max_size=16)
    sent = [{"dispatch_ms": at, **asked} for at, asked in draw(timed)]
    limit = draw(st.sampled_from([None, None, 1, 2, 5]))
    return {"mode": "replay", "requests": sent, "max_concurrency": limit, **plane}


def asked_in(workload: Json) -> list[Json]:
    """The lengths of all its requests."""
    turns = [turn for lane in workload.get("lanes", ()) for turn in lane]
    return workload.get("shapes") or workload.get("requests") or [row for t in turns for row in (t, *t["calls"])]


def launches() -> st.SearchStrategy[Json]:
    """Launch times, of nothing up to more than a pass takes."""
    kinds = {f"{kind}_ms": times(most) for kind, most in (("decode", 100), ("piecewise", 200), ("eager", 400))}
    parts = {
        "eager_queue_fraction": st.sampled_from([0.0, 0.5, 1.0]),
        "detokenizer_ms": st.sampled_from([0.0, 0.0, 1 / 16, 2.0]),
    }
    return st.fixed_dictionaries({**kinds, "max_cudagraph_capture_size": st.sampled_from([0, 8, 64, 512]), **parts})


@st.composite
def vllm(draw: st.DrawFn, rows: list[Json], grouped: bool, ranks: int) -> Json:
    """Options under which every row can run for itself; memory is tight half of the time, and always if prefixes are shared."""
    longest = max(row["isl"] + row["osl"] - 1 for row in rows)
    seats, chunked = draw(st.integers(1, 12)), draw(st.booleans())
    budget = draw(st.integers(max(seats, 1 if chunked else longest), 600))
    engine: Json = {
        "max_num_batched_tokens": budget,
        "max_num_seqs": draw(st.sampled_from([seats, min(budget, 256)])),
        "enable_chunked_prefill": chunked,
        "long_prefill_token_threshold": draw(st.one_of(st.just(0), st.just(0), st.integers(1, 200))),
        "prefill_schedule_interval": draw(st.sampled_from([1, 1, 1, 2, 3, 7])),
        "async_scheduling": draw(st.booleans()),
        "data_parallel_size": ranks,
    }
    if grouped and draw(st.sampled_from([False, False, True])):
        engine["enable_prefix_caching"] = True  # and nothing is ever forgotten
    elif grouped or draw(st.booleans()):
        size = draw(st.sampled_from([1, 4, 16, 32]))
        need = -(-longest // size)
        engine |= {
            "enable_prefix_caching": grouped or draw(st.booleans()),
            "block_size": size,
            "num_gpu_blocks": 1 + need + draw(st.integers(0, 2 * need)),
            "watermark": draw(st.sampled_from([0.0, 0.0, 0.05, 0.3])),
            "scheduler_reserve_full_isl": draw(st.booleans()),
            "host_offload": draw(st.sampled_from([False, False, True])),
        }
    if engine["async_scheduling"] and ranks == 1 and draw(st.sampled_from([False, False, True])):
        engine["launch"] = draw(launches())
    if drafts := draw(st.one_of(st.just(0), st.integers(0, 5))):
        engine["speculation"] = {"drafts": drafts, "accepted": drafts * draw(st.integers(0, 16)) / 16}
    return engine


@st.composite
def sglang(draw: st.DrawFn, rows: list[Json], grouped: bool, ranks: int) -> Json:
    """The same for SGLang; the pool leaves every output its full length."""
    page, mixed, overlap = draw(st.sampled_from([1, 1, 4, 16])), draw(st.booleans()), draw(st.booleans())
    chunks = st.integers(ranks * page, ranks * 300)
    engine: Json = {
        "dp_size": ranks,
        "enable_mixed_chunk": mixed,
        "disable_overlap_schedule": not overlap,
        "chunked_prefill_size": draw(chunks if mixed else st.one_of(st.just(-1), chunks)),
        "max_prefill_tokens": draw(st.sampled_from([16384, 300])),
        "max_running_requests": ranks * draw(st.sampled_from([64, 5, 2, 1])),
        "page_size": page,
        "schedule_conservativeness": draw(st.sampled_from([1.0, 0.125])),
        "schedule_policy": draw(st.sampled_from(["fcfs", "fcfs", "lpm"])),
        "prefill_decode_interval": draw(st.sampled_from([0, 0, 2])),
        "ignore_eos": draw(st.booleans()),
        "disable_radix_cache": not grouped and draw(st.booleans()),
    }
    if draw(st.booleans()):
        need = -(-max(row["isl"] + row["osl"] for row in rows) // page) + 4
        engine["max_total_tokens"] = draw(st.integers(need, 2 * need)) * page
    if overlap and ranks == 1 and draw(st.sampled_from([False, False, True])):
        engine["host_loop"] = {"prefill_select_ms": draw(times(80)), "decode_select_ms": draw(times(80))}
    return engine


@st.composite
def trtllm(draw: st.DrawFn, rows: list[Json], grouped: bool, ranks: int) -> Json:
    """The same for TensorRT-LLM, whose prompts share nothing."""
    chunked, size = draw(st.booleans()), draw(st.sampled_from([1, 4, 16, 32]))
    longest = max(row["isl"] + row["osl"] for row in rows)
    engine: Json = {
        "attention_dp": ranks,
        "tokens_per_block": size,
        "max_batch_size": draw(st.sampled_from([64, 5, 2, 1])),
        "overlap_scheduler": draw(st.booleans()),
        "capacity_policy": draw(st.sampled_from(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"])),
        "enable_chunked_prefill": chunked,
        "max_num_tokens": draw(st.integers(64 if chunked else longest, 600)),
    }
    if ranks == 1 and draw(st.booleans()):
        engine |= {"batch_wait_timeout_iters": 2, "batch_wait_max_tokens_ratio": 0.5}
    if ranks > 1 and draw(st.booleans()):
        waits = {"timeout_iters": draw(st.integers(0, 6)), "batching_wait_iters": draw(st.integers(0, 4))}
        engine["attention_dp_balance"] = waits
    if chunked:
        engine["chunk_policy"] = draw(st.sampled_from(["FCFS", "EQUAL_PROGRESS"]))
        engine["chunk_unit"] = draw(st.sampled_from([None, 1, 64]))
    if draw(st.booleans()):
        need = -(-longest // size)
        engine["max_tokens_in_kv"] = draw(st.integers(need, 2 * need)) * size + draw(st.integers(0, size - 1))
    return engine


def timings() -> st.SearchStrategy[Json]:
    """Linear with every way to combine, or phases."""
    return st.one_of(
        st.fixed_dictionaries(
            {
                "kind": st.just("linear"),
                "prefill": st.sampled_from(PREFILL),
                "decode": st.sampled_from(DECODE),
                "combine": st.sampled_from(["sum", "max", "shared"]),
            }
        ),
        st.just({"kind": "phase", "prefill": [12, 0.016, 5e-07], "decode": [3, 0.06, 0.0011], "floor": 4}),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> Json:
    """A whole scenario: one rank half of the time, else several in lockstep, on one worker or on some."""
    backend = draw(st.sampled_from(["vllm", "sglang", "trtllm"]))
    grouped = backend != "trtllm" and draw(st.sampled_from([False, False, True]))
    ranks, workers = draw(st.sampled_from([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (2, 2)]))
    row = lengths(grouped, prefixes=backend == "vllm")
    if ranks > 1 and draw(st.sampled_from([False, False, True])):
        row = st.builds(lambda asked, rank: {**asked, "data_parallel_rank": rank}, row, st.integers(-1, ranks - 1))
        row = row.map(lambda asked: {**asked, "data_parallel_rank": None} if asked["data_parallel_rank"] < 0 else asked)
    stops = draw(st.sampled_from([False, False, False, True]))
    if stops:
        row = st.builds(
            lambda asked, more: {**asked, "max_tokens": asked["osl"] + more}, row, st.sampled_from([0, 0, 1, 7, 60])
        )
    workload = draw(workloads(row))
    rows = asked_in(workload)
    if stops:
        rows = [{**asked, "osl": asked["max_tokens"]} for asked in rows]  # who must fit
    engine = draw({"vllm": vllm, "sglang": sglang, "trtllm": trtllm}[backend](rows, grouped, ranks))
    if stops and backend == "vllm":
        for name in ("launch", "speculation", "host_offload"):
            engine.pop(name, None)
    parts: Json = {"engine": engine, "workload": workload, "timing": draw(timings())}
    if workers > 1:
        routing = draw(st.sampled_from(["round_robin", "least_loaded", "prefix_affinity"]))
        parts["deployment"] = {"replicas": workers, "routing": routing}
        engine.pop("prefill_decode_interval", None)  # an idle round would jump to an arrival of any worker
    return {"name": "drawn", "backend": backend, **parts}
