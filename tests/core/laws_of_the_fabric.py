"""`PASSCAL_INTERPRET=1 pytest tests/core/laws_of_the_fabric.py`: the fabric alone, by the definition of max-min fairness; `test_fabric` runs it.

Kernel functions are called as they are, which only uncompiled ones can be.
"""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passcal.core.compiled import table
from passcal.core.fabric import ended, enqueue, next_moment, open_transfer, start
from passcal.core.tables import NEVER, NOBODY, WORLD
from passcal.core.tandem_tables import END, HAND, HOP, PAIR, TRANSFER

CAPACITY = 1000.0  # bytes a ms
SLACK = 1e-9
TOGETHER_MS = 1e-6

Flow = tuple[float, int, int, float]  # when it is ready, source, sink, bytes
Rates = dict[tuple[int, int], tuple[int, float]]  # of a pair: how many flows, the rate of each


@dataclass
class Run:
    """What a fabric did: when each flow began to flow and ended, and from when on which rates held."""

    begun: dict[int, float] = field(default_factory=dict)
    ended: dict[int, float] = field(default_factory=dict)
    rates: list[tuple[float, Rates]] = field(default_factory=list)
    most_at_an_end: int = 0


def fabric(flows: int, sources: int, sinks: int, latency_ms: float, most: int) -> Any:
    """Tables of one hop, with nothing on it."""
    hops, world = np.zeros(1, HOP), np.zeros(1, WORLD)
    hop = hops[0]
    hop["bytes"], hop["capacity"], hop["next_ms"], hop["latency_ms"], hop["most"] = (
        1.0,
        CAPACITY,
        NEVER,
        latency_ms,
        most,
    )
    hop["sources"], hop["sinks"] = sources, sinks
    hop["latent_head"] = hop["latent_tail"] = NOBODY
    world["stages"], world["spare_transfer"] = 2, NOBODY
    ends, pairs, hands = np.zeros(sources + sinks, END), np.zeros(sources * sinks, PAIR), np.zeros(flows, HAND)
    ends["head"] = ends["tail"] = pairs["top"] = NOBODY
    hands["start_ms"] = -1.0
    tables = {
        "hops": hops,
        "world": world,
        "ends": ends,
        "pairs": pairs,
        "hands": hands,
        "transfers": np.zeros(flows, TRANSFER),
    }
    return SimpleNamespace(**{name: table(rows) for name, rows in tables.items()})


