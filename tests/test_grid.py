"""Grids: products in order, ranges, and constraints that compare and do nothing else."""

import pytest

from passcal.errors import SpecError
from passcal.grid import grid_rows


def test_a_product_in_order():
    """The last key varies fastest; a single value is a list of one; names lose their place."""
    rows = grid_rows({"engine.a": [1, 2], "workload.b": ["x", "y"], "deployment.c": 7, "timing": "t"})
    assert [tuple(row.values()) for row in rows] == [
        (1, "x", 7, "t"),
        (1, "y", 7, "t"),
        (2, "x", 7, "t"),
        (2, "y", 7, "t"),
    ]
    assert list(rows[0]) == ["a", "b", "c", "timing"]


def test_parts_of_a_deployment_keep_their_names():
    """With the place before them or without; constraints may compare them."""
    grid = {
        "prefill.a": [1, 2],
        "deployment.decode.a": [1, 2],
        "link.b": 3,
        "deployment.kind": "disaggregated",
        "constraints": ["prefill.a <= decode.a", "deployment.decode.a < link.b"],
    }
    rows = grid_rows(grid)
    assert [(row["prefill.a"], row["decode.a"]) for row in rows] == [(1, 1), (1, 2), (2, 2)]
    assert list(rows[0]) == ["prefill.a", "decode.a", "link.b", "kind"]
    for key in ("engine.prefill.a", "prefill", "prefill.", "deployment.prefill.a.b", "deployment.other.a"):
        with pytest.raises(SpecError, match="must be timing, or start with"):
            grid_rows({key: [1]})


RANGES = [
    ({"from": 1, "to": 7, "step": 3}, [1, 4, 7]),
    ({"from": 1, "to": 6, "step": 3}, [1, 4]),
    ({"from": 0, "to": 0, "step": 3}, [0]),
    ({"from": 0.1, "to": 0.3, "step": 0.1}, [0.1, 0.2, 0.3]),
    ({"from": 512, "to": 4096, "factor": 2}, [512, 1024, 2048, 4096]),
]


@pytest.mark.parametrize(("given", "values"), RANGES)
def test_ranges_hold_both_ends(given, values):
    found = [row["a"] for row in grid_rows({"engine.a": given})]
    assert found == pytest.approx(values) and list(map(type, found)) == list(map(type, values))


CONSTRAINTS = [
    ("a >= b", lambda a, b: a >= b),
    ("engine.a < b", lambda a, b: a < b),
    ("2*a<=b", lambda a, b: 2 * a <= b),
    ("a * 2 != 3 * b", lambda a, b: 2 * a != 3 * b),
    ("a == 3", lambda a, b: a == 3),
    ("2 > b", lambda a, b: b < 2),
    ("a > 1e-6", lambda a, b: True),
]


@pytest.mark.parametrize(("text", "holds"), CONSTRAINTS)
def test_constraints(text, holds):
    pairs = [(a, b) for a in range(1, 7) for b in range(1, 7)]
    rows = grid_rows({"engine.a": list(range(1, 7)), "engine.b": list(range(1, 7)), "constraints": [text]})
    assert [(row["a"], row["b"]) for row in rows] == [pair for pair in pairs if holds(*pair)]


@pytest.mark.parametrize("text", ["a", "a < b < 2", "a + b < 3", "a * b < 3", "a.real < 3", "f(a) < 3", "a <", 7])
def test_nothing_else_is_read(text):
    with pytest.raises(SpecError, match=r"grid\.constraints\.0"):
        grid_rows({"engine.a": [1], "engine.b": [2], "constraints": [text]})


def test_too_many():
    with pytest.raises(SpecError, match="at most 10,000,000"):
        grid_rows({f"engine.{name}": list(range(1000)) for name in "abc"})
