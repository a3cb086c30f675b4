"""SGLang's rules one by one, on a clock where a prefill pass takes 7 ms and a decode pass 2 ms, and what must hold in any run (S1-S17)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import passcal as pc
from passcal.assemble import assemble
from passcal.kernel import DONE
from passcal.machine import IdentitiesNeeded
from tests.worlds import CLOCK

FLAT = pc.LinearTiming((7.0,), (2.0,))


def run(rows: Any, overlap: bool = False, **engine: Any) -> Any:
    """Requests of a replay (dispatch_ms, isl, osl), without overlap unless told otherwise."""
    spec = pc.Sglang(**{"disable_overlap_schedule": not overlap} | engine)
    return pc.evaluate_replay(pc.Workload.replay(rows), spec, FLAT)


def column(report: Any, name: str) -> list[float]:
    """One number a request."""
    return report.requests()[name].tolist()


def loads(report: Any) -> list[tuple[int, int]]:
    """(prompt tokens, decode rows) of each pass."""
    passes = report.passes()
    return list(zip(passes["prefill_tokens"].tolist(), passes["decode_requests"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("overlap", "arrival", "first"), [(False, 1, 14), (False, 7, 14), (True, 1, 16), (True, 7, 16), (True, 7.5, 18)]
)
def test_s1_an_arrival_waits_for_the_plan_at_hand(overlap: bool, arrival: float, first: float):
    report = run([(0, 10, 10), (arrival, 10, 1)], overlap)
    assert column(report, "first_ms") == [7, first]
    assert column(report, "admitted_ms") == [0, first - 7]


@pytest.mark.parametrize("overlap", [False, True])
def test_s1_a_sleeping_engine_runs_at_once(overlap: bool):
    report = run([(0, 10, 3), (100, 10, 1)], overlap)
    assert loads(report) == [(10, 0), (0, 1), (0, 1), (10, 0)]
    assert column(report, "done_ms") == [11, 107]


def test_s19_the_schedulers_own_loop():
    """A forward of 20 at 0; then selecting takes 5 and the forward 10: iterations end at 0 and 20, the device is free at 20 and 30."""
    workload, timing = pc.Workload.replay([(0, 10, 4)]), pc.LinearTiming((20.0,), (10.0,))
    report = pc.evaluate(workload, pc.Sglang(host_loop=pc.HostLoop(decode_select_ms=5.0)), timing)
    assert report.passes()["end_ms"].tolist() == [20, 30, 40, 50]
    assert report.token_ms(0) == [20, 30, 40, 50]


def test_s19_a_slow_loop_sets_the_pace():
    """Selecting takes 15 and a decode 10: the forward waits for the loop, and tokens are seen when the iteration after theirs ends."""
    workload, timing = pc.Workload.replay([(0, 10, 4)]), pc.LinearTiming((20.0,), (10.0,))
    report = pc.evaluate(
        workload, pc.Sglang(host_loop=pc.HostLoop(prefill_select_ms=4.0, decode_select_ms=15.0)), timing
    )
    passes = report.passes()
    assert passes["start_ms"].tolist() == [4, 24, 39, 54]
    assert passes["end_ms"].tolist() == [24, 34, 49, 64]
    assert report.token_ms(0) == [24, 39, 54, 64]
    assert report.itl_ms.max == 15


def test_s19_passes_that_take_no_time_are_seen_a_round_later_all_the_same():
    """Tokens come when the iteration after theirs ends, and nobody is lost."""
    loop, free = pc.HostLoop(prefill_select_ms=3.0, decode_select_ms=1.0), pc.LinearTiming((0.0,), (0.0,))
    report = pc.evaluate(pc.Workload.replay([(0, 10, 4), (0, 10, 2)]), pc.Sglang(host_loop=loop), free)
    assert [report.token_ms(i) for i in range(2)] == [[4, 5, 6, 6], [4, 5]]


def test_s19_a_loop_that_takes_no_time_changes_nothing():
    rows = [(0, 10, 10), (1, 10, 4), (7, 30, 6), (30.5, 10, 1)]
    plain, looped = (
        pc.evaluate(pc.Workload.replay(rows), pc.Sglang(host_loop=loop), FLAT) for loop in (None, pc.HostLoop())
    )
    assert plain.requests().equals(looped.requests()) and plain.passes().equals(looped.passes())
    assert [looped.token_ms(i) for i in range(4)] == [plain.token_ms(i) for i in range(4)]
    assert plain.itl_ms.quantile(0.9) == looped.itl_ms.quantile(0.9)


def test_s2_a_prefill_pauses_every_decode():
    """Three rows decode from 7 ms on; prompts that come at 8 and 10 ms take a pass each, and the rows' next gap is 16 ms."""
    report = run([(0, 10, 5)] * 3 + [(8, 10, 1), (10, 10, 1)], chunked_prefill_size=30)
    assert loads(report) == [(30, 0), (0, 3), (10, 0), (10, 0), (0, 3), (0, 3), (0, 3)]
    assert report.token_ms(0) == [7, 9, 25, 27, 29]
    assert report.itl_ms.max == 16
    report = run([(0, 10, 4)] * 3 + [(8, 10, 1), (10, 10, 1)], chunked_prefill_size=10)
    assert loads(report) == [(10, 0), (10, 0), (10, 0), (10, 0), (10, 0), (0, 3), (0, 3), (0, 3)]
    assert report.token_ms(0) == [7, 37, 39, 41]
    assert report.token_ms(2) == [21, 37, 39, 41]


