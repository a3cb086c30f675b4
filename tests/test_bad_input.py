"""Every wrong input is one line: the value, the rule, the remedy; of the class that names the remedy."""

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from tests.worlds import CLOCK

NAN, INF = math.nan, math.inf
CLOSED, REPLAY, SESSIONS = pc.Workload.closed_loop, pc.Workload.replay, pc.Workload.sessions


def refused(ask: Callable[[], Any], *said: str, by: type[Exception] = pc.SpecError) -> str:
    """The message of the refusal: of this class exactly, one short line, with these words."""
    with pytest.raises(by) as caught:
        ask()
    message = str(caught.value)
    assert type(caught.value) is by
    assert len(message) < 200
    assert "\n" not in message
    assert all(words in message for words in said), message
    return message


@pytest.mark.parametrize("field", ["isl", "osl", "concurrency", "requests"])
@pytest.mark.parametrize("value", [0, -1, 1.5, NAN, INF, -INF, "8", True, 2**40, None])
def test_counts(field: str, value: Any):
    if field == "requests" and value is None:
        return
    refused(lambda: CLOSED(**{"isl": 8, "osl": 2, "concurrency": 1} | {field: value}), field)


@pytest.mark.parametrize("field", ["turnaround_ms", "ingest_us_per_token", "stagger_ms"])
@pytest.mark.parametrize("value", [-1, NAN, INF, "1", None, True])
def test_durations(field: str, value: Any):
    refused(lambda: CLOSED(8, 2, 1, **{field: value}), field)


@pytest.mark.parametrize(("isl", "prefix"), [(8, 8), (8, 9), (8, -1), (1, 1)])
def test_a_prefix_leaves_a_token_to_compute(isl: int, prefix: int):
    refused(lambda: CLOSED(isl, 2, 1, prefix=prefix), f"prefix={prefix}")
    refused(lambda: REPLAY([(0.0, 9, 0, 1), (1.0, isl, prefix, 2)]), "row 1", f"prefix={prefix}")
    refused(lambda: CLOSED(shapes=[(9, 1), (isl, prefix, 2)], concurrency=1), "row 1", f"prefix={prefix}")


@pytest.mark.parametrize(
    "shapes",
    [
        [],
        [()],
        [(1,)],
        [(1, 2, 3, 4)],
        [(8, NAN)],
        [(8, "2")],
        [(0, 2)],
        [(8, 0)],
        5,
        "ab",
        [8, 2],
    ],
)
def test_shapes(shapes: Any):
    refused(lambda: CLOSED(shapes=shapes, concurrency=1), "shapes")


def test_lengths_are_given_once():
    refused(lambda: CLOSED(concurrency=2), "isl and osl are missing")
    refused(lambda: CLOSED(8, 2, 2, shapes=[(8, 2)]), "shapes", "both given")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "at least one row"),
        ({}, "missing"),
        ({"dispatch_ms": [], "isl": [], "osl": []}, "at least one row"),
        (pd.DataFrame({"dispatch_ms": [0.0], "isl": [8]}), "'osl' is missing"),
        (pd.DataFrame({"dispatch_ms": [0.0], "isl": [8], "osl": [2], "color": [1]}), "'color'"),
        ([(NAN, 8, 2)], "dispatch_ms=nan"),
        ([(INF, 8, 2)], "dispatch_ms=inf"),
        ([(-1.0, 8, 2)], "dispatch_ms=-1"),
        ([("soon", 8, 2)], "dispatch_ms"),
        ([(0.0, 8.5, 2)], "isl=8.5"),
        ([(0.0, NAN, 2)], "isl=nan"),
        ([(0.0, 0, 2)], "isl=0"),
        ([(0.0, 8, 0)], "osl=0"),
        ([(0.0, 8, -3)], "osl=-3"),
        ([(0.0, 8, 2), (1.0, 8)], "rows must all be"),
        ([(0.0, 8)], "rows must all be"),
        ({"dispatch_ms": [0.0, 1.0], "isl": [8], "osl": [2, 2]}, "differ in length"),
        ([(0.0, 2**31 - 1, 5)], "2^31"),
        (7, "replay"),
    ],
)
def test_replays(rows: Any, said: str):
    refused(lambda: REPLAY(rows), said)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        *(({"max_concurrency": value}, "max_concurrency") for value in (0, -1, 1.5, NAN, "2", True)),
        *(({"time_scale": value}, "time_scale") for value in (0, -1, NAN, INF, "2", True, 1e308)),
        *(({"start_ms": value}, "start_ms") for value in (NAN, "2", 6.0)),
        *(({"end_ms": value}, "end_ms") for value in (NAN, -1.0, 0.0, "2")),
        ({"start_ms": 1.0, "end_ms": 1.0}, "start_ms=1.0"),
    ],
)
def test_stretches_of_a_replay(options: dict[str, Any], said: str):
    refused(lambda: REPLAY([(0.0, 8, 2), (5.0, 9, 2)], **options), said)


