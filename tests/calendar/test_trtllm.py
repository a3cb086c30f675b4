"""TensorRT-LLM's rules one by one, on a clock where every pass takes 10 ms, and what must hold in any run. The ids are those of the design notes."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from passcal.assemble import assemble
from passcal.kernel import DONE
from tests.worlds import CLOCK

TEN_MS = pc.LinearTiming((10.0,), (10.0,), combine="max")
TIGHT = {"tokens_per_block": 4, "max_tokens_in_kv": 16, "chunk_unit": 4, "capacity_policy": "MAX_UTILIZATION"}


def run(rows: list[tuple[float, int, int]], overlap: bool = False, **engine: Any) -> Any:
    """Requests of a replay (dispatch_ms, isl, osl), without overlap unless told otherwise."""
    return pc.evaluate_replay(pc.Workload.replay(rows), pc.Trtllm(overlap_scheduler=overlap, **engine), TEN_MS)


def column(report: Any, name: str) -> list[float]:
    """One number a request."""
    return report.requests()[name].tolist()


def loads(report: Any) -> list[tuple[int, int]]:
    """(prompt tokens, decode rows) of each pass."""
    passes = report.passes()
    return list(zip(passes["prefill_tokens"].tolist(), passes["decode_requests"].tolist(), strict=True))


def test_t1_full_outputs_are_reserved():
    """Measured on hardware: 28 of 64 offered run, since each reserves 253 of 7,319 blocks."""
    report = run([(0, 1096, 7000)] * 64, overlap=True, max_tokens_in_kv=7319 * 32 + 5)
    assert report.passes()["decode_requests"].max() == 28
    assert report.preemptions == 0
    assert report.binding == "kv"


@pytest.mark.parametrize(("blocks", "firsts"), [(10, [10, 10]), (9, [10, 50])])
def test_t1_the_last_output_counts(blocks: int, firsts: list[float]):
    """13 + 4 tokens reserve five blocks of four each, though only sixteen are ever stored; what is free exactly is enough."""
    report = run([(0, 13, 4)] * 2, tokens_per_block=4, max_tokens_in_kv=4 * blocks, chunk_unit=4)
    assert column(report, "first_ms") == firsts


def test_t1_the_first_misfit_ends_the_scan():
    """The small one behind would fit, but nobody is reordered."""
    report = run([(0, 32, 32), (0, 96, 33), (0, 10, 1)], max_tokens_in_kv=5 * 32)
    assert column(report, "first_ms") == [10, 330, 660]


@pytest.mark.parametrize("overlap", [False, True])
def test_t2_the_last_started_is_paused(overlap: bool):
    """Both have eight tokens in four blocks: the older one takes the younger one's blocks, which starts over, keeping its five outputs (T12)."""
    report = run([(0, 4, 8)] * 2, overlap=overlap, **TIGHT)
    assert column(report, "preemptions") == [0, 1]
    assert loads(report) == [(8, 0), *[(0, 2)] * 4, *[(0, 1)] * 3, (9, 0), (0, 1), (0, 1)]
    assert report.token_ms(1) == [10, 20, 30, 40, 50, 90, 100, 110]


def test_t2_a_fresh_prompt_pauses_nobody_before_it():
    report = run([(0, 4, 5), (0, 9, 1)], **TIGHT)
    assert column(report, "first_ms") == [10, 10]
    report = run([(0, 8, 5), (0, 9, 1)], **TIGHT)
    assert column(report, "preemptions") == [0, 0]
    assert column(report, "first_ms") == [10, 60]


def test_t3_prompts_wait_until_no_row_is_left():
    report = run([(0, 10, 3), (0, 10, 2), (5, 10, 1)], capacity_policy="STATIC_BATCH")
    assert column(report, "first_ms") == [10, 10, 40]


