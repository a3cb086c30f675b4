"""D3: flows share links max-min fairly; a link carries 1 byte a millisecond, unless told otherwise."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.oracle.events import Clock, Kind
from tools.oracle.fabric import Fabric, fair_rates
from tools.oracle.transfers import Link, Transfers

PAIRS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=12)


def links(pairs: list[tuple[int, int]]) -> list[tuple]:
    """The routes of flows from egress to ingress."""
    return [(("out", source), ("in", target)) for source, target in pairs]


@given(PAIRS, st.data())
def test_fair_by_definition(pairs: list[tuple[int, int]], data: st.DataObject):
    """No link is overfull, and every flow crosses a full one on which nobody is faster."""
    routes = links(pairs)
    every = sorted({link for route in routes for link in route})
    capacity = {link: data.draw(st.integers(1, 9)) / 4 for link in every}
    rates = fair_rates(routes, capacity)
    on = {link: [rate for route, rate in zip(routes, rates, strict=True) if link in route] for link in every}
    assert all(sum(on[link]) <= capacity[link] * (1 + 1e-12) for link in every)
    for route, rate in zip(routes, rates, strict=True):
        bottlenecks = [link for link in route if sum(on[link]) >= capacity[link] * (1 - 1e-12)]
        assert any(rate >= max(on[link]) * (1 - 1e-12) for link in bottlenecks)


def test_who_is_held_up_elsewhere_leaves_its_share():
    """Three into one ingress have a third each; the other flow of one of their sources has the rest of that egress."""
    rates = fair_rates(links([(0, 0), (1, 0), (2, 0), (2, 1)]), ONES)
    assert rates == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3])


ONES = {(end, worker): 1.0 for end in ("out", "in") for worker in range(5)}


def ends(*flows: tuple[float, int, int, float], fabric: type[Fabric] = Fabric, capacity: float = 1.0) -> list[float]:
    """When flows of (start, source, target, bytes) are through."""
    clock, through = Clock(), [inf] * len(flows)
    net = fabric(capacity, clock)
    for number, (at_ms, source, target, size) in enumerate(flows):

        def note(number: int = number) -> None:
            through[number] = clock.now_ms

        clock.at(at_ms, Kind.FLOW, net.start, source, target, size, note)
    clock.run()
    assert not net.flows
    return through


def test_two_into_one_ingress_take_twice_as_long():
    """And two from one egress, too."""
    assert ends((0, 0, 0, 10), (0, 1, 0, 10)) == [20, 20]
    assert ends((0, 0, 0, 10), (0, 0, 1, 10)) == [20, 20]


def test_disjoint_pairs_do_not_touch():
    """Each is alone."""
    assert ends((0, 0, 0, 10), (3, 1, 1, 10)) == [10, 13]


def test_a_later_flow_shares_what_is_left():
    """Alone until 4; both at a half until the first's 6 bytes are through at 16; the rest of the second alone."""
    assert ends((0, 0, 0, 10), (4, 1, 0, 10)) == [16, 20]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2), st.integers(0, 2), st.integers(1, 20)), min_size=1))
def test_bytes_are_conserved(flows: list[tuple[int, int, int, int]]):
    """What moves is what was sent, whatever the rates were, and no link was ever overfull."""

    class Weighing(Fabric):
        """A fabric that keeps books."""

        moved = 0.0

        def advance(self) -> None:
            elapsed_ms = self.clock.now_ms - self.since_ms
            moved = [flow.rate * elapsed_ms for flow in self.flows]
            for end in {end for flow in self.flows for end in flow.route}:
                carried = sum(each for each, flow in zip(moved, self.flows, strict=True) if end in flow.route)
                assert carried <= elapsed_ms * (1 + 1e-9)
            Weighing.moved += sum(moved)
            super().advance()

    Weighing.moved = 0.0
    through = ends(*flows, fabric=Weighing)
    assert Weighing.moved == pytest.approx(sum(size for *_, size in flows))
    for (at_ms, _, _, size), end_ms in zip(flows, through, strict=True):
        assert end_ms >= at_ms + size - 1e-6


def test_ends_at_a_late_hour_end():
    """Where the clock's own grain is coarser than what is left, nothing hangs."""
    late_ms = 1e9 + 1 / 3
    assert ends((late_ms, 0, 0, 1e7 / 3), (late_ms, 1, 0, 1e7 / 7), capacity=4e7) == pytest.approx([late_ms] * 2)


def sends(*messages: tuple[float, int, int, float], bound: int | None = None, latency_ms: float = 0.0) -> list[tuple]:
    """(start, end) of messages of (ready, source, target, bytes)."""
    clock, times = Clock(), [[inf, inf] for _ in messages]
    net = Transfers(Link(1e-6, 1.0, latency_ms, 1.0, bound, "full", "last_chunk"), clock)
    for number, (at_ms, source, target, size) in enumerate(messages):

        def note(which: int, number: int = number) -> None:
            times[number][which] = clock.now_ms

        started, ended = (lambda note=note: note(0)), (lambda note=note: note(1))
        clock.at(at_ms, Kind.HANDOFF, net.submit, (source, target), size, started, ended)
    clock.run()
    return [tuple(each) for each in times]


def test_the_latency_takes_no_bandwidth():
    """The second message starts to flow when the first is through."""
    assert sends((0, 0, 0, 10), (10, 0, 0, 10), latency_ms=5) == [(0, 15), (10, 25)]


def test_no_bytes_and_no_latency_take_no_time():
    """At the same instant; with a latency, after it, whatever flows meanwhile."""
    assert sends((3, 0, 0, 0)) == [(3, 3)]
    assert sends((0, 0, 0, 10), (3, 0, 0, 0), latency_ms=2) == [(0, 12), (3, 5)]


def test_a_bound_makes_a_queue_of_each_source():
    """One at a time: the second to worker 0 waits for its ingress, and the third, behind it, though worker 1 is free.

    Another source's message to worker 1, ready later, goes at once.
    """
    messages = [(0, 0, 0, 10), (1, 1, 0, 10), (2, 1, 1, 10), (3, 2, 1, 4)]
    assert sends(*messages, bound=1) == [(0, 10), (10, 20), (20, 30), (3, 7)]
    assert [start for start, _ in sends(*messages)] == [0, 1, 2, 3]


def test_a_free_end_goes_to_who_was_ready_first():
    """Of two sources that wait for one ingress; the latency holds a place."""
    messages = [(0, 0, 0, 10), (2, 2, 0, 1), (1, 1, 0, 1)]
    assert [start for start, _ in sends(*messages, bound=1, latency_ms=1)] == [0, 13, 11]


@pytest.mark.parametrize(("size", "next_ms"), [(10, 20), (0, 10)])
def test_what_waits_starts_when_all_have_ended_that_end_together(size: float, next_ms: float):
    """The first two end at 10 ms. The third waits for both of them, the fourth for the first alone, but it was ready later.

    With no bytes the third ends as it starts, and the fourth follows at the same instant.
    """
    messages = [(0, 0, 0, 10), (0, 1, 1, 10), (1, 1, 0, size), (2, 2, 0, 10)]
    assert sends(*messages, bound=1)[2:] == [(10, next_ms), (next_ms, next_ms + 10)]


@pytest.mark.parametrize(("more", "apart"), [(5e-7, False), (2e-6, True)])
def test_ends_closer_than_a_nanosecond_are_one(more: float, apart: bool):
    """Rounding decides nothing; what lies further apart does."""
    first, second = ends((0, 0, 0, 10), (0, 1, 1, 10 + more))
    assert (first < second) == apart
