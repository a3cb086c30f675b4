"""The law: every field of everything that a user fills in changes the answer or is refused. A new field without an entry here fails."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from inspect import signature
from typing import Any

import pandas as pd
import pytest
from pydantic import BaseModel

import passcal as pc
from passcal.spec.lengths import Gamma, Joint, Lognormal, Mix, Strata, Uniform
from tests.worlds import CLOCK

ROWS = [(0.0, 90, 30), (0.5, 300, 3), (1.0, 30, 40), (40.0, 200, 12), (41.0, 64, 9), (41.0, 64, 33)]
SHARED = {  # the same with prefixes that two groups share
    "dispatch_ms": [row[0] for row in ROWS],
    "isl": [row[1] for row in ROWS],
    "osl": [row[2] for row in ROWS],
    "prefix_group": [0, 1, 0, 1, 0, 1],
    "prefix_len": [60, 200, 20, 150, 60, 60],
}
SEEN = {  # the same with images in some
    "dispatch_ms": [row[0] for row in ROWS],
    "isl": [row[1] for row in ROWS],
    "osl": [row[2] for row in ROWS],
    "vision_tokens": [60, 0, 20, 150, 60, 60],
}
APART_IN_TIME = SEEN | {"dispatch_ms": [0.0, 0.5, 8.0, 90.0, 91.0, 91.0], "vision_tokens": [90, 10, 20, 150, 60, 60]}
TURN = {"isl": 90, "osl": 12, "prefix_group": 0, "prefix_len": 80}
AGAIN = {"isl": 120, "osl": 30, "think_ms": 3.0}
LOOP = {"shapes": [(90, 0, 30), (200, 20, 12)], "concurrency": 5, "requests": 17}
REFUSED = "refused"  # what a value does; else a dict: it changes the answer beside these other options

ENGINE = {"max_num_batched_tokens": 128, "max_num_seqs": 4, "num_gpu_blocks": 33, "async_scheduling": True}
LAUNCH = {"decode_ms": 3.0, "piecewise_ms": 4.0, "eager_ms": 5.0, "max_cudagraph_capture_size": 64}
VLLM: dict[str, Any] = {
    "backend": ("sglang", REFUSED),
    "max_num_batched_tokens": (200, {}),
    "max_num_seqs": (3, {}),
    "enable_chunked_prefill": (False, {"max_num_batched_tokens": 310}),
    "long_prefill_token_threshold": (40, {}),
    "async_scheduling": (False, {}),
    "num_gpu_blocks": (None, {}),
    "block_size": (11, {}),
    "enable_prefix_caching": (False, {"rows": SHARED}),
    "scheduler_reserve_full_isl": (False, {"num_gpu_blocks": 24}),
    "watermark": (0.2, {}),
    "prefill_schedule_interval": (7, {"num_gpu_blocks": None, "max_num_batched_tokens": 400}),
    "max_model_len": (302, {}),
    "data_parallel_size": (2, {}),
    "launch": (LAUNCH, {}),
    "speculation": ({"drafts": 3, "accepted": 1.5}, {}),
    "host_offload": (True, {"num_gpu_blocks": 22}),
}
SGLANG: dict[str, Any] = {
    "backend": ("vllm", REFUSED),
    "chunked_prefill_size": (100, {}),
    "max_prefill_tokens": (64, {}),
    "max_running_requests": (3, {}),
    "enable_mixed_chunk": (True, {}),
    "disable_overlap_schedule": (True, {}),
    "page_size": (16, {}),
    "max_total_tokens": (None, {}),
    "schedule_policy": ("lpm", {"rows": SHARED}),
    "schedule_conservativeness": (0.2, {"ignore_eos": False, "max_total_tokens": 460}),
    "prefill_decode_interval": (3, {}),
    "ignore_eos": (False, {}),
    "disable_radix_cache": (True, {"rows": SHARED}),
    "dp_size": (2, {}),
    "host_loop": ({"decode_select_ms": 9.0}, {}),
    "context_length": (303, {}),
    "speculation": ({"drafts": 3}, REFUSED),
}
TRTLLM: dict[str, Any] = {
    "backend": ("vllm", REFUSED),
    "max_num_tokens": (160, {}),
    "max_batch_size": (3, {}),
    "enable_chunked_prefill": (False, {"max_num_tokens": 310, "tokens_per_block": 8}),
    "chunk_policy": ("EQUAL_PROGRESS", {}),
    "chunk_unit": (8, {}),
    "tokens_per_block": (16, {}),
    "max_tokens_in_kv": (None, {}),
    "capacity_policy": ("MAX_UTILIZATION", {"max_tokens_in_kv": 400}),
    "overlap_scheduler": (False, {}),
    "admission_lookahead": (False, {}),
    "batch_wait_timeout_iters": (3, {"batch_wait_max_tokens_ratio": 0.9}),
    "batch_wait_max_tokens_ratio": (0.9, {"batch_wait_timeout_iters": 3}),
    "attention_dp": (2, {}),
    "attention_dp_balance": (True, {"attention_dp": 2}),
    "max_seq_len": (302, {}),
    "speculation": ({"drafts": 3}, REFUSED),
}
ENGINES: dict[type, tuple[dict[str, Any], dict[str, Any]]] = {  # options under which every knob matters, and the knobs
    pc.Vllm: (ENGINE, VLLM),
    pc.Sglang: (
        {"chunked_prefill_size": 128, "max_running_requests": 4, "max_total_tokens": 700, "page_size": 4},
        SGLANG,
    ),
    pc.Trtllm: ({"max_num_tokens": 128, "max_batch_size": 4, "max_tokens_in_kv": 640}, TRTLLM),
}
SPECULATION: dict[str, Any] = {"drafts": (4, {}), "accepted": (1.25, {})}
LAUNCH_TIMES: dict[str, Any] = {
    "decode_ms": (20.0, {}),
    "piecewise_ms": (40.0, {"max_cudagraph_capture_size": 200}),
    "eager_ms": (40.0, {}),
    "max_cudagraph_capture_size": (200, {"eager_ms": 40.0}),
    "eager_queue_fraction": (0.9, {}),
    "detokenizer_ms": (0.5, {}),
}
HOST_LOOP: dict[str, Any] = {"prefill_select_ms": (9.0, {}), "decode_select_ms": (9.0, {})}
BALANCE: dict[str, Any] = {"timeout_iters": (3, {}), "batching_wait_iters": (3, {})}
AGGREGATED: dict[str, Any] = {
    "engine": (pc.Vllm(**ENGINE | {"max_num_seqs": 3}), {}),
    "replicas": (2, {}),
    "routing": ("least_loaded", {"replicas": 2}),
    "encoder": (pc.Encoder(latency_ms=3.0), {"rows": SEEN}),
}
ENCODER: dict[str, Any] = {  # an engine, and what goes with it; a number alone is another test's
    "engine": (pc.Vllm(max_num_batched_tokens=40, max_num_seqs=2), {}),
    "workers": (2, {}),
    "link": (pc.Link(gb_per_s=1.0, kv_bytes_per_token=400_000), {}),
    "routing": ("least_loaded", {"workers": 2, "rows": APART_IN_TIME}),
    "latency_ms": (2.0, REFUSED),
}
LINKED = {"gb_per_s": 1.0, "kv_bytes_per_token": 40_000}
LINK: dict[str, Any] = {
    "gb_per_s": (2.0, {}),
    "kv_bytes_per_token": (50_000, {}),
    "efficiency": (0.7, {}),
    "latency_ms": (3.0, {}),
    "max_transfers_per_worker": (1, {"kv_bytes_per_token": 400_000}),
    "transfer": ("missing", {}),
    "transfer_start": ("each_chunk", {}),
}
APART: dict[str, Any] = {
    "prefill": (1, {}),  # seats of that pool
    "decode": (1, {}),
    "prefill_workers": (2, {}),
    "decode_workers": (2, {}),
    "link": (None, {}),
    "first_token": ("decode", {}),
    "hold": ("blocks_and_seat", {"prefill": 1}),  # blocks: below
    "routing": ("least_loaded", {"prefill_workers": 2, "decode_workers": 2}),
    "prefill_inflight_cap": (1, {}),
    "num_reserved_decode_tokens": (1, REFUSED),
    "encoder": (pc.Encoder(latency_ms=3.0), {"rows": SEEN}),
}
REPLAY: dict[str, Any] = {
    "rows": (ROWS[1:], {}),
    "max_concurrency": (2, {}),
    "turnaround_ms": (2.5, {}),
    "ingest_us_per_token": (3.6, {}),
    "notes": (("read from a file",), "is shown"),
}
STRETCH: dict[str, Any] = {  # what makes the rows of a replay and is not kept
    "time_scale": (0.5, {}),
    "start_ms": (0.5, {}),
    "end_ms": (41.0, {}),
}
SESSIONS: dict[str, Any] = {
    "rows": ([[AGAIN, TURN]], {}),
    "labels": (None, "is in the frames"),
    "stagger_ms": (7.0, {}),
    "turnaround_ms": (2.5, {}),
    "ingest_us_per_token": (3.6, {}),
}
TURNS: dict[str, Any] = {
    "isl": (200, {}),
    "osl": (13, {}),
    "prefix": (16, {}),
    "think_ms": (1.0, {}),
    "prefix_group": (1, {"prefix_group": 0, "prefix_len": 60}),
    "prefix_len": (60, {"prefix_group": 0}),
    "data_parallel_rank": (1, {"data_parallel_rank": 0}),
    "max_tokens": (60, {}),
    "vision_tokens": (60, REFUSED),  # without an encoder; with one: below
    "calls": ([(30, 0, 5)], {}),
}
CLOSED: dict[str, Any] = {
    "shapes": ([(90, 0, 30)], {}),
    "concurrency": (4, {}),
    "requests": (16, {}),
    "stagger_ms": (7.0, {}),
    "turnaround_ms": (2.5, {}),
    "ingest_us_per_token": (3.6, {}),
}
ROOMY = pc.Vllm(**ENGINE | {"num_gpu_blocks": 200})
VARIED = pc.Lengths.uniform(20, 300)
OPEN = {"shapes": [(90, 0, 30), (200, 20, 12)], "rate_per_s": 6.0, "arrivals": "gamma", "cv": 1.5}
OPEN_LOOP: dict[str, Any] = {
    "shapes": ([(90, 0, 30)], {}),
    "rate_per_s": (5.0, {}),
    "arrivals": ("poisson", {"arrivals": "constant", "cv": None}),
    "cv": (1.0, {}),
    "gaps_ms": ([270.0, 20.0], {"arrivals": None, "cv": None}),
    "horizon_requests": (150, {}),
    "turnaround_ms": (2.5, {}),
    "ingest_us_per_token": (3.6, {}),
}
STRATA: dict[str, Any] = {"tokens": ((50, 91), {}), "weights": ((1.0, 3.0), {})}
MOMENTS: dict[str, Any] = {"mean": (210.0, {}), "cv": (0.6, {})}
UNIFORM: dict[str, Any] = {"low": (21, {}), "high": (301, {})}
JOINT: dict[str, Any] = {"rows": ([(90, 0, 30), (200, 20, 13)], {})}
MIX: dict[str, Any] = {
    "isl": (pc.Lengths.uniform(20, 301), {}),
    "osl": (pc.Lengths.uniform(2, 31), {}),
    "prefix": (9, {}),
    "correlation": (0.5, {}),
}
LAWS: dict[type, tuple[dict[str, Any], dict[str, Any]]] = {  # arguments, and what changing one does
    Strata: ({"tokens": (50, 90), "weights": (1.0, 2.0)}, STRATA),
    Lognormal: ({"mean": 200.0, "cv": 0.5}, MOMENTS),
    Gamma: ({"mean": 200.0, "cv": 0.5}, MOMENTS),
    Uniform: ({"low": 20, "high": 300}, UNIFORM),
    Joint: ({"rows": [(90, 0, 30), (200, 20, 12)]}, JOINT),
    Mix: ({"isl": VARIED, "osl": pc.Lengths.uniform(2, 30)}, MIX),
}
LINEAR: dict[str, Any] = {
    "prefill": ((6.0, 0.0203, 1.3e-6, 2.1e-7), {}),
    "decode": ((8.0, 0.06, 2.3e-6), {}),
    "combine": ("max", {}),
    "capture_sizes": ((4,), {}),
    "gpus": None,  # moves no price; see test_report_tokens
}
PHASE: dict[str, Any] = {
    "prefill_ms": (lambda batch, isl, prefix: 7.0, {}),
    "decode_ms": (lambda batch, context: 4.0, {}),
    "mixed_pass_ms": (lambda *_: 50.0, {}),
    "pure": (False, "is asked more often"),
}
CALLBACKS = {"prefill_ms": lambda batch, isl, prefix: 6.0, "decode_ms": lambda batch, context: 3.0}


def digest(report: pc.Report) -> tuple[Any, ...]:
    """What was scheduled and when."""
    return report.requests().to_numpy().tolist(), report.passes().to_numpy().tolist(), report.notes


def replay(engine: dict[str, Any] | None = None, timing: Any = CLOCK, **traffic: Any) -> pc.Report:
    """A replay on a small engine whose every knob matters."""
    return pc.evaluate(pc.Workload.replay(**{"rows": ROWS} | traffic), pc.Vllm(**ENGINE | (engine or {})), timing)


def entries(table: dict[str, Any], *apart: str) -> list[Any]:
    """A table's fields as parameters, without those that are tested apart."""
    return [pytest.param(name, *entry, id=name) for name, entry in table.items() if name not in apart]


