"""The prefix oracle against a cache written out page by page, and laws that hold whatever the trace."""

import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import passcal as pc
from passcal.sources.prefix import Pages, PrefixOracle

SIZE = 4
Row = tuple[list[int], int, int]  # page ids, isl, session


def pages_of(rows: list[Row]) -> tuple[Pages, np.ndarray]:
    """The ragged arrays of these rows, and their prompt lengths."""
    offsets = np.concatenate(([0], np.cumsum([len(ids) for ids, _, _ in rows])))
    ids = np.array([one for ids, _, _ in rows for one in ids], np.int64)
    sessions = np.array([session for _, _, session in rows])
    return Pages(ids, offsets, SIZE, sessions), np.array([isl for _, isl, _ in rows])


@st.composite
def drawn_rows(draw: Any) -> list[Row]:
    """Few ids, so that beginnings are shared and ids repeat under other beginnings; tails full or not."""
    rows = []
    for _ in range(draw(st.integers(1, 14))):
        ids = draw(st.lists(st.integers(0, 2), min_size=1, max_size=5))
        rows.append((ids, len(ids) * SIZE - draw(st.integers(0, SIZE - 1)), draw(st.integers(0, 1))))
    return rows


oracles = st.builds(
    PrefixOracle,
    capacity_pages=st.none() | st.integers(0, 9),
    eviction=st.sampled_from(["lru", "leaf"]),
    partial_tail=st.booleans(),
    block_size=st.integers(1, 5),
    sharing=st.sampled_from(["global", "session"]),
)


@dataclass
class Kept:
    """A resident page: tokens in it, and when it was touched: the request, and which touch of all."""

    fill: int
    request: int
    touch: int