def test_t3_what_a_batch_only_began_waits_too():
    """The second prompt's first chunk is in the batch, its rest behind the first one's output."""
    report = run([(0, 64, 3), (0, 64, 1)], max_num_tokens=96, capacity_policy="STATIC_BATCH")
    assert loads(report) == [(96, 0), (0, 1), (0, 1), (32, 0)]


@pytest.mark.parametrize(
    ("options", "arrival", "first"),
    [
        ({"overlap": False}, 5, 20),
        ({"overlap": True}, 5, 30),
        ({"overlap": True}, 10, 30),
        ({"overlap": True}, 10.5, 40),
        ({"overlap": True, "admission_lookahead": False}, 5, 20),
    ],
)
def test_t5_an_arrival_waits_for_the_plan_at_hand(options: dict[str, Any], arrival: float, first: float):
    report = run([(0, 10, 10), (arrival, 10, 1)], **options)
    assert column(report, "first_ms") == [10, first]


@pytest.mark.parametrize("overlap", [False, True])
def test_t5_length_ends_are_foreseen(overlap: bool):
    """No row is wasted, an arrival at a sleeping engine runs at once, and an output of one token needs no row at all."""
    report = run([(0, 10, 3), (100, 10, 1)], overlap=overlap)
    assert loads(report) == [(10, 0), (0, 1), (0, 1), (10, 0)]
    assert column(report, "done_ms") == [30, 110]


@pytest.mark.parametrize(("ratio", "first"), [(0.5, 40), (0.21, 20)])
def test_t6_prompts_wait_for_each_other(ratio: float, first: float):
    """20 prompt tokens and a row are below half of the budget, so two passes go without them; at 21 tokens exactly they go."""
    report = run(
        [(0, 10, 10), (5, 20, 1)],
        max_num_tokens=100,
        batch_wait_timeout_iters=2,
        batch_wait_max_tokens_ratio=ratio,
    )
    assert column(report, "first_ms") == [10, first]


@pytest.mark.parametrize(("overlap", "first"), [(False, 30), (True, 40)])
def test_t8_when_a_seat_is_free_again(overlap: bool, first: float):
    """The first one ends at 20 ms: its seat is usable in the next pass, or in the one after it."""
    report = run([(0, 10, 2), (0, 10, 9), (0, 10, 1)], overlap=overlap, max_batch_size=2)
    assert column(report, "first_ms") == [10, 10, first]
    assert column(report, "admitted_ms")[2] == first - 10


def test_t8_after_an_empty_turn_too():
    report = run([(0, 10, 3), (0, 10, 1)], overlap=True, max_batch_size=1)
    assert column(report, "first_ms") == [10, 40]


def test_t9_in_order_whole_units_or_the_rest():
    """Of 100: 90 fit, ten are no unit for the next, the third overtakes. Of 100 again: 70 fit, then one unit of 16 out of 30."""
    report = run([(0, 90, 1), (0, 30, 1), (0, 10, 1)], max_num_tokens=100)
    assert loads(report) == [(100, 0), (30, 0)]
    assert column(report, "first_ms") == [10, 20, 10]
    assert loads(run([(0, 70, 1), (0, 50, 1)], max_num_tokens=100, chunk_unit=16)) == [(86, 0), (34, 0)]


def test_t9_equal_progress():
    """Of 64 in units of 16: 32, 16, 16; then the rests of 8 and 8, and three units."""
    report = run([(0, 40, 1), (0, 24, 1), (0, 100, 1)], max_num_tokens=64, chunk_unit=16, chunk_policy="EQUAL_PROGRESS")
    assert loads(report) == [(64, 0), (64, 0), (36, 0)]
    assert column(report, "first_ms") == [20, 20, 30]


def test_t10_whole_prompts_only():
    report = run([(0, 60, 1), (0, 50, 1), (0, 30, 1)], max_num_tokens=100, enable_chunked_prefill=False)
    assert loads(report) == [(60, 0), (80, 0)]
    assert loads(run([(0, 60, 1), (0, 40, 1)], max_num_tokens=100, enable_chunked_prefill=False)) == [(100, 0)]