def matters(ask: Callable[..., pc.Report], name: str, value: Any, effect: Any) -> None:
    """The field changes the answer, or is refused by name."""
    if effect == REFUSED:
        with pytest.raises((pc.Unsupported, pc.SpecError), match=name):
            ask(**{name: value})
        return
    beside = effect if isinstance(effect, dict) else {}
    assert digest(ask(**beside)) != digest(ask(**beside | {name: value}))


@pytest.mark.parametrize(
    ("engine", "name", "value", "effect"),
    [
        pytest.param(engine, name, *entry, id=f"{engine.__name__}.{name}")
        for engine, (_, knobs) in ENGINES.items()
        for name, entry in knobs.items()
    ],
)
def test_engines(engine: Any, name: str, value: Any, effect: Any):
    def ask(rows: Any = ROWS, **options: Any) -> pc.Report:
        return pc.evaluate(pc.Workload.replay(rows), engine(**ENGINES[engine][0] | options), CLOCK)

    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(SPECULATION))
def test_speculation(name: str, value: Any, effect: Any):
    ask = lambda **options: replay(engine={"speculation": pc.Speculation(**{"drafts": 3, "accepted": 1.5} | options)})  # noqa: E731
    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(LAUNCH_TIMES))
def test_launch(name: str, value: Any, effect: Any):
    matters(lambda **options: replay(engine={"launch": LAUNCH | options}), name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(HOST_LOOP))
