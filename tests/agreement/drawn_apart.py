"""Scenarios with prefill and decode apart that Hypothesis draws, of the same rows, traffic and engines as those of one pool.

Half of the links send a token in a whole number of 1/1024 ms and let at most two transfers share an end, so that all ends of transfers are exact too; on
the others, where many share, no transfer ends when a pass does.
"""

from typing import Any

from hypothesis import strategies as st

from .drawn import Json, asked_in, lengths, sglang, times, timings, trtllm, vllm, workloads

ENGINES: dict[str, Any] = {"vllm": vllm, "sglang": sglang, "trtllm": trtllm}
MEMORY = {"vllm": "num_gpu_blocks", "sglang": "max_total_tokens", "trtllm": "max_tokens_in_kv"}
ALONE = ("launch", "host_loop", "prefill_decode_interval")  # are refused apart
STEP_BYTES = 1e6 / 1024  # a token of so many takes 1/1024 ms at 1 GB/s


@st.composite
def links(draw: st.DrawFn) -> Json:
    """Whatever a link may be: from one that costs nothing to one that all wait for."""
    if draw(st.booleans()):
        flows = {
            "gb_per_s": 1.0,
            "efficiency": 1.0,
            "kv_bytes_per_token": draw(st.sampled_from([0, 1, 8, 64, 512])) * STEP_BYTES,
        }
        most = st.sampled_from([1, 2])
    else:
        flows = {"gb_per_s": draw(st.sampled_from([0.7, 3.0, 50.0])), "kv_bytes_per_token": 131072}
        most = st.sampled_from([None, None, None, 1, 2, 3])
    return {
        **flows,
        "latency_ms": draw(times(40)),
        "max_transfers_per_worker": draw(most),
        "transfer": draw(st.sampled_from(["full", "missing"])),
        "transfer_start": draw(st.sampled_from(["last_chunk", "each_chunk"])),
    }


@st.composite
def pools(draw: st.DrawFn, backend: str, rows: list[Json], grouped: bool) -> Json:
    """Options of one pool's engine; a pool of SGLang's or TensorRT-LLM's may have ranks too."""
    engine: Json = draw(ENGINES[backend](rows, grouped, draw(st.sampled_from([1, 1, 1, 2]))))
    return {name: value for name, value in engine.items() if name not in ALONE}


def spacious(backend: str, engine: Json, rows: list[Json], reserved: int) -> Json:
    """The same with memory for the largest hand-off (D6)."""
    name, longest = MEMORY[backend], max(row["isl"] for row in rows)
    if backend == "sglang" and engine.get(name):
        need = -(-(longest + reserved) // engine["page_size"]) * engine["page_size"]
        return engine | {name: max(engine[name], need)}
    if backend == "vllm" and engine.get(name):
        return engine | {name: max(engine[name], 1 + -(-(longest + 1) // engine["block_size"]))}
    return engine


@st.composite
def apart(draw: st.DrawFn) -> Json:
    """A whole scenario: two pools, of the same engine half of the time, and what lies between."""
    backend = draw(st.sampled_from(["vllm", "sglang", "trtllm"]))
    behind = draw(st.one_of(st.just(backend), st.sampled_from(["vllm", "sglang", "trtllm"])))
    grouped = "trtllm" not in (backend, behind) and draw(st.sampled_from([False, False, True]))
    first = draw(st.sampled_from(["prefill", "prefill", "decode"] + ["decode_pass"] * (behind != "sglang")))
    row = lengths(grouped, prefixes=backend == "vllm")
    if stops := draw(st.sampled_from([False, False, False, True])):
        more = st.sampled_from([0, 0, 1, 7, 60])
        row = st.builds(lambda asked, further: {**asked, "max_tokens": asked["osl"] + further}, row, more)
    workload = draw(workloads(row))
    rows = asked_in(workload)
    engine = draw(pools(backend, [{**asked, "osl": 1} for asked in rows], grouped))
    after = draw(pools(behind, [{**asked, "osl": asked.get("max_tokens", asked["osl"])} for asked in rows], grouped))
    if stops:
        for name in ("speculation", "host_offload") if behind == "vllm" else ():
            after.pop(name, None)
    # Else who resumes may take up and lose, for ever, what a hand-off without a seat leaves.
    after.pop("scheduler_reserve_full_isl", None)
    if first == "decode" and any(asked["osl"] == 1 for asked in rows):
        # Who has nothing left to make sets memory free, but wakes no engine of the oracle that waits for it.
        after.pop(MEMORY[behind], None)
    if after.get("capacity_policy") == "STATIC_BATCH":
        after["capacity_policy"] = "MAX_UTILIZATION"
    reserved = draw(st.sampled_from([512, 0, 1, 16, 64])) if behind == "sglang" else 512
    deployment = {
        "kind": "disaggregated",
        "decode": {"backend": behind, "engine": spacious(behind, after, rows, reserved), "timing": draw(timings())},
        "prefill_workers": draw(st.sampled_from([1, 1, 2, 3])),
        "decode_workers": draw(st.sampled_from([1, 1, 2])),
        "link": draw(links()),
        "first_token": first,
        "hold": draw(st.sampled_from(["none", "blocks", "blocks_and_seat"])),
        "routing": draw(st.sampled_from(["round_robin", "least_loaded"])),
        "prefill_inflight_cap": draw(st.sampled_from([None, None, 1, 2])),
        "num_reserved_decode_tokens": reserved,
    }
    parts = {"engine": engine, "deployment": deployment, "workload": workload, "timing": draw(timings())}
    return {"name": "drawn", "backend": backend, **parts}