def test_s2_gaps_of_paused_rows():
    """Two rows wait 2 + 7 ms for the prompt's pass between their decodes; the newcomer's own gap is 2 ms."""
    report = run([(0, 10, 5), (0, 10, 5), (8, 10, 2)])
    assert [report.token_ms(i) for i in range(3)] == [[7, 9, 18, 20, 22], [7, 9, 18, 20, 22], [16, 18]]
    gaps = report.itl_ms
    assert gaps.mean == pytest.approx((2 * (2 + 9 + 2 + 2) + 2) / 9)
    assert (gaps.quantile(0.1), gaps.max) == (2, 9)


def test_s4_a_length_end_wastes_no_row_and_holds_its_slot():
    """The first request's last token comes at 9 ms; its slot is usable in the plan after the one made meanwhile."""
    rows = [(0, 10, 2), (0, 10, 9), (0, 10, 1)]
    assert column(run(rows, max_running_requests=2), "first_ms") == [7, 7, 16]
    overlapped = run(rows, overlap=True, max_running_requests=2)
    assert loads(overlapped)[:3] == [(20, 0), (0, 2), (0, 1)]
    assert column(overlapped, "first_ms") == [7, 7, 18]


def test_s5_after_a_refusal_nothing_is_admitted_until_somebody_leaves():
    """A prompt of 66 does not fit beside the first request; the one of 10 behind it would, and waits too."""
    report = run([(0, 20, 6), (0, 66, 1), (0, 10, 1)], max_total_tokens=90)
    assert column(report, "first_ms") == [7, 24, 24]
    assert report.passes()["decode_requests"].tolist() == [0, 1, 1, 1, 1, 1, 0]
    assert report.binding == "kv"


@pytest.mark.parametrize(("page", "first_pass"), [(1, 40), (16, 32)])
def test_s8_a_cut_prompt_gets_whole_pages(page: int, first_pass: int):
    report = run([(0, 100, 1)], chunked_prefill_size=40, page_size=page)
    assert loads(report)[0] == (first_pass, 0)
    assert sum(new for new, _ in loads(report)) == 100


def test_s8_chunking_off():
    """The first prompt always goes; a later one must stay below what is left of max_prefill_tokens."""
    report = run([(0, 90, 1), (0, 20, 1), (0, 9, 1)], chunked_prefill_size=-1, max_prefill_tokens=30)
    assert loads(report) == [(90, 0), (29, 0)]
    assert loads(run([(0, 10, 1), (0, 20, 1)], chunked_prefill_size=-1, max_prefill_tokens=30)) == [(10, 0), (20, 0)]