def test_host_loop(name: str, value: Any, effect: Any):
    ask = lambda **options: pc.evaluate(pc.Workload.replay(ROWS), pc.Sglang(host_loop=pc.HostLoop(**options)), CLOCK)  # noqa: E731
    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(BALANCE))
def test_attention_dp_balance(name: str, value: Any, effect: Any):
    rows = [(0.0, 90, 30), (0.0, 80, 30), *((20.0 + 70 * k, 300, 3) for k in range(3)), (200.0, 300, 3)]

    def ask(**options: Any) -> pc.Report:
        balance = {"timeout_iters": 6, "batching_wait_iters": 1} | options
        return pc.evaluate(pc.Workload.replay(rows), pc.Trtllm(attention_dp=2, attention_dp_balance=balance), CLOCK)

    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(AGGREGATED))
def test_aggregated(name: str, value: Any, effect: Any):
    nothing = {"encoder": pc.Encoder(latency_ms=0.0)} if name == "encoder" else {}

    def ask(rows: Any = ROWS, **options: Any) -> pc.Report:
        deployment = pc.Aggregated(**{"engine": pc.Vllm(**ENGINE)} | nothing | options)
        return pc.evaluate(pc.Workload.replay(rows), deployment, CLOCK)

    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(ENCODER))
def test_encoder(name: str, value: Any, effect: Any):
    def ask(rows: Any = SEEN, **options: Any) -> pc.Report:
        encoder = pc.Encoder(**{"engine": pc.Vllm(max_num_batched_tokens=64, max_num_seqs=4)} | options)
        return pc.evaluate(pc.Workload.replay(rows), pc.Aggregated(pc.Vllm(**ENGINE), encoder=encoder), CLOCK)

    matters(ask, name, value, effect)


