"""Laws of prefill and decode apart, whatever the engines, the link and the traffic (D1-D10)."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import passcal as pc
from passcal.scenario import answer, read_scenario
from tests.agreement.drawn import Json, asked_in
from tests.agreement.drawn_apart import MEMORY, apart
from tests.worlds import CLOCK

pytestmark = pytest.mark.slow

HUGE = {"vllm": 20_000, "sglang": 10**7, "trtllm": 10**7}
drawn = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


def told(asked: Json) -> Json:
    """The answer; a question that is refused, or that can never end, says nothing."""
    try:
        return answer(asked)
    except (pc.SpecError, pc.Stalled):
        assume(False)
        raise


def but(asked: Json, change: Callable[[Json], None]) -> Json:
    """The same scenario, changed."""
    other = copy.deepcopy(asked)
    change(other)
    return other


def behind(asked: Json) -> Json:
    """The decode pool."""
    return asked["deployment"]["decode"]


def plain(asked: Json) -> bool:
    """Whether every request makes its outputs one by one, and ends by length."""
    engines = asked["engine"], behind(asked)["engine"]
    return not any("speculation" in engine for engine in engines) and not any(
        "max_tokens" in row for row in asked_in(asked["workload"])
    )


def gone(answers: Json) -> list[Json]:
    """The requests that went over."""
    return [one for one in answers["requests"] if "decode_engine" in one]


def prefill_ranks(asked: Json) -> int:
    """Schedulers of the prefill pool; those behind it are numbered on."""
    names = ("data_parallel_size", "dp_size", "attention_dp")
    return asked["deployment"]["prefill_workers"] * next(asked["engine"][n] for n in names if n in asked["engine"])


@drawn
@given(apart())
def test_causes_come_first(asked: Json):
    deployment = asked["deployment"]
    first, by_chunk = deployment["first_token"], deployment["link"]["transfer_start"] == "each_chunk"
    for one in told(asked)["requests"]:
        done, times = one["prefill_done_ms"], one["token_ms"]
        assert one["dispatch_ms"] <= one["visible_ms"] <= one["admitted_ms"] < done
        assert times == sorted(times)
        if "decode_engine" not in one:
            assert times == [done] and first == "prefill"
            continue
        assert one["attach_ms"] >= one["transfer_done_ms"] >= max(one["transfer_start_ms"], done)
        assert by_chunk or one["transfer_start_ms"] >= done
        shown = {"prefill": done, "decode": one["attach_ms"], "decode_pass": None}[first]
        assert times[0] == shown if shown is not None else times[0] > one["attach_ms"]
        assert all(at > one["attach_ms"] for at in times[1:])


@drawn
@given(apart())
def test_tokens_are_conserved(asked: Json):
    """Each pool does its share of the work, and no more than what preemptions make it do twice."""
    assume(plain(asked))
    answers, first = told(asked), prefill_ranks(asked)
    requests, over = answers["requests"], gone(answers)
    assert all(len(one["token_ms"]) == one["osl"] for one in requests)
    here = [one for one in answers["passes"] if one["engine"] < first]
    there = [one for one in answers["passes"] if one["engine"] >= first]
    assert not any(one["decode_requests"] for one in here)
    if any(one["preemptions"] for one in requests):
        return
    assert sum(one["prefill_tokens"] for one in here) == sum(one["isl"] - one["cached"] for one in requests)
    again = asked["deployment"]["first_token"] == "decode_pass"
    assert sum(one["prefill_tokens"] for one in there) == again * len(over)
    assert sum(one["decode_requests"] for one in there) == sum(one["osl"] - 1 for one in over)


@drawn
@given(apart())
def test_little(asked: Json):
    """Rows of vLLM's decode passes times how long they take are the requests' stays, where nobody is put back."""
    assume(plain(asked) and behind(asked)["backend"] == "vllm" and behind(asked)["engine"]["data_parallel_size"] == 1)
    answers = told(asked)
    over, first = gone(answers), prefill_ranks(asked)
    assume(over and not any(one["preemptions"] for one in answers["requests"]))
    there = [one for one in answers["passes"] if one["engine"] >= first]
    rows = sum((p["end_ms"] - p["start_ms"]) * (p["decode_requests"] + p["prefill_requests"]) for p in there)
    assert rows == pytest.approx(sum(one["token_ms"][-1] - one["attach_ms"] for one in over), rel=1e-9)


@drawn
@given(apart())
def test_time_has_no_scale(asked: Json):
    """All durations times 2, and half the bandwidth, give all times by 2."""

    def slower(other: Json) -> None:
        for timing in (other["timing"], behind(other)["timing"]):
            for name in ("prefill", "decode"):
                timing[name] = [2 * value for value in timing[name]]
            if "floor" in timing:
                timing["floor"] *= 2
        link, workload = other["deployment"]["link"], other["workload"]
        link["latency_ms"], link["gb_per_s"] = 2 * link["latency_ms"], link["gb_per_s"] / 2
        for name in ("turnaround_ms", "ingest_us_per_token", "stagger_ms"):
            workload[name] = 2 * workload.get(name, 0.0) if name in workload else 0.0
        if workload["mode"] == "replay":
            del workload["stagger_ms"]
        for row in workload.get("requests", []) if workload["mode"] == "replay" else []:
            row["dispatch_ms"] *= 2
        for lane in workload.get("lanes", []):
            for turn in lane:
                turn["think_ms"] *= 2

    once, twice = told(asked), told(but(asked, slower))
    for one, other in zip(once["requests"], twice["requests"], strict=True):
        np.testing.assert_allclose(other["token_ms"], 2 * np.array(one["token_ms"]), rtol=1e-9)
        assert {**one, "preemptions": other["preemptions"]} == one


@drawn
@given(apart())
def test_a_link_that_costs_nothing_is_no_link(asked: Json):
    """Bit for bit: it is there at once."""
    question = read_scenario(asked)
    nothing = pc.Link(gb_per_s=1.0, kv_bytes_per_token=0)
    frames = []
    for link in (nothing, None):
        deployment = question.deployment.model_copy(update={"link": link})
        try:
            report = pc.evaluate(question.workload, deployment, question.timing, stop=pc.Drained())
        except (pc.SpecError, pc.Stalled):
            assume(False)
            raise
        frames.append((report.requests(), report.passes()))
    assert frames[0][0].equals(frames[1][0]) and frames[0][1].equals(frames[1][1])


@drawn
@given(apart())
def test_one_token_from_the_prefill_side_is_an_aggregated_pool(asked: Json):
    """Nobody goes over, so the decode pool, the link and what is held are as good as not there."""

    def alone(other: Json) -> None:
        for row in asked_in(other["workload"]):
            row["osl"] = 1
            row.pop("max_tokens", None)
        other["deployment"] |= {"first_token": "prefill", "prefill_inflight_cap": None}

    one = but(asked, alone)
    workers = {"replicas": one["deployment"]["prefill_workers"], "routing": one["deployment"]["routing"]}
    tandem, pool = told(one), told(one | {"deployment": workers})
    assert tandem["passes"] == pool["passes"]
    for here, there in zip(tandem["requests"], pool["requests"], strict=True):
        assert here.pop("prefill_done_ms") == there["token_ms"][-1]
        assert here == there


@drawn
@given(apart())
def test_memory_that_never_binds_is_no_memory(asked: Json):
    """In the decode pool, bit for bit."""
    backend = behind(asked)["backend"]

    def with_memory(tokens: int | None) -> Callable[[Json], None]:
        return lambda other: behind(other)["engine"].update({MEMORY[backend]: tokens})

    assert told(but(asked, with_memory(None))) == told(but(asked, with_memory(HUGE[backend])))


@drawn
@given(apart())
def test_who_decodes_alone_is_never_late(asked: Json):
    """With a decode worker for each request, all gaps behind the first token there are those of a request that is alone in the world."""
    assume(behind(asked)["backend"] != "sglang" or not behind(asked)["engine"].get("enable_mixed_chunk"))
    rows = asked_in(asked["workload"])

    def roomy(other: Json) -> None:
        other["deployment"] |= {"decode_workers": 40, "routing": "round_robin"}
        behind(other)["engine"][MEMORY[behind(other)["backend"]]] = None
        for name in ("data_parallel_size", "dp_size", "attention_dp", "attention_dp_balance"):
            behind(other)["engine"].pop(name, None)
        if "dp_size" in asked["deployment"]["decode"]["engine"]:
            behind(other)["engine"] |= {"max_running_requests": 8, "chunked_prefill_size": -1}

    crowd = told(but(asked, roomy))
    assume(len(crowd["requests"]) <= 40)
    seen: dict[tuple[int, int], list[float]] = {}
    for one in gone(crowd):
        assert one["attach_ms"] == pytest.approx(one["transfer_done_ms"], rel=1e-12)
        here = np.diff(one["token_ms"][1:])
        shape = one["isl"], one["osl"]
        if shape not in seen:
            row = next(row for row in rows if (row["isl"], row["osl"]) == shape)
            alone = {
                "mode": "replay",
                "requests": [{"dispatch_ms": 0.0, **{k: row[k] for k in ("isl", "prefix", "osl")}}],
            }
            seen[shape] = list(np.diff(told(but(asked, roomy) | {"workload": alone})["requests"][0]["token_ms"][1:]))
        np.testing.assert_allclose(here, seen[shape], rtol=1e-9, atol=1e-9)


@drawn
@given(apart(), st.sampled_from(["blocks", "blocks_and_seat"]))
def test_nobody_waits_for_what_a_lone_request_holds(asked: Json, hold: str):
    """With others a hold may delay or, by another order, hasten: there is no law."""

    def lone(other: Json) -> None:
        row = {k: asked_in(asked["workload"])[0][k] for k in ("isl", "prefix", "osl")}
        other["workload"] = {"mode": "replay", "requests": [{"dispatch_ms": 0.0, **row}]}
        other["deployment"]["hold"] = "none"

    free = but(asked, lone)
    assert told(free) == told(but(free, lambda other: other["deployment"].update(hold=hold)))


@drawn
@given(apart())
def test_chunks_that_are_sent_early_arrive_no_later(asked: Json):
    """Of a lone request whose transfers need not wait for each other; a bound would make them, each with its latency."""

    def sends(start: str) -> Callable[[Json], None]:
        def change(other: Json) -> None:
            row = {k: asked_in(asked["workload"])[0][k] for k in ("isl", "prefix", "osl")}
            other["workload"] = {"mode": "replay", "requests": [{"dispatch_ms": 0.0, **row}]}
            other["deployment"]["link"] |= {"transfer_start": start, "max_transfers_per_worker": None}

        return change

    (early,), (late,) = (told(but(asked, sends(start)))["requests"] for start in ("each_chunk", "last_chunk"))
    assume("decode_engine" in early)
    assert early["transfer_done_ms"] <= late["transfer_done_ms"] + 2e-6
    assert early["transfer_start_ms"] <= late["transfer_start_ms"]
    assert early["prefill_done_ms"] == late["prefill_done_ms"]


LOADS: dict[str, Any] = {
    "closed": pc.Workload.closed_loop(90, 30, 5),
    "closed, so many": pc.Workload.closed_loop(
        shapes=[(90, 30), (200, 12)], concurrency=5, requests=17, stagger_ms=7.0
    ),
    "open": pc.Workload.open_loop(shapes=[(90, 0, 30)], rate_per_s=6.0, horizon_requests=100),
    "open for ever": pc.Workload.open_loop(shapes=[(90, 0, 30)], rate_per_s=6.0),
    "replay": pc.Workload.replay([(0.0, 90, 30), (0.5, 300, 3), (1.0, 30, 40)]),
    "limited": pc.Workload.replay([(0.0, 90, 30), (0.5, 300, 3), (1.0, 30, 40)], max_concurrency=2),
    "sessions": pc.Workload.sessions(
        [[pc.Turn(90, 12), pc.Turn(120, 30, think_ms=3.0, calls=[(30, 0, 5)])], [pc.Turn(90, 1)]]
    ),
}


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize(
    "engines",
    [(pc.Vllm, pc.Vllm), (pc.Sglang, pc.Sglang), (pc.Trtllm, pc.Trtllm), (pc.Vllm, pc.Sglang), (pc.Sglang, pc.Trtllm)],
)
def test_every_kind_of_traffic_runs(load: str, engines: tuple[Any, Any]):
    """On pools of one engine and of two."""
    prefill, decode = (engine() for engine in engines)
    link = pc.Link(gb_per_s=1.0, kv_bytes_per_token=80_000)
    deployment = pc.Disaggregated(prefill=prefill, decode=decode, prefill_workers=2, link=link)
    quick = pc.LinearTiming((3.0,), (5.0,))
    report = pc.evaluate(LOADS[load], deployment, {"prefill": CLOCK, "decode": quick})
    assert report.ttft_ms.mean > CLOCK.prefill[0]
    assert report.itl_ms.quantile(0.0) >= 5.0 - 1e-9
    assert report.itl_ms.quantile(1.0) >= 9.0 + 5.0 - 1e-9  # a hand-off lands in the first gap (D2)