def test_s9_every_end_to_come_has_room():
    """With 100 tokens S8 counts 2 x (10 + 30) and one page each; S9 sees that both fit at every end, but not a third one."""
    rows = [(0, 10, 30)] * 3
    assert column(run(rows, max_total_tokens=100, disable_radix_cache=True), "first_ms") == [7, 7, 72]


def test_s10_the_partial_goes_on_first():
    """60 tokens in chunks of 25: the rest of the last chunk goes to the prompt behind."""
    assert loads(run([(0, 60, 1), (0, 30, 1)], chunked_prefill_size=25)) == [(25, 0), (25, 0), (25, 0), (15, 0)]


def test_s11_mixed_rows_ride_the_prefill():
    report = run([(0, 10, 5), (8, 30, 2)], enable_mixed_chunk=True, chunked_prefill_size=20)
    assert loads(report) == [(10, 0), (0, 1), (19, 1), (11, 1), (0, 2)]
    assert report.token_ms(0) == [7, 9, 18, 27, 29]


def test_s12_the_ratio_admits_more_where_outputs_may_stop_early():
    rows = [(0, 10, 40)] * 2
    assert column(run(rows, max_total_tokens=80), "first_ms") == [7, 92]
    assert column(run(rows, max_total_tokens=80, ignore_eos=False), "first_ms") == [7, 92]
    eager = run(rows, max_total_tokens=80, ignore_eos=False, schedule_conservativeness=0.1)
    assert column(eager, "first_ms")[1] < 92


def test_s13_retraction():
    """Both rows have as many outputs: the later one loses its KV and starts over when the first one leaves, keeping its outputs."""
    rows = [(0, 10, 30), (8, 10, 30)]
    report = run(rows, max_total_tokens=60, schedule_conservativeness=0.1, ignore_eos=False)
    assert column(report, "preemptions") == [0, 1]
    assert [len(report.token_ms(i)) for i in range(2)] == [30, 30]
    assert max(np.diff(report.token_ms(1))) > 7 + 2


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("rounds", [0, 1, 2, 3])
def test_s14_decode_rounds_after_a_prefill(overlap: bool, rounds: int):
    """A running decoder beside a queued prompt of four tokens, chunks of four: the prompt is done after two prefills and N decodes."""
    report = run([(0, 4, 9), (0, 4, 1)], overlap, chunked_prefill_size=4, prefill_decode_interval=rounds)
    assert column(report, "done_ms")[1] == 14 + 2 * rounds


@pytest.mark.parametrize("overlap", [False, True])
def test_s14_rounds_that_launch_nothing_cost_no_time(overlap: bool):
    """Nobody decodes, so the second half of the prompt follows at once."""
    report = run([(0, 8, 1)], overlap, chunked_prefill_size=4, prefill_decode_interval=50)
    assert column(report, "done_ms") == [14]


def test_s15_a_group_computes_its_prefix_once():
    """The second request hits 64 of its tokens, whole pages only; the third is of another group; caching off, all is computed."""
    rows = {
        "dispatch_ms": [0, 20, 40],
        "isl": [70, 90, 90],
        "osl": [2, 2, 2],
        "prefix_group": [0, 0, 1],
        "prefix_len": [70, 70, 70],
    }
    report = run(rows, page_size=16, max_total_tokens=1600)
    assert report.passes().query("prefill_tokens > 0")["prefill_tokens"].tolist() == [70, 26, 90]
    report = run(rows, page_size=16, max_total_tokens=1600, disable_radix_cache=True)
    assert report.passes().query("prefill_tokens > 0")["prefill_tokens"].tolist() == [70, 90, 90]


def test_s15_shared_is_what_the_shorter_one_shares():
    rows = {
        "dispatch_ms": [0, 20, 40],
        "isl": [90, 90, 90],
        "osl": [1] * 3,
        "prefix_group": ["a"] * 3,
        "prefix_len": [50, 80, 70],
    }
    report = run(rows, max_total_tokens=1600)
    assert report.passes()["prefill_tokens"].tolist() == [90, 40, 20]