def test_vision_tokens_matter():
    """Of rows, of turns and of shapes, where an encoder makes them."""

    def ask(vision_tokens: int) -> tuple[Any, ...]:
        row = {"isl": 90, "osl": 12, "vision_tokens": vision_tokens}
        deployment = pc.Aggregated(pc.Vllm(**ENGINE), encoder=pc.Encoder(engine=pc.Vllm()))
        loads = (
            pc.Workload.sessions([[pc.Turn(**row)]]),
            pc.Workload.closed_loop(shapes=[row], concurrency=2, requests=4),
            pc.Workload.replay([{"dispatch_ms": 0.0, **row}]),
        )
        return tuple(digest(pc.evaluate(load, deployment, CLOCK)) for load in loads)

    assert all(few != many for few, many in zip(ask(20), ask(60), strict=True))


def apart(engine: Any, **options: Any) -> pc.Report:
    """Two pools of one engine with a link between them; a number for a pool is how many seats it has."""
    seats = {pc.Vllm: "max_num_seqs", pc.Sglang: "max_running_requests", pc.Trtllm: "max_batch_size"}[engine]
    pool = ENGINES[engine][0]
    sides = {side: engine(**pool | {seats: options.pop(side, 4)}) for side in ("prefill", "decode")}
    rows = options.pop("rows", [(at, isl, 16 if engine is pc.Vllm else 0, osl) for at, isl, osl in ROWS])
    reserve = {"num_reserved_decode_tokens": 16} if engine is pc.Sglang else {}
    link = {"link": pc.Link(**LINKED)}
    return pc.evaluate(pc.Workload.replay(rows), pc.Disaggregated(**sides | reserve | link | options), CLOCK)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "value", "effect"), entries(APART))
