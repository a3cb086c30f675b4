"""The search for the largest level that holds, on levels made up: monotone, and not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from passcal.search import largest

LADDERS = st.lists(st.booleans(), min_size=1, max_size=150)


class Asked:
    """Levels that hold or not, and how often each was asked for."""

    def __init__(self, held: list[bool]) -> None:
        self.held, self.levels = held, list[int]()

    def __call__(self, level: int) -> bool:
        self.levels.append(level)
        return self.held[level - 1]


@pytest.mark.parametrize("climb", [True, False])
@pytest.mark.parametrize("count", [1, 2, 3, 64, 100, 1024])
def test_monotone_levels_need_few(climb: bool, count: int):
    for last in {0, min(2, count), count // 3, count - 1, count}:
        asked = Asked([level <= last for level in range(1, count + 1)])
        found = largest(count, asked, climb=climb, checks=0)
        assert (found.last, found.again) == (last, ())
        assert len(asked.levels) <= 2 * count.bit_length() + 1


def test_a_climb_never_goes_beyond_twice_the_answer():
    """High levels are dear."""
    asked = Asked([level <= 37 for level in range(1, 5000)])
    assert largest(len(asked.held), asked, climb=True, checks=0).last == 37
    assert max(asked.levels) == 64


@given(LADDERS, st.booleans(), st.integers(0, 40))
def test_whatever_was_tried_agrees_with_the_answer(held: list[bool], climb: bool, checks: int):
    asked = Asked(held)
    found = largest(len(held), asked, climb=climb, checks=checks)
    assert len(set(asked.levels)) == len(asked.levels)
    below = [level for level in asked.levels if level <= found.last]
    assert all(held[level - 1] for level in below)
    assert found.last == len(held) or not held[found.last]
    assert set(found.again) == {k for k in asked.levels if k > found.last and held[k - 1]}


@given(LADDERS, st.booleans())
def test_with_enough_checks_it_is_the_first_failure(held: list[bool], climb: bool):
    found = largest(len(held), Asked(held), climb=climb, checks=len(held))
    assert found.last == (held.index(False) if False in held else len(held))


def dip(at: int, width: int, last: int, count: int) -> list[bool]:
    """Holds up to `last`, but not in a dip."""
    return [level <= last and not at <= level < at + width for level in range(1, count + 1)]


def test_a_dip_below_the_answer_is_found_and_told():
    """Bisection alone walks past it; checks see it, and a scan finds where it begins."""
    held = dip(at=300, width=40, last=900, count=1024)
    assert largest(1024, Asked(held), climb=True, checks=0).last == 900
    found = largest(1024, Asked(held), climb=True, checks=64)
    assert found.last == 299 and found.again[-1] == 900


def test_levels_that_hold_again_above_the_answer_are_told():
    held = dip(at=24, width=2, last=30, count=40)
    found = largest(40, Asked(held), climb=True, checks=16)
    assert found.last == 23 and found.again[0] == 26


def test_small_levels_are_all_checked_on_a_climb():
    """Where loads differ by large factors."""
    asked = Asked([True] * 1000)
    largest(1000, asked, climb=True, checks=64)
    assert set(range(1, 9)) <= set(asked.levels)