def test_s15_a_full_pool_evicts_the_least_recently_used():
    """Group 0 is evicted for group 2, since group 1 was touched later; then it is computed again."""
    groups = [0, 1, 1, 2, 1, 0]
    rows = {
        "dispatch_ms": [20 * k for k in range(6)],
        "isl": [41] * 6,
        "osl": [1] * 6,
        "prefix_group": groups,
        "prefix_len": [40] * 6,
    }
    report = run(rows, max_total_tokens=110)
    assert report.passes()["prefill_tokens"].tolist() == [41, 41, 1, 41, 1, 41]


def test_s16_longest_prefix_first():
    """While the first request runs, one that shares nothing and one that shares all queue up: the latter overtakes."""
    rows = {
        "dispatch_ms": [0, 1, 2],
        "isl": [100] * 3,
        "osl": [1] * 3,
        "prefix_group": [0, None, 0],
        "prefix_len": [100, 0, 100],
    }
    one_a_pass = {"max_total_tokens": 1000, "chunked_prefill_size": -1, "max_prefill_tokens": 1}
    assert column(run(rows, **one_a_pass), "first_ms") == [7, 14, 21]
    assert column(run(rows, schedule_policy="lpm", **one_a_pass), "first_ms") == [7, 21, 14]


@pytest.mark.parametrize(("limits", "tokens"), [({"max_total_tokens": 103}, 83), ({"context_length": 60}, 49)])
def test_s17_outputs_are_cut_to_what_fits(limits: dict[str, int], tokens: int):
    report = run([(0, 10, 500)], page_size=4, **limits)
    assert len(report.token_ms(0)) == tokens


def test_a_constant_prefix_is_a_hit_in_whole_pages():
    workload = pc.Workload.closed_loop(isl=100, osl=2, concurrency=1, prefix=60, requests=1)
    assert loads(pc.evaluate(workload, pc.Sglang(page_size=16), FLAT)) == [(52, 0), (0, 1)]


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"chunked_prefill_size": 0}, "chunked_prefill_size=0"),
        ({"chunked_prefill_size": -1, "enable_mixed_chunk": True}, "enable_mixed_chunk"),
        ({"chunked_prefill_size": 8, "page_size": 16}, "page_size=16"),
        ({"max_total_tokens": 8, "page_size": 16}, "max_total_tokens=8"),
        ({"max_total_tokens": 11}, "max_total_tokens=11"),
        ({"max_total_tokens": 20, "disable_radix_cache": True}, "max_total_tokens=20"),
        ({"context_length": 10}, "isl=10"),
        ({"schedule_policy": "dfs"}, "schedule_policy"),
        ({"dp_size": 2, "chunked_prefill_size": 1}, "dp_size=2"),
        ({"dp_size": 4, "max_running_requests": 3}, "max_running_requests=3"),
        ({"dp_size": 2, "host_loop": {}}, "host_loop"),
        ({"disable_overlap_schedule": True, "host_loop": {}}, "host_loop"),
        ({"host_loop": 1.0}, "host_loop=1.0"),
        ({"speculation": 3}, "speculation=3"),
        ({"max_num_seqs": 3}, "max_num_seqs"),
    ],
)
def test_what_can_never_run_is_refused(options: dict[str, Any], word: str):
    """Value, rule and remedy, in one line (S8, S9, S17)."""
    with pytest.raises((pc.SpecError, pc.Unsupported), match=word) as refusal:
        run([(0, 10, 30)], **options)
    assert len(str(refusal.value)) < 200


def test_the_largest_that_can_run_does():
    assert len(run([(0, 10, 1)], max_total_tokens=13).token_ms(0)) == 1
    assert len(run([(0, 10, 30)], max_total_tokens=43, disable_radix_cache=True).token_ms(0)) == 30