def test_apart(engine: Any, name: str, value: Any, effect: Any):
    if engine is pc.Sglang and name == "num_reserved_decode_tokens":
        value, effect = 300, {}
    nothing = {"encoder": pc.Encoder(latency_ms=0.0)} if name == "encoder" else {}
    matters(lambda **options: apart(engine, **nothing | options), name, value, effect)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "value", "effect"), entries(LINK))
def test_link(engine: Any, name: str, value: Any, effect: Any):
    if name == "transfer" and engine is not pc.Vllm:  # nothing of its prompts is cached, so nothing is missing
        return
    matters(lambda **options: apart(engine, link=pc.Link(**LINKED | options)), name, value, effect)


@pytest.mark.parametrize("engine", ENGINES)
def test_blocks_that_are_held_matter(engine: Any):
    """Where the prefill pool is tight."""
    tight = {
        pc.Vllm: {"num_gpu_blocks": 24},
        pc.Sglang: {"max_total_tokens": 420},
        pc.Trtllm: {"max_tokens_in_kv": 352},
    }
    sides = {"prefill": engine(**ENGINES[engine][0] | tight[engine]), "decode": engine()}
    link = pc.Link(gb_per_s=1.0, kv_bytes_per_token=400_000)

    def ask(hold: str = "none") -> pc.Report:
        return pc.evaluate(pc.Workload.replay(ROWS), pc.Disaggregated(**sides, link=link, hold=hold), CLOCK)

    matters(ask, "hold", "blocks", {})


@pytest.mark.parametrize(("name", "value", "effect"), entries(REPLAY, "notes"))
def test_replay(name: str, value: Any, effect: Any):
    matters(replay, name, value, effect)


def test_notes_are_shown():
    assert "1 rows" not in "".join(replay().notes)
    swapped = [ROWS[1], ROWS[0], *ROWS[2:]]
    assert any("sorted" in note for note in replay(rows=swapped).notes)


@pytest.mark.parametrize(("name", "value", "effect"), entries(STRETCH))
def test_the_stretch_of_a_replay(name: str, value: Any, effect: Any):
    matters(replay, name, value, effect)


def test_every_argument_of_a_replay_has_an_entry():
    assert set(signature(pc.Workload.replay).parameters) == set(REPLAY) - {"notes"} | set(STRETCH)


@pytest.mark.parametrize(("name", "value", "effect"), entries(SESSIONS, "labels"))
def test_sessions(name: str, value: Any, effect: Any):
    def ask(rows: Any = ([AGAIN, TURN], [TURN]), **options: Any) -> pc.Report:
        return pc.evaluate(pc.Workload.sessions(rows, **options), pc.Vllm(**ENGINE), CLOCK)

    matters(ask, name, value, effect)