@pytest.mark.parametrize(
    ("options", "isl", "osl", "word"),
    [
        ({"max_tokens_in_kv": 127}, 64, 33, "max_tokens_in_kv=127"),
        ({"max_tokens_in_kv": 127, "capacity_policy": "MAX_UTILIZATION"}, 64, 34, "max_tokens_in_kv=127"),
        ({"max_num_tokens": 100, "enable_chunked_prefill": False}, 101, 1, "isl=101"),
        (
            {
                "max_num_tokens": 100,
                "enable_chunked_prefill": False,
                "capacity_policy": "MAX_UTILIZATION",
                "max_tokens_in_kv": 4096,
            },
            90,
            12,
            "isl . osl - 1=101",
        ),
        ({"max_seq_len": 90}, 90, 1, "max_seq_len=90"),
        ({"max_num_tokens": 31}, 10, 1, "max_num_tokens=31"),
        ({"chunk_unit": 16, "enable_chunked_prefill": False}, 10, 1, "chunk_unit=16"),
        ({"max_tokens_in_kv": 31}, 10, 1, "max_tokens_in_kv=31"),
        ({"overlap": False, "admission_lookahead": True}, 10, 1, "admission_lookahead=True"),
        ({"attention_dp_balance": True}, 10, 1, "attention_dp_balance"),
        ({"attention_dp": 2, "batch_wait_timeout_iters": 3}, 10, 1, "batch_wait_timeout_iters=3"),
        ({"speculation": 3}, 10, 1, "speculation=3"),
        ({"max_num_seqs": 3}, 10, 1, "max_num_seqs"),
    ],
)
def test_what_can_never_run_is_refused(options: dict[str, Any], isl: int, osl: int, word: str):
    """Value, rule and remedy, in one line (T1, T9, T10, T14)."""
    with pytest.raises((pc.SpecError, pc.Unsupported), match=word) as refusal:
        run([(0, isl, osl)], **options)
    assert len(str(refusal.value)) < 200


def test_the_largest_that_can_run_does():
    run([(0, 64, 32)], max_tokens_in_kv=127)
    run([(0, 64, 33)], max_tokens_in_kv=127, capacity_policy="MAX_UTILIZATION")