def written_out(rows: list[Row], oracle: PrefixOracle) -> list[int]:
    """The same cache with a dict from a page's whole beginning to what is known of it."""
    cache: dict[tuple[int, ...], Kept] = {}
    touches, found = 0, []
    for number, (ids, isl, session) in enumerate(rows):
        root = session if oracle.sharing == "session" else -1
        path = []
        for j in range(len(ids)):
            tokens = min(SIZE, isl - j * SIZE)
            if tokens == SIZE or oracle.partial_tail:
                path.append(((root, *ids[: j + 1]), tokens))
        hit = 0
        for key, tokens in path:
            hit += min(tokens, cache[key].fill) if key in cache else 0
            if key not in cache or cache[key].fill < tokens:
                break
        found.append(min(hit, isl - 1) // oracle.block_size * oracle.block_size)
        for key, tokens in path:
            touches += 1
            before = cache[key].fill if key in cache else 0
            cache[key] = Kept(max(before, tokens), number, touches)
        while oracle.capacity_pages is not None and len(cache) > oracle.capacity_pages:
            if oracle.eviction == "lru":
                del cache[min(cache, key=lambda key: cache[key].touch)]
            else:
                continued = {key[:-1] for key in cache}
                del cache[min((key for key in cache if key not in continued), key=lambda key: cache[key].request)]
    return found


@given(drawn_rows(), oracles)
def test_it_is_the_cache_written_out(rows: list[Row], oracle: PrefixOracle):
    assert oracle.hits(*pages_of(rows)).tolist() == written_out(rows, oracle)


@given(drawn_rows(), oracles, st.integers(0, 9))
def test_more_room_never_hits_less(rows: list[Row], oracle: PrefixOracle, less: int):
    """Of any request: both evictions keep the most recent pages of one order that capacity does not change."""
    small = PrefixOracle(**{**vars(oracle), "capacity_pages": less}).hits(*pages_of(rows))
    large = PrefixOracle(**{**vars(oracle), "capacity_pages": less + 2}).hits(*pages_of(rows))
    unbounded = PrefixOracle(**{**vars(oracle), "capacity_pages": None}).hits(*pages_of(rows))
    assert (small <= large).all() and (large <= unbounded).all()


@given(drawn_rows())
def test_unbounded_is_the_longest_beginning_that_came_before(rows: list[Row]):
    found = PrefixOracle().hits(*pages_of(rows))
    for at, (ids, isl, _) in enumerate(rows):
        longest = 0
        for other, other_isl, _ in rows[:at]:
            full = min(isl, other_isl) // SIZE
            same = [a == b for a, b in zip(ids[:full], other[:full], strict=False)]
            longest = max(longest, ([*same, False]).index(False))
        assert found[at] == min(longest * SIZE, isl - 1)


@given(drawn_rows(), oracles)
def test_what_a_hit_may_be(rows: list[Row], oracle: PrefixOracle):
    found = oracle.hits(*pages_of(rows))
    isl = np.array([isl for _, isl, _ in rows])
    assert (found >= 0).all() and (found < isl).all() and (found % oracle.block_size == 0).all()
    assert found[0] == 0


@given(drawn_rows(), st.booleans())
def test_sessions_and_tails_when_there_is_room(rows: list[Row], partial: bool):
    """Sharing with everybody, or whole tails, can only add."""
    hit = {
        (tail, sharing): PrefixOracle(partial_tail=tail, sharing=sharing).hits(*pages_of(rows))
        for tail in (False, True)
        for sharing in ("session", "global")
    }
    assert (hit[partial, "session"] <= hit[partial, "global"]).all()
    assert (hit[False, "global"] <= hit[True, "global"]).all()


@given(drawn_rows(), oracles)
def test_names_of_pages_do_not_matter(rows: list[Row], oracle: PrefixOracle):
    """Nor does a root of its own for each session, where sharing is by session anyway."""
    pages, isl = pages_of(rows)
    renamed = Pages(pages.ids * 2**40 - 7, pages.offsets, SIZE, pages.sessions)
    assert (oracle.hits(renamed, isl) == oracle.hits(pages, isl)).all()
    apart = Pages(pages.ids, pages.offsets, SIZE, pages.sessions, roots=pages.sessions)
    by_session = PrefixOracle(**{**vars(oracle), "sharing": "session"})
    assert (PrefixOracle(**{**vars(oracle), "sharing": "global"}).hits(apart, isl) == by_session.hits(pages, isl)).all()


def test_the_two_evictions_differ():
    """Room for three of four pages: the oldest page is the first of the prompt, the oldest leaf its last."""
    pages, isl = pages_of([([1, 2], 8, 0), ([3, 4], 8, 0), ([1, 9], 8, 0)])
    assert PrefixOracle(capacity_pages=3, eviction="leaf").hits(pages, isl).tolist() == [0, 0, 4]
    assert PrefixOracle(capacity_pages=3, eviction="lru").hits(pages, isl).tolist() == [0, 0, 0]


def test_caps_and_blocks():
    """The last prompt token is always computed; what is left is whole blocks."""
    pages, isl = pages_of([([1, 2], 8, 0), ([1, 2], 8, 0)])
    assert PrefixOracle().hits(pages, isl).tolist() == [0, 7]
    assert PrefixOracle(block_size=3).hits(pages, isl).tolist() == [0, 6]
    pages, isl = pages_of([([1, 2], 6, 0), ([1, 2], 8, 0), ([1, 2], 8, 0)])
    assert PrefixOracle().hits(pages, isl).tolist() == [0, 4, 7]
    assert PrefixOracle(partial_tail=True).hits(pages, isl).tolist() == [0, 6, 7]


def test_rows_without_pages_hit_nothing():
    none = Pages(np.zeros(0, np.int64), np.zeros(3, np.int64), SIZE)
    assert PrefixOracle().hits(none, [5, 6]).tolist() == [0, 0]
    pages, isl = pages_of([([1], 4, 0), ([], 9, 0), ([1], 4, 0)])
    assert PrefixOracle().hits(pages, isl).tolist() == [0, 0, 3]


def test_rows_are_taken_and_copies_are_free():
    pages, _ = pages_of([([1, 2], 8, 0), ([], 3, 1), ([1, 5, 6], 12, 1)])
    taken = pages.take([2, 0])
    assert (
        taken.ids.tolist() == [1, 5, 6, 1, 2]
        and taken.offsets.tolist() == [0, 3, 5]
        and taken.sessions.tolist() == [1, 0]
    )
    assert len(taken) == 2 and len(pages.take([])) == 0
    assert copy.deepcopy(pages) is pages


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"capacity_pages": -1}, "capacity_pages=-1"),
        ({"capacity_pages": 2.0}, "capacity_pages=2.0"),
        ({"block_size": 0}, "block_size=0"),
        ({"block_size": True}, "block_size=True"),
        ({"eviction": "fifo"}, "eviction='fifo': must be lru or leaf"),
        ({"sharing": "user"}, "sharing='user': must be global or session"),
        ({"partial_tail": 1}, "partial_tail=1"),
    ],
)
def test_options_are_checked(options: dict[str, Any], said: str):
    with pytest.raises(pc.SpecError) as caught:
        PrefixOracle(**options)
    assert said in str(caught.value) and len(str(caught.value)) < 200


def test_rows_are_checked():
    pages, isl = pages_of([([1, 2], 8, 0), ([1, 2], 5, 0)])
    with pytest.raises(pc.SpecError, match="row 1: 2 pages of 4 tokens for isl=4"):
        PrefixOracle().hits(pages, [8, 4])
    with pytest.raises(pc.SpecError, match="isl has shape"):
        PrefixOracle().hits(pages, isl[:1])
    with pytest.raises(pc.SpecError, match="has no sessions"):
        PrefixOracle(sharing="session").hits(Pages(pages.ids, pages.offsets, SIZE), isl)


@pytest.mark.slow
def test_a_million_requests_take_seconds():
    """And a long trace hits what its structure says: sessions that grow by a page a turn, all in turn."""
    turns, sessions = 20, 50_000
    session = np.tile(np.arange(sessions), turns)
    counts = np.repeat(np.arange(1, turns + 1), sessions)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
    pages = Pages(np.repeat(session, counts) * 1000 + within, offsets, SIZE)
    wanted = (counts - 1) * SIZE
    assert (PrefixOracle().hits(pages, counts * SIZE) == wanted).all()
    assert PrefixOracle(capacity_pages=sessions - 1, eviction="lru").hits(pages, counts * SIZE).sum() == 0
