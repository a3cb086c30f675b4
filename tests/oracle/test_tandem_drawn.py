"""Two stages as Hypothesis draws them: they end, and keep the laws; and one that is another in disguise."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools.oracle import Stalled, simulate

from .tandem_laws import assert_tandem

TIMINGS = (
    {"kind": "linear", "prefill": [5, 1 / 64, 0, 0], "decode": [4, 0.25, 1 / 512], "combine": "sum"},
    {"kind": "phase", "prefill": [12, 0.016, 5e-07], "decode": [3, 0.06, 0.0011], "floor": 4},
)
LONGEST, MOST = 150, 40


def common(ahead: str, seats: str, budget: str) -> dict:
    """Options that all engines have, by name."""
    return {ahead: st.booleans(), seats: st.sampled_from([1, 2, 5, 64]), budget: st.sampled_from([64, 128, 4096])}


VLLM = {
    **common("async_scheduling", "max_num_seqs", "max_num_batched_tokens"),
    "num_gpu_blocks": st.one_of(st.none(), st.integers(1 + 12, 40)),
    "data_parallel_size": st.sampled_from([1, 1, 2]),
    "enable_prefix_caching": st.booleans(),
}
SGLANG = {
    **common("disable_overlap_schedule", "max_running_requests", "chunked_prefill_size"),
    "max_total_tokens": st.one_of(st.none(), st.integers(LONGEST + MOST + 60, 600)),
    "page_size": st.sampled_from([1, 16]),
    "enable_mixed_chunk": st.booleans(),
}
TRTLLM = {
    **common("overlap_scheduler", "max_batch_size", "max_num_tokens"),
    "max_tokens_in_kv": st.one_of(st.none(), st.integers(LONGEST + MOST + 40, 600)),
    "capacity_policy": st.sampled_from(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION"]),
}
ENGINES = st.one_of(
    *(
        st.fixed_dictionaries({"backend": st.just(backend), "engine": st.fixed_dictionaries(options)})
        for backend, options in (("vllm", VLLM), ("sglang", SGLANG), ("trtllm", TRTLLM))
    )
)
LINKS = st.fixed_dictionaries(
    {
        "gb_per_s": st.sampled_from([1.0, 0.001, 0.01]),
        "kv_bytes_per_token": st.sampled_from([0, 1000]),
        "latency_ms": st.sampled_from([0, 0, 2.5]),
        "max_transfers_per_worker": st.sampled_from([None, None, 1, 2]),
        "transfer_start": st.sampled_from(["last_chunk", "each_chunk"]),
    }
)
DEPLOYMENTS = {
    "kind": st.just("disaggregated"),
    "decode": st.builds(lambda engine, timing: {**engine, "timing": timing}, ENGINES, st.sampled_from(TIMINGS)),
    "prefill_workers": st.integers(1, 3),
    "decode_workers": st.integers(1, 2),
    "link": LINKS,
    "first_token": st.sampled_from(["prefill", "decode", "decode_pass"]),
    "hold": st.sampled_from(["none", "blocks", "blocks_and_seat"]),
    "routing": st.sampled_from(["round_robin", "least_loaded"]),
    "prefill_inflight_cap": st.sampled_from([None, None, 1]),
}


@st.composite
def tandems(draw: st.DrawFn) -> dict:
    """A closed loop or a replay at two stages, each of any engine."""
    deployment = draw(st.fixed_dictionaries(DEPLOYMENTS))
    if deployment["decode"]["backend"] == "sglang":
        deployment["num_reserved_decode_tokens"] = draw(st.sampled_from([0, 4, 30]))
        if deployment["first_token"] == "decode_pass":
            deployment["first_token"] = "decode"
    shapes = draw(
        st.lists(st.tuples(st.integers(1, LONGEST), st.just(0), st.integers(1, MOST)), min_size=1, max_size=5)
    )
    if draw(st.booleans()):
        sizes = {"concurrency": draw(st.integers(1, 8)), "requests": draw(st.integers(1, 24))}
        workload = {"mode": "closed", **sizes, "shapes": [list(shape) for shape in shapes]}
    else:
        keys = ("isl", "prefix", "osl")
        sent = [{"dispatch_ms": 8.5 * k, **dict(zip(keys, shape, strict=True))} for k, shape in enumerate(shapes * 4)]
        workload = {"mode": "replay", "requests": sent}
    return {
        "name": "drawn",
        **draw(ENGINES),
        "deployment": deployment,
        "workload": workload,
        "timing": draw(st.sampled_from(TIMINGS)),
    }


def may_stall(asked: dict) -> bool:
    """T12, D10: a paused request keeps the seat that those who hold its blocks wait for."""
    return asked["deployment"]["decode"]["engine"].get("capacity_policy") == "MAX_UTILIZATION"


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tandems())
def test_it_ends_and_keeps_the_laws(asked: dict):
    """Whatever is put before whatever."""
    try:
        answer = simulate(asked)
    except Stalled:
        assert may_stall(asked)
        return
    assert_tandem(asked, answer)
    limit = asked["workload"].get("requests")
    assert len(answer["requests"]) == max(limit if isinstance(limit, int) else len(limit), 0)
    assert all(len(request["token_ms"]) == request["osl"] for request in answer["requests"])


@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(tandems(), st.sampled_from([2, 1024]))
def test_units_do_not_matter(asked: dict, factor: int):
    """D3: twice the bytes over twice the bandwidth are the same."""
    link = asked["deployment"]["link"]
    other = {**link, "gb_per_s": link["gb_per_s"] * factor, "kv_bytes_per_token": link["kv_bytes_per_token"] * factor}
    try:
        right = simulate(asked)
    except Stalled:
        return
    assert simulate({**asked, "deployment": {**asked["deployment"], "link": other}}) == right