def test_a_cached_prefix_is_refused():
    with pytest.raises(pc.Unsupported, match="prefix=5"):
        pc.evaluate(pc.Workload.closed_loop(10, 2, 1, prefix=5, requests=3), pc.Trtllm(), TEN_MS)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[tuple[int, int]], int, dict[str, Any]]:
    """Shapes, clients and options under which they can all run, often short of blocks."""
    rows = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=6))
    longest, size = max(isl + osl for isl, osl in rows), draw(st.sampled_from([1, 4, 32]))
    options: dict[str, Any] = {
        "max_batch_size": draw(st.sampled_from([64, 5, 1])),
        "max_num_tokens": draw(st.integers(longest, 700)),
        "tokens_per_block": size,
        "overlap_scheduler": draw(st.booleans()),
        "capacity_policy": draw(st.sampled_from(["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"])),
        "max_tokens_in_kv": (-(-longest // size) + draw(st.integers(0, 12))) * size,
        "batch_wait_timeout_iters": draw(st.sampled_from([0, 0, 3])),
        "batch_wait_max_tokens_ratio": draw(st.sampled_from([0.1, 1.0])),
    }
    if draw(st.booleans()):
        options |= {"max_num_tokens": draw(st.integers(32, 300)), "chunk_unit": draw(st.sampled_from([None, 1, 32]))}
        options["chunk_policy"] = draw(st.sampled_from(["FCFS", "EQUAL_PROGRESS"]))
    else:
        options["enable_chunked_prefill"] = False
    return rows, draw(st.integers(1, 12)), options


@settings(deadline=None, max_examples=150)
@given(worlds())
def test_nothing_is_lost(world: Any):
    """Every token is emitted once, the budget holds, prompt tokens are computed once and once more a pause, and all blocks come back."""
    rows, clients, options = world
    workload = pc.Workload.closed_loop(shapes=rows, concurrency=clients, requests=30)
    report = pc.evaluate(workload, pc.Trtllm(**options), CLOCK)
    requests, passes = report.requests(), report.passes()
    assert (passes["prefill_tokens"] + passes["decode_requests"]).max() <= options["max_num_tokens"]
    assert (passes["start_ms"].to_numpy()[1:] >= passes["end_ms"].to_numpy()[:-1] - 1e-9).all()
    times = [report.token_ms(i) for i in range(30)]
    assert [len(t) for t in times] == requests["osl"].tolist()
    assert all(np.all(np.diff(t) > 0) for t in times)
    last_chunks = requests["osl"].sum() - passes["decode_requests"].sum()
    assert 30 <= last_chunks <= 30 + report.preemptions
    if report.preemptions == 0:
        assert passes["prefill_tokens"].sum() == requests["isl"].sum()
    else:
        assert options["capacity_policy"] == "MAX_UTILIZATION"
    machine = assemble(workload, pc.Aggregated(pc.Trtllm(**options)), CLOCK)
    assert machine.advance(1_000_000) == DONE
    assert machine.rank["free"] == machine.rank["usable"]
    assert machine.rank["running"] == machine.rank["waiting"] == 0


@settings(deadline=None, max_examples=60)
@given(worlds())
def test_a_cycle_is_what_a_long_run_repeats(world: Any):
    """The cycle's requests, one after the other, are found far out in a run of a fixed number of requests."""
    rows, clients, options = world
    engine = pc.Trtllm(**options)
    report = pc.evaluate(pc.Workload.closed_loop(shapes=rows, concurrency=clients), engine, CLOCK)
    if report.window.kind != "cycle" or report.window.requests > 400:
        return
    count = report.window.requests
    long = pc.Workload.closed_loop(shapes=rows, concurrency=clients, requests=4 * count + 2500)
    table = pc.evaluate(long, engine, CLOCK).requests()
    ttft = (table["first_ms"] - table["dispatch_ms"]).to_numpy()[2000 : 2000 + count]
    assert np.sort(ttft) == pytest.approx(np.sort(report.requests().eval("first_ms - dispatch_ms")), abs=1e-6)


class Asked:
    """The same clock as a Python model, so that the kernel stops at every plan."""

    def pass_ms(self, shape: pc.PassShape) -> float:
        """Milliseconds, from the linear clock."""
        assert sum(new for new, _ in shape.chunks) == shape.prefill_tokens
        return CLOCK.pass_ms(shape)


@settings(deadline=None, max_examples=25)
@given(worlds())
def test_a_python_model_prices_the_same_plans(world: Any):
    rows, clients, options = world
    workload, engine = pc.Workload.closed_loop(shapes=rows, concurrency=clients, requests=20), pc.Trtllm(**options)
    one, other = (pc.evaluate(workload, engine, timing).requests() for timing in (CLOCK, Asked()))
    assert one.to_numpy() == pytest.approx(other.to_numpy())


def test_a_resumed_row_that_emits_in_a_pass_of_chunks_alone_keeps_its_token_times():
    """Its token follows the one before by a pass, but all other rows pause in that pass."""
    engine = pc.Trtllm(capacity_policy="MAX_UTILIZATION", max_num_tokens=128, max_tokens_in_kv=98, tokens_per_block=1)
    workload = pc.Workload.closed_loop(isl=1, osl=33, concurrency=4, requests=8)
    report = pc.evaluate(workload, engine, pc.LinearTiming())
    done = report.requests()["done_ms"]
    assert report.preemptions > 0
    assert [report.token_ms(i)[-1] for i in range(8)] == done.tolist()