def run(flows: list[Flow], sources: int = 3, sinks: int = 3, latency_ms: float = 0.0, most: int = 0) -> Run:
    """Let all flows end, in the order of time; of those ready at one instant, in the order given."""
    state, told = fabric(len(flows), sources, sinks, latency_ms, most), Run()
    hop, waiting = state.hops[0], sorted(range(len(flows)), key=lambda n: flows[n][0])
    while waiting or len(told.ended) < len(flows):
        now = min(next_moment(state, hop), flows[waiting[0]][0] if waiting else NEVER)
        assert now < NEVER
        while waiting and flows[waiting[0]][0] <= now:
            n = waiting.pop(0)
            _, source, sink, size = flows[n]
            t = open_transfer(state, 2 * n, size)
            state.transfers[t].source, state.transfers[t].sink = source, sink
            enqueue(state, hop, t)
        some = True
        while some:
            start(state, hop, now)
            told.most_at_an_end = max(told.most_at_an_end, int(state.ends["under_way"].max()))
            t = ended(state, hop, now)
            some = t != NOBODY
            while t != NOBODY:
                told.ended[int(state.transfers[t].leg) // 2] = now
                t = int(state.transfers[t].after)
        told.rates.append((now, rates(state, sinks)))
    told.begun = {n: float(hand["start_ms"]) + latency_ms for n, hand in enumerate(state.hands)}
    assert next_moment(state, hop) == NEVER
    return told


def rates(state: Any, sinks: int) -> Rates:
    """Of every pair that has flows."""
    found = {divmod(p, sinks): (int(pair["flows"]), float(pair["rate"])) for p, pair in enumerate(state.pairs)}
    return {pair: shared for pair, shared in found.items() if shared[0] > 0}


WHEN = st.one_of(st.just(0.0), st.sampled_from([1.0, 2.5]), st.floats(0, 20))
SIZE = st.one_of(st.sampled_from([500.0, 1000.0, 3000.0]), st.floats(1, 20000))
FLOW = st.tuples(WHEN, st.integers(0, 2), st.integers(0, 2), SIZE)
FLOWS = st.lists(FLOW, min_size=1, max_size=14)
LINKS = st.fixed_dictionaries({"latency_ms": st.sampled_from([0.0, 0.0, 0.7]), "most": st.sampled_from([0, 0, 1, 2])})
laws = settings(max_examples=60, deadline=None, database=None, derandomize=True)


@laws
@given(FLOWS, LINKS)
def test_rates_are_max_min_fair(flows: list[Flow], link: dict[str, Any]):
    """No end carries more than it can, and every flow has a saturated end on which none is faster."""
    for _, shared in run(flows, **link).rates:
        ends: dict[tuple[str, int], list[tuple[int, float]]] = {}
        for (source, sink), pair in shared.items():
            ends.setdefault(("egress", source), []).append(pair)
            ends.setdefault(("ingress", sink), []).append(pair)
        load = {end: sum(count * rate for count, rate in pairs) for end, pairs in ends.items()}
        assert all(total <= CAPACITY * (1 + SLACK) for total in load.values())
        for (source, sink), (_, rate) in shared.items():
            assert any(
                load[end] >= CAPACITY * (1 - SLACK) and rate >= max(r for _, r in ends[end]) * (1 - SLACK)
                for end in (("egress", source), ("ingress", sink))
            )


@laws
@given(FLOWS, LINKS)
def test_what_arrives_is_what_was_sent(flows: list[Flow], link: dict[str, Any]):
    """The rates over the life of each flow make its bytes, but for the last 1e-6 ms."""
    done = run(flows, **link)
    spans = [(at, until, shared) for (at, shared), (until, _) in zip(done.rates, done.rates[1:], strict=False)]
    for n, (_, source, sink, size) in enumerate(flows):
        here = [
            (until - at, shared[source, sink][1])
            for at, until, shared in spans
            if at >= done.begun[n] and until <= done.ended[n] and until > at
        ]
        sent = sum(span * rate for span, rate in here)
        assert sent == pytest.approx(size, rel=1e-9, abs=2 * TOGETHER_MS * CAPACITY)


@laws
@given(FLOWS, LINKS)
def test_bounds_are_kept_and_nothing_ends_early(flows: list[Flow], link: dict[str, Any]):
    done = run(flows, **link)
    assert link["most"] == 0 or done.most_at_an_end <= link["most"]
    for n, (ready, _, _, size) in enumerate(flows):
        assert done.begun[n] >= ready + link["latency_ms"]
        assert done.ended[n] >= done.begun[n] + size / CAPACITY - TOGETHER_MS


@laws
@given(FLOWS, st.permutations(range(3)), st.permutations(range(3)), st.randoms(use_true_random=False))
def test_names_and_order_do_not_matter(flows: list[Flow], sources: list[int], sinks: list[int], random: Any):
    """Workers called otherwise, and flows listed otherwise, end at the same times, where no bound says who is first."""
    order = list(range(len(flows)))
    random.shuffle(order)
    renamed = [(flows[n][0], sources[flows[n][1]], sinks[flows[n][2]], flows[n][3]) for n in order]
    one, other = run(flows).ended, run(renamed).ended
    for place, n in enumerate(order):
        assert other[place] == pytest.approx(one[n], rel=1e-9, abs=2 * TOGETHER_MS * len(flows))


@laws
@given(FLOWS, FLOWS)
def test_disjoint_pairs_do_not_touch(flows: list[Flow], others: list[Flow]):
    beside = [*flows, *((at, source + 3, sink + 3, size) for at, source, sink, size in others)]
    alone, together = run(flows).ended, run(beside, sources=6, sinks=6).ended
    for n in range(len(flows)):
        assert together[n] == pytest.approx(alone[n], rel=1e-9, abs=TOGETHER_MS * len(beside))


@laws
@given(FLOWS, LINKS, st.sampled_from([1.0, 2.5, 7.0]))
def test_a_later_flow_changes_nothing_before_it(flows: list[Flow], link: dict[str, Any], kept_until: float):
    kept = [flow for flow in flows if flow[0] < kept_until]
    all_first = kept + [flow for flow in flows if flow[0] >= kept_until]
    whole, part = run(all_first, **link), run(kept, **link) if kept else Run()
    for n, at in part.ended.items():
        if at < kept_until:
            assert whole.ended[n] == at
        else:
            assert whole.ended[n] >= min(at, kept_until) - TOGETHER_MS


@laws
@given(st.lists(SIZE, min_size=1, max_size=10))
def test_one_end_is_shared_by_those_that_are_left(sizes: list[float]):
    """Processor sharing has its own formula: the k-th smallest of n ends when the smaller ones and n - k times its bytes more have gone."""
    done = run([(0.0, n % 3, 0, size) for n, size in enumerate(sizes)])
    for n, size in enumerate(sizes):
        expected = sum(min(size, other) for other in sizes) / CAPACITY
        assert done.ended[n] == pytest.approx(expected, rel=1e-9, abs=TOGETHER_MS * len(sizes))