def test_a_trunk_has_room_for_every_page_of_it():
    """Chunks of seven tokens leave a node each, and prompts that end within them split them."""
    shapes = [{"isl": isl, "osl": 4, "prefix_group": 0, "prefix_len": 199} for isl in range(5, 200, 3)]
    engine = pc.Sglang(chunked_prefill_size=7, enable_mixed_chunk=True, max_running_requests=3)
    machine = assemble(pc.Workload.closed_loop(shapes=shapes, concurrency=5, requests=400), pc.Aggregated(engine), FLAT)
    machine.finish()
    assert machine.state.sglang["nodes"][0] <= len(machine.state.nodes)


def test_without_a_limit_a_group_keeps_all_it_has_computed():
    """A closed loop goes on for ever, and the tree does not grow: nodes of what is done are used again."""
    shapes = [{"isl": 90 + k, "osl": 3, "prefix_group": 0, "prefix_len": 70 + k % 3} for k in range(5)]
    report = pc.evaluate(
        pc.Workload.closed_loop(shapes=shapes, concurrency=3, requests=2000), pc.Sglang(page_size=4), FLAT
    )
    passes = report.passes()
    tokens = passes["prefill_tokens"][passes["prefill_requests"] > 0]
    assert tokens.iloc[0] > 200 and tokens.iloc[10:].max() <= 3 * 26


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[dict[str, int]], int, dict[str, Any]]:
    """Shapes, clients and options under which they can all run, often short of KV, some with shared prefixes."""
    rows = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 40)), min_size=1, max_size=6))
    page = draw(st.sampled_from([1, 1, 4, 16]))
    longest = max(isl + osl for isl, osl in rows)
    chunk = draw(st.one_of(st.just(-1), st.integers(page, 400)))
    options: dict[str, Any] = {
        "chunked_prefill_size": chunk,
        "enable_mixed_chunk": chunk > 0 and draw(st.booleans()),
        "max_prefill_tokens": draw(st.sampled_from([16384, 100])),
        "max_running_requests": draw(st.sampled_from([64, 5, 1])),
        "disable_overlap_schedule": draw(st.booleans()),
        "page_size": page,
        "max_total_tokens": (-(-longest // page) + draw(st.integers(4, 40))) * page * draw(st.sampled_from([1, 4])) + 4,
        "schedule_policy": draw(st.sampled_from(["fcfs", "lpm"])),
        "schedule_conservativeness": draw(st.sampled_from([1.0, 0.2])),
        "prefill_decode_interval": draw(st.sampled_from([0, 0, 2])),
        "ignore_eos": draw(st.booleans()),
        "disable_radix_cache": draw(st.booleans()),
    }
    shapes = [{"isl": isl, "osl": osl} for isl, osl in rows]
    if draw(st.booleans()):
        for shape in shapes:
            shape |= {"prefix_group": draw(st.integers(0, 1)), "prefix_len": draw(st.integers(0, shape["isl"]))}
    return shapes, draw(st.integers(1, 12)), options


@settings(deadline=None, max_examples=150)
@given(worlds())
def test_nothing_is_lost(world: Any):
    """Every token is emitted once, chunks hold, passes follow one another, and all KV comes back."""
    shapes, clients, options = world
    workload, engine = pc.Workload.closed_loop(shapes=shapes, concurrency=clients, requests=30), pc.Sglang(**options)
    report = pc.evaluate(workload, engine, CLOCK)
    requests, passes = report.requests(), report.passes()
    if options["chunked_prefill_size"] > 0:
        assert passes["prefill_tokens"].max() <= options["chunked_prefill_size"]
    if not options["enable_mixed_chunk"]:
        assert (passes["prefill_tokens"] * passes["decode_requests"]).max() == 0
    assert (passes["start_ms"].to_numpy()[1:] >= passes["end_ms"].to_numpy()[:-1] - 1e-9).all()
    times = [report.token_ms(i) for i in range(30)]
    assert [len(t) for t in times] == requests["osl"].tolist()
    gaps = np.concatenate([np.diff(t) for t in times])
    assert (gaps > 0).all()
    if len(gaps):
        assert report.itl_ms.mean == pytest.approx(gaps.mean())
        assert report.itl_ms.max == pytest.approx(gaps.max())
    last_chunks = requests["osl"].sum() - passes["decode_requests"].sum()
    assert 30 - 2 * report.preemptions <= last_chunks <= 30 + report.preemptions
    if report.preemptions == 0 and all("prefix_group" not in shape for shape in shapes):
        assert passes["prefill_tokens"].sum() == requests["isl"].sum()
    machine = finished(workload, engine)
    rank, own = machine.rank, machine.state.sglang[0]
    assert rank["free"] == rank["usable"]
    assert rank["running"] == rank["waiting"] == 0
    if own["tree"]:
        nodes = machine.state.nodes[: int(own["nodes"])]
        kept = nodes[nodes["parent"] >= 0]
        assert (kept["end"] - kept["start"]).sum() == own["unlocked"] <= rank["usable"]
        assert not kept["lock"].any()


def finished(workload: Any, engine: pc.Sglang) -> Any:
    """A machine that has run this to the end, assembled again where a prompt could hit its own pages."""
    for identities in (False, True):
        machine = assemble(workload, pc.Aggregated(engine), CLOCK, identities=identities)
        try:
            assert machine.advance(1_000_000) == DONE
        except IdentitiesNeeded:
            continue
        return machine
    raise AssertionError


@settings(deadline=None, max_examples=60)
@given(worlds())
def test_a_cycle_is_what_a_long_run_repeats(world: Any):
    """The cycle's requests are found far out in a run of a fixed number of requests; with a prefix tree a window is used."""
    shapes, clients, options = world
    engine = pc.Sglang(**options)
    stop = pc.LimitCycle(max_passes=100_000)
    report = pc.evaluate(pc.Workload.closed_loop(shapes=shapes, concurrency=clients), engine, CLOCK, stop=stop)
    if report.window.kind != "cycle" or report.window.requests > 400:
        return
    count = report.window.requests
    skip = (
        2000
        + (report.window.start_ms > 0) * int(report.throughput_per_s * report.window.start_ms / 1000) // count * count
    )
    long = pc.Workload.closed_loop(shapes=shapes, concurrency=clients, requests=skip + 2 * count + 100)
    table = pc.evaluate(long, engine, CLOCK).requests()
    ttft = (table["first_ms"] - table["dispatch_ms"]).to_numpy()[skip : skip + count]
    assert np.sort(ttft) == pytest.approx(np.sort(report.requests().eval("first_ms - dispatch_ms")), abs=1e-6)
    own = report.requests()
    total = (own["done_ms"] - own["first_ms"]).sum()
    if own["osl"].max() > 1:
        assert report.itl_ms.mean * (own["osl"] - 1).sum() == pytest.approx(total)


class Asked:
    """The same clock as a Python model, so that the kernel stops at every plan."""

    def pass_ms(self, shape: pc.PassShape) -> float:
        """Milliseconds, from the linear clock."""
        assert sum(new for new, _ in shape.chunks) == shape.prefill_tokens
        return CLOCK.pass_ms(shape)


@settings(deadline=None, max_examples=25)
@given(worlds())
def test_a_python_model_prices_the_same_plans(world: Any):
    shapes, clients, options = world
    workload, engine = pc.Workload.closed_loop(shapes=shapes, concurrency=clients, requests=20), pc.Sglang(**options)
    one, other = (pc.evaluate(workload, engine, timing).requests() for timing in (CLOCK, Asked()))
    assert one.to_numpy() == pytest.approx(other.to_numpy())


def test_a_cycle_does_not_wait_for_a_ratio_that_changes_nothing():
    """Waves of 3,400 chunks and two decode passes: where memory never binds, the new-token ratio (S12) need not settle first."""
    timing = pc.LinearTiming(prefill=(0.0, 0.02, 1e-6, 2e-6), decode=(8.0, 0.2, 2e-6))
    workload = pc.Workload.closed_loop(isl=1223, osl=3, concurrency=11)
    report = pc.evaluate_closed_loop(
        workload, pc.Sglang(chunked_prefill_size=4, disable_overlap_schedule=False), timing
    )
    assert report.window.kind == "cycle" and report.window.passes < 4000