TURN = {"isl": 8, "osl": 2}


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        *(({"isl": value}, "isl") for value in (0, -1, 1.5, NAN, "8", True, 2**31)),
        *(({"osl": value}, "osl") for value in (0, -1, 1.5, NAN, "8", True)),
        *(({"prefix": value}, "prefix") for value in (8, 9, -1, 0.5, NAN)),
        *(({"think_ms": value}, "think_ms") for value in (-1, NAN, INF, "1", None)),
        *(({"calls": value}, "calls") for value in (5, "ab", [5], [(8,)], {"isl": 8})),
        ({"calls": [(8, 0, 0)]}, "request 1: osl=0"),
        ({"calls": [(8, 1.5)]}, "request 1: osl=1.5"),
        ({"calls": [(9, 1, 2), (8, 8, 2)]}, "request 2: prefix=8"),
        *(({"max_tokens": value}, "max_tokens") for value in (1, 0, 2.5, NAN, "9", True)),
        ({"calls": [{"isl": 8, "osl": 2, "color": 1}]}, "color"),
        ({"calls": [{"isl": 8, "osl": 2, "prefix_len": 4}]}, "request 1: prefix_len=4"),
        *(({"data_parallel_rank": value}, "data_parallel_rank") for value in (-1, 0.5, NAN, "0", True)),
        ({"isl": 2**31 - 1, "osl": 5}, "2^31"),
        ({"prefix_len": 4}, "prefix_group"),
        ({"prefix_len": -1, "prefix_group": 0}, "prefix_len"),
        ({"prefix_group": [1]}, "prefix_group"),
        ({"color": 1}, "color"),
    ],
)
def test_turns(turn: dict[str, Any], said: str):
    """Also where it stands in its lane."""
    refused(lambda: pc.Turn(**TURN | turn), said)
    refused(lambda: SESSIONS([[TURN, TURN | turn]]), said, "lane 0, turn 1")


@pytest.mark.parametrize("name", ["isl", "osl"])
def test_a_turn_has_lengths(name: str):
    refused(lambda: pc.Turn(**{k: v for k, v in TURN.items() if k != name}), name, "missing")


