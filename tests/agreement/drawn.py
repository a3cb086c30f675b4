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
def lengths(draw: st.DrawFn, grouped: bool) -> Json:
    """Lengths, with a prefix group if asked; block edges are favoured, and a prefix may reach isl."""
    isl = draw(st.one_of(st.integers(1, 200), st.sampled_from([1, 15, 16, 17, 32, 64, 400])))
    osl = draw(st.one_of(st.integers(1, 4), st.integers(1, 48)))
    if not grouped:
        return {"isl": isl, "prefix": draw(st.one_of(st.just(0), st.integers(0, isl + 2))), "osl": osl}
    group = {"prefix_group": draw(st.sampled_from([None, 0, 1])), "prefix_len": draw(st.integers(0, isl + 16))}
    return {"isl": isl, "prefix": 0, "osl": osl, **group}


@st.composite
def workloads(draw: st.DrawFn, grouped: bool) -> Json:
    """A closed loop or a replay."""
    plane = {
        "turnaround_ms": draw(times(200)),
        "ingest_us_per_token": draw(st.sampled_from([0.0, 0.0, 125.0, 1000.0])),
    }
    if draw(st.booleans()):
        rows = draw(st.lists(lengths(grouped), min_size=1, max_size=6))
        sizes = {"concurrency": draw(st.integers(1, 10)), "requests": draw(st.integers(1, 30)), "shapes": rows}
        return {"mode": "closed", **sizes, "stagger_ms": draw(times(400)), **plane}
    timed = st.lists(st.tuples(times(4000), lengths(grouped)), min_size=1, max_size=16)
    sent = [{"dispatch_ms": at, **row} for at, row in draw(timed)]
    return {"mode": "replay", "requests": sent, **plane}


def launches() -> st.SearchStrategy[Json]:
    """Launch times, of nothing up to more than a pass takes."""
    kinds = {f"{kind}_ms": times(most) for kind, most in (("decode", 100), ("piecewise", 200), ("eager", 400))}
    parts = {
        "eager_queue_fraction": st.sampled_from([0.0, 0.5, 1.0]),
        "detokenizer_ms": st.sampled_from([0.0, 0.0, 1 / 16, 2.0]),
    }
    return st.fixed_dictionaries({**kinds, "max_cudagraph_capture_size": st.sampled_from([0, 8, 64, 512]), **parts})


@st.composite
def engines(draw: st.DrawFn, rows: list[Json], grouped: bool) -> Json:
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
    }
    if grouped or draw(st.booleans()):
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
    if engine["async_scheduling"] and draw(st.sampled_from([False, False, True])):
        engine["launch"] = draw(launches())
    if drafts := draw(st.one_of(st.just(0), st.integers(0, 5))):
        engine["speculation"] = {"drafts": drafts, "accepted": drafts * draw(st.integers(0, 16)) / 16}
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
    """A whole scenario."""
    grouped = draw(st.sampled_from([False, False, True]))
    workload = draw(workloads(grouped))
    rows = workload.get("shapes") or workload["requests"]
    parts = {"engine": draw(engines(rows, grouped)), "workload": workload, "timing": draw(timings())}
    return {"name": "drawn", "backend": "vllm", **parts}