def test_sessions_are_called_what_they_are_called():
    frame = pd.DataFrame({"session": ["b", "a", "b"], "isl": [90, 40, 60], "osl": [3, 4, 5]})
    report = pc.evaluate(pc.Workload.sessions(frame), pc.Vllm(**ENGINE), CLOCK)
    assert report.requests()["session"].tolist() == ["b", "a", "b"]
    assert report.turns()[["session", "turn"]].to_numpy().tolist() == [["b", 0], ["b", 1], ["a", 0]]


@pytest.mark.parametrize(("name", "value", "effect"), entries(TURNS))
def test_turns(name: str, value: Any, effect: Any):
    def ask(**options: Any) -> pc.Report:
        lanes = [[TURN, AGAIN | options], [TURN, TURN]]
        return pc.evaluate(pc.Workload.sessions(lanes), pc.Vllm(**ENGINE | {"data_parallel_size": 2}), CLOCK)

    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(CLOSED))
def test_closed_loop(name: str, value: Any, effect: Any):
    matters(
        lambda **options: pc.evaluate(pc.Workload.closed_loop(**LOOP | options), pc.Vllm(**ENGINE), CLOCK),
        name,
        value,
        effect,
    )


@pytest.mark.parametrize(("name", "value", "effect"), entries(CLOSED, "requests"))
def test_endless_closed_loop(name: str, value: Any, effect: Any):
    """The same in the steady state."""
    ask = lambda **options: pc.evaluate(  # noqa: E731
        pc.Workload.closed_loop(**LOOP | {"requests": None} | options), pc.Vllm(**ENGINE), CLOCK
    )
    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(OPEN_LOOP))
def test_open_loop(name: str, value: Any, effect: Any):
    def ask(**options: Any) -> pc.Report:
        given = OPEN | options
        stop = None if "horizon_requests" in given else pc.Window(requests=200)
        return pc.evaluate(pc.Workload.open_loop(**given), ROOMY, CLOCK, stop=stop)

    matters(ask, name, value, effect)


@pytest.mark.parametrize("rate_per_s", [None, 6.0])
def test_listed_gaps_and_their_rate(rate_per_s: float | None):
    """A rate beside gaps scales them."""
    ask = lambda **how: pc.evaluate_open_loop(  # noqa: E731
        pc.Workload.open_loop(90, 30, **how), ROOMY, CLOCK, stop=pc.Window(requests=50)
    )
    matters(ask, "gaps_ms", [399.0, 12.0], {"gaps_ms": [399.0, 13.0], "rate_per_s": rate_per_s})
    matters(ask, "rate_per_s", 4.0, {"gaps_ms": [399.0, 13.0], "rate_per_s": rate_per_s})


@pytest.mark.parametrize(
    ("law", "name", "value", "effect"),
    [
        pytest.param(law, name, *entry, id=f"{law.__name__}.{name}")
        for law, (_, knobs) in LAWS.items()
        for name, entry in knobs.items()
    ],
)
@pytest.mark.parametrize("closed", [True, False])
def test_laws(closed: bool, law: Any, name: str, value: Any, effect: Any):
    def ask(**options: Any) -> pc.Report:
        drawn = law(**LAWS[law][0] | options)
        lengths = {"shapes": drawn} if isinstance(drawn, Joint | Mix) else {"isl": drawn, "osl": 12}
        loop = (
            pc.Workload.closed_loop(**lengths, concurrency=3, requests=100)
            if closed
            else pc.Workload.open_loop(**lengths, rate_per_s=9.0, horizon_requests=100)
        )
        return pc.evaluate(loop, ROOMY, CLOCK)

    matters(ask, name, value, effect)


@pytest.mark.parametrize(("name", "value", "effect"), entries(LINEAR, "gpus"))
def test_linear_timing(name: str, value: Any, effect: Any):
    base = {"prefill": CLOCK.prefill, "decode": CLOCK.decode}
    matters(lambda **options: replay(timing=pc.LinearTiming(**base | options)), name, value, effect)