@pytest.mark.parametrize(
    ("lanes", "said"),
    [
        ([], "at least one session"),
        ([[TURN], []], "lane 1: there must be at least one turn"),
        (7, "lanes=7"),
        ("ab", "lanes='ab'"),
        ([TURN], "lane 0"),
        ([pc.Turn(8, 2)], "lane 0"),
        ([[(8, 2)]], "lane 0, turn 0"),
        ([["ab"]], "lane 0, turn 0"),
        ({}, "'session' is missing"),
        ({"session": [], "isl": [], "osl": []}, "at least one row"),
        ({"session": [0], "isl": [8]}, "'osl' is missing"),
        ({"session": [0], "isl": [8], "osl": [2], "color": [1]}, "'color'"),
        ({"session": [0], "isl": [8], "osl": [2], "call": [0]}, "without 'turn'"),
        ({"session": [0, NAN], "isl": [8, 8], "osl": [2, 2]}, "row 1: session=nan"),
        ({"session": ["a", None], "isl": [8, 8], "osl": [2, 2]}, "row 1: session=None"),
        ({"session": [0, 0], "isl": [8], "osl": [2, 2]}, "differ in length"),
        ({"session": [0, 0], "isl": [8, 0], "osl": [2, 2]}, "row 1: isl=0"),
        ({"session": [0, 0], "isl": [8, 8], "osl": [2, 2], "turn": [0.5, 1]}, "row 0: turn=0.5"),
        ({"session": [0, 0], "isl": [8, 8], "osl": [2, 2], "think_ms": [0, -1]}, "row 1: think_ms=-1"),
        ({"session": [0, 0], "isl": [8, 8], "osl": [2, 2], "think_ms": ["a", 1]}, "think_ms must be numbers"),
        ({"session": [0, 1, 0], "isl": [8] * 3, "osl": [2] * 3, "turn": [0, 0, 0]}, "row 2: the same session, turn"),
        ({"session": [0, 0], "isl": [8] * 2, "osl": [2] * 2, "turn": [0, 1], "call": [0, 1]}, "row 1: its turn has no"),
        (
            {"session": [0, 0], "isl": [8] * 2, "osl": [2] * 2, "turn": [0, 0], "call": [1, 0], "think_ms": [9, 0]},
            "row 0: calls go out",
        ),
        ({"session": [0], "isl": [8], "osl": [2], "prefix_len": [4]}, "must come together"),
    ],
)
def test_sessions(lanes: Any, said: str):
    refused(lambda: SESSIONS(lanes), said)


@pytest.mark.parametrize("value", [-1, NAN, INF, "1", None, True])
@pytest.mark.parametrize("field", ["turnaround_ms", "ingest_us_per_token", "stagger_ms"])
def test_durations_of_sessions(field: str, value: Any):
    refused(lambda: SESSIONS([[TURN]], **{field: value}), field)


def test_what_sessions_do_not_use_is_refused():
    """Clients that go on for ever are of a closed loop, and so is how they start."""
    sessions = SESSIONS([[TURN]])
    for stop in (pc.LimitCycle(), pc.Window()):
        refused(lambda stop=stop: pc.evaluate_sessions(sessions, pc.Vllm(), CLOCK, stop=stop), "closed loop")
    refused(lambda: pc.evaluate(sessions, pc.Vllm(), CLOCK, start="spread"), "start='spread'")
    refused(lambda: pc.evaluate(sessions, pc.Vllm(), CLOCK, phases=2), "phases=2")
    refused(lambda: pc.evaluate_sessions(CLOSED(8, 2, 1), pc.Vllm(), CLOCK), "must be sessions")
    refused(lambda: pc.evaluate_replay(REPLAY([(0.0, 8, 2)]), pc.Vllm(), CLOCK).turns(), "only sessions have turns")
    refused(lambda: pc.evaluate(sessions, pc.Vllm(max_model_len=8), CLOCK), "max_model_len=8")


def test_an_unsorted_trace_is_sorted_with_a_note():
    report = pc.evaluate_replay(REPLAY([(5.0, 9, 2), (0.0, 8, 2), (7.0, 10, 2)]), pc.Vllm(), CLOCK)
    assert report.requests()["isl"].tolist() == [8, 9, 10]
    assert report.notes == ("2 rows were out of order and have been sorted by dispatch_ms",)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_num_seqs": 300, "max_num_batched_tokens": 299}, "max_num_batched_tokens=299"),
        ({"max_num_seqs": 0}, "max_num_seqs=0"),
        ({"max_num_seqs": 2.5}, "max_num_seqs=2.5"),
        ({"max_num_seqs": True}, "max_num_seqs=True"),
        ({"max_num_batched_tokens": NAN}, "max_num_batched_tokens=nan"),
        ({"max_num_batched_tokens": -5}, "max_num_batched_tokens=-5"),
        ({"block_size": 0}, "block_size=0"),
        ({"num_gpu_blocks": 1}, "num_gpu_blocks=1"),
        ({"num_gpu_blocks": 0}, "num_gpu_blocks=0"),
        ({"watermark": 1.0}, "watermark=1.0"),
        ({"watermark": -0.1}, "watermark=-0.1"),
        ({"watermark": NAN}, "watermark=nan"),
        ({"enable_chunked_prefill": "yes"}, "enable_chunked_prefill='yes'"),
        ({"async_scheduling": 1}, "async_scheduling=1"),
        ({"long_prefill_token_threshold": -1}, "long_prefill_token_threshold=-1"),
        ({"max_num_batched_token": 5}, "'max_num_batched_token'"),
        ({"chunked_prefill_size": 5}, "'chunked_prefill_size'"),
        ({"max_num_tokens": 5}, "'max_num_tokens'"),
    ],
)
def test_engines(options: dict[str, Any], said: str):
    refused(lambda: pc.Vllm(**options), said)
    refused(lambda: pc.engine("vllm", **options), said)