@pytest.mark.parametrize("part", ["prefill", "decode"])
def test_every_coefficient_matters(part: str):
    coefficients = getattr(CLOCK, part)
    plain = digest(replay())
    for k in range(len(coefficients)):
        changed = {part: tuple(c * (1.01 if j == k else 1) for j, c in enumerate(coefficients))}
        timing = pc.LinearTiming(**{"prefill": CLOCK.prefill, "decode": CLOCK.decode} | changed)
        assert digest(replay(timing=timing)) != plain, f"{part}[{k}]"


@pytest.mark.parametrize(("name", "value", "effect"), entries(PHASE, "pure"))
def test_phase_timing(name: str, value: Any, effect: Any):
    matters(lambda **options: replay(timing=pc.PhaseTiming(**CALLBACKS | options)), name, value, effect)


SLA: dict[str, Any] = {"metric": ("tpot", {}), "quantile": ("mean", {}), "limit_ms": (12.0, {})}
FLOOR: dict[str, Any] = {"metric": ("output_tokens_per_s", {}), "limit": (10.0, {})}


@pytest.mark.parametrize(
    ("target", "base", "name", "value"),
    [
        pytest.param(target, base, name, value, id=f"{target.__name__}.{name}")
        for target, base, table in (
            (pc.Sla, {"metric": "itl", "quantile": 0.99, "limit_ms": 17.5}, SLA),
            (pc.Floor, {"metric": "throughput_rps", "limit": 50.0}, FLOOR),
        )
        for name, (value, _) in table.items()
    ],
)
def test_targets(target: Any, base: dict[str, Any], name: str, value: Any):
    loop, engine = pc.Workload.closed_loop(200, 20), pc.Vllm(max_num_batched_tokens=256)
    ceiling = pc.Sla("itl", "mean", 25.0)

    def ask(**options: Any) -> Any:
        asked = target(**base | options)
        found = pc.capacity(engine, CLOCK, sla=[asked, ceiling], workload=loop, most=24)
        return found.load, found.reason.split(" at ")[-1], [point.violated == () for point in found.tried]

    assert ask() != ask(**{name: value})


TABLES: dict[type, dict[str, Any]] = {
    **{engine: knobs for engine, (_, knobs) in ENGINES.items()},
    pc.Aggregated: AGGREGATED,
    pc.Disaggregated: APART,
    pc.Link: LINK,
    pc.Encoder: ENCODER,
    pc.Launch: LAUNCH_TIMES,
    pc.Speculation: SPECULATION,
    pc.HostLoop: HOST_LOOP,
    pc.AttentionDpBalance: BALANCE,
    type(pc.Workload.replay(ROWS)): REPLAY,
    type(pc.Workload.closed_loop(1, 1)): CLOSED,
    type(pc.Workload.open_loop(1, 1, 1.0)): OPEN_LOOP,
    **{law: knobs for law, (_, knobs) in LAWS.items()},
    pc.Sla: SLA,
    pc.Floor: FLOOR,
    type(pc.Workload.sessions([[AGAIN]])): SESSIONS,
    pc.Turn: TURNS,
    pc.LinearTiming: LINEAR,
    pc.PhaseTiming: PHASE,
    pc.LimitCycle: {"max_passes": None, "jump_after": None, "strict": None},  # the next three in test_stopping
    pc.Window: {
        "requests": None,
        "warmup": None,
        "max_requests": None,
        "tolerance": None,
    },  # the last in test_open_loop
    pc.Drained: {},
    pc.PrefixOracle: {field.name: None for field in fields(pc.PrefixOracle)},  # in sources/test_prefix
    pc.Roofline: {field.name: None for field in fields(pc.Roofline)},  # in timing/test_roofline
}


def offered() -> list[type]:
    """Everything public that a user fills in, workloads by their concrete classes."""
    public = [thing for name in pc.__all__ if isinstance(thing := getattr(pc, name), type)]
    filled = [thing for thing in public if is_dataclass(thing) or issubclass(thing, BaseModel)]
    return sorted(
        {leaf for thing in filled for leaf in ([*thing.__subclasses__()] or [thing])}, key=lambda t: t.__name__
    )


def test_every_field_has_an_entry():
    for thing in offered():
        names = set(thing.model_fields) if issubclass(thing, BaseModel) else {field.name for field in fields(thing)}
        assert thing in TABLES, f"{thing.__name__} has no table of what its fields do"
        assert names == set(TABLES[thing]), thing.__name__