def test_an_unknown_backend_is_named():
    refused(lambda: pc.engine("triton"), "triton", "vllm")


def test_specs_do_not_change():
    engine = pc.Vllm()
    with pytest.raises(ValueError, match="frozen"):
        engine.max_num_seqs = 5  # type: ignore[misc]
    assert not pc.Workload.replay([(0.0, 8, 2)]).rows.flags.writeable


@pytest.mark.parametrize(
    ("engine", "rows", "said"),
    [
        ({"enable_chunked_prefill": False, "max_num_batched_tokens": 256}, [(0.0, 257, 2)], "isl=257"),
        ({"num_gpu_blocks": 4}, [(0.0, 40, 10)], "num_gpu_blocks=4"),
        ({"max_model_len": 40}, [(0.0, 40, 10)], "isl=40"),
    ],
)
def test_requests_that_can_never_run(engine: dict[str, Any], rows: Any, said: str):
    refused(lambda: pc.evaluate(REPLAY(rows), pc.Vllm(**engine), CLOCK), said)


def test_a_resumed_prompt_over_the_budget_is_explained():
    """After a preemption 33 tokens stand before a budget of 32 that may not cut them."""
    engine = {"enable_chunked_prefill": False, "max_num_batched_tokens": 32, "max_num_seqs": 8, "num_gpu_blocks": 5}
    rows = [(0.0, 16, 30), (0.0, 16, 30)]
    with pytest.raises(pc.Stalled, match="max_num_batched_tokens"):
        pc.evaluate(REPLAY(rows), pc.Vllm(enable_prefix_caching=False, **engine), CLOCK)


def test_the_wrong_kind_of_argument():
    loop, engine = CLOSED(8, 2, 1), pc.Vllm()
    refused(lambda: pc.evaluate("loop", engine, CLOCK), "workload=str")  # type: ignore[arg-type]
    refused(lambda: pc.evaluate(loop, "vllm", CLOCK), "deployment=str")  # type: ignore[arg-type]
    refused(lambda: pc.evaluate(loop, engine, 5.0), "timing=float")  # type: ignore[arg-type]
    refused(lambda: pc.evaluate_replay(loop, engine, CLOCK), "must be a replay")  # type: ignore[arg-type]
    refused(lambda: pc.evaluate_closed_loop(REPLAY([(0.0, 8, 2)]), engine, CLOCK), "must be a closed loop")  # type: ignore[arg-type]
    refused(lambda: pc.Aggregated(), "engine")
    refused(lambda: pc.Aggregated("vllm"), "engine")
    refused(lambda: pc.evaluate(loop, engine, CLOCK, start="late"), "start='late'")  # type: ignore[arg-type]
    refused(lambda: pc.evaluate(loop, engine, CLOCK, phases=0), "phases=0")
    refused(lambda: pc.evaluate(loop, engine, CLOCK, phases=True), "phases=True")
    refused(lambda: pc.evaluate(loop, engine, CLOCK).benchmark(0), "requests=0")
    refused(lambda: pc.evaluate(REPLAY([(0.0, 8, 2)]), engine, CLOCK).benchmark(5), "replay")
    refused(lambda: pc.evaluate(REPLAY([(0.0, 8, 2)]), engine, CLOCK).token_ms(1), "request=1")


@pytest.mark.parametrize("part", ["prefill", "decode"])
@pytest.mark.parametrize("value", [NAN, INF, -1.0, "1", None, True])
def test_coefficients(part: str, value: Any):
    refused(lambda: pc.LinearTiming(**{part: (1.0, value)}), part)


@pytest.mark.parametrize(
    "options",
    [
        {"prefill": ()},
        {"decode": ()},
        {"prefill": (1.0,) * 5},
        {"decode": (1.0,) * 4},
        {"prefill": 5.0},
    ],
)
def test_numbers_of_coefficients(options: dict[str, Any]):
    refused(lambda: pc.LinearTiming(**options), *options)


@pytest.mark.parametrize(
    "options",
    [
        {"combine": "mean"},
        {"combine": None},
        {"capture_sizes": (4, 2)},
        {"capture_sizes": (0, 2)},
        {"capture_sizes": (2, 2)},
    ],
)
def test_other_parts_of_linear_timing(options: dict[str, Any]):
    refused(lambda: pc.LinearTiming(**options), *options)


@pytest.mark.parametrize("answer", [NAN, INF, -INF, -1e-9, "5", None, True, [1.0], 1j, np.array([1.0, 2.0])])
@pytest.mark.parametrize("through", ["model", "callback"])
def test_answers_that_are_no_durations(answer: Any, through: str):
    class Model:
        def pass_ms(self, shape: pc.PassShape) -> Any:
            return answer

    if answer is True and through == "callback":
        return  # it has become a number in the sum
    timing: Any = Model() if through == "model" else pc.PhaseTiming(lambda *_: answer, lambda *_: 1.0)
    refused(lambda: pc.evaluate(REPLAY([(0.0, 8, 2)]), pc.Vllm(), timing), "1 chunks of 8 tokens", by=pc.TimingError)


def test_models_that_raise():
    def broken(*_: Any) -> float:
        raise KeyError("no such row in the table of measurements, " * 20)

    timing = pc.PhaseTiming(lambda *_: 1.0, broken)
    message = refused(lambda: pc.evaluate(REPLAY([(0.0, 8, 2)]), pc.Vllm(), timing), "KeyError", by=pc.TimingError)
    assert "1 rows of 9" in message


FREE = pc.LinearTiming((0.0,), (0.0,))


def test_passes_may_cost_nothing():
    assert pc.evaluate(REPLAY([(3.0, 8, 2)]), pc.Vllm(), FREE).requests()["done_ms"].tolist() == [3.0]


@pytest.mark.parametrize("workload", [REPLAY([(3.0, 8, 2)]), CLOSED(8, 2, 3)])
def test_rates_of_a_run_without_time(workload: Any):
    """Either they are refused, or every column is there."""
    with suppress(pc.SpecError):
        pc.evaluate(workload, pc.Vllm(), FREE).to_columns()


@pytest.mark.parametrize("size", [0, -1, 1.5, "9", NAN])
@pytest.mark.parametrize(
    ("stop", "field"),
    [
        (pc.LimitCycle, "max_passes"),
        (pc.Window, "requests"),
        (pc.Window, "max_requests"),
    ],
)
def test_stops(stop: Any, field: str, size: Any):
    refused(lambda: pc.evaluate(CLOSED(8, 2, 1), pc.Vllm(), CLOCK, stop=stop(**{field: size})), field)


ERRORS = {
    pc.SpecError: ValueError,
    pc.Unsupported: ValueError,
    pc.TraceError: ValueError,
    pc.TimingError: ValueError,
    pc.Diverged: RuntimeError,
    pc.Stalled: RuntimeError,
    pc.NotConverged: RuntimeError,
}


@pytest.mark.parametrize("error", ERRORS)
def test_errors_are_builtins_too(error: type[Exception]):
    assert issubclass(error, ERRORS[error])
