"""Candidates of a configuration: the product of a grid's values that meets its constraints, or the rows of a file.

A constraint compares two terms, each a number, a column, or their product, as `max_num_batched_tokens >= 4 * max_num_seqs`; nothing else is run.
"""

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from passcal.deployments import PARTS
from passcal.errors import SpecError

__all__ = ["grid_rows"]

Row = dict[str, Any]
PLACES = ("engine", "workload", "deployment")
SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
CONSTRAINT = re.compile(r"\s*([\w.* +-]+?)\s*(<=|>=|==|!=|<|>)\s*([\w.* +-]+?)\s*")
MOST = 10_000_000


def grid_rows(section: Any) -> list[Row]:
    """Rows by column, of one grid or of a list of them; the last key varies fastest.

    Raises:
        SpecError: with the key's path.
    """
    grids = section if isinstance(section, list) else [section]
    return [row for at, grid in enumerate(grids) for row in rows_of(grid, f"grid.{at}" if len(grids) > 1 else "grid")]


def rows_of(grid: Any, path: str) -> Iterator[Row]:
    """Rows of one grid."""
    if not isinstance(grid, Mapping) or not (keys := [key for key in grid if key != "constraints"]):
        raise SpecError(f"{path}={grid!r:.40}: must have keys, as engine.max_num_seqs: [64, 128]")
    names = [column_name(key, path) for key in keys]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"{path}: {name} is given twice; keep one")
    values = [listed(grid[key], f"{path}.{key}") for key in keys]
    count = 1
    for some in values:
        count *= len(some)
    if count > MOST:
        raise SpecError(f"{path}: {count:,} candidates; at most {MOST:,}: give fewer values")
    written = grid.get("constraints") or []
    texts = written if isinstance(written, list) else [written]
    constraints = [constraint(text, names, f"{path}.constraints.{at}") for at, text in enumerate(texts)]
    for row in (dict(zip(names, chosen, strict=True)) for chosen in product(*values)):
        if all(holds(row) for holds in constraints):
            yield row


def column_name(key: Any, path: str) -> str:
    """`engine.max_num_seqs` to `max_num_seqs`; `timing` is a column itself, and what belongs to a part keeps its name: `prefill.max_num_seqs`."""
    if key == "timing":
        return "timing"
    place, _, name = str(key).partition(".")
    if place in PARTS:
        place, name = "deployment", str(key)
    part, _, option = name.rpartition(".")
    if (
        option
        and option not in PARTS
        and place in PLACES
        and part in (("", *PARTS) if place == "deployment" else ("",))
    ):
        return name
    raise SpecError(
        f"{path}.{key}: must be timing, or start with one of {', '.join((*PLACES, *PARTS))}, as engine.max_num_seqs"[
            :199
        ]
    )


def listed(given: Any, path: str) -> Sequence[Any]:
    """Values of a key: a list, a range, or a single one."""
    if not isinstance(given, Mapping):
        values = given if isinstance(given, list) else [given]
        if not values:
            raise SpecError(f"{path}=[]: there must be at least one value; add one")
        return values
    numbers = {name: value for name, value in given.items() if value is not None}
    if set(numbers) not in ({"from", "to", "step"}, {"from", "to", "factor"}) or not all(
        map(is_number, numbers.values())
    ):
        raise SpecError(f"{path}={given!r:.60}: a range has numbers from, to, and step or factor; correct it"[:199])
    first, last, by_step = numbers["from"], numbers["to"], "step" in numbers
    if first > last or (numbers["step"] <= 0 if by_step else numbers["factor"] <= 1 or first <= 0):
        raise SpecError(f"{path}={given!r:.60}: must go up, from below to, by a step above 0 or a factor above 1"[:199])
    if by_step and (last - first) / numbers["step"] > MOST:
        raise SpecError(f"{path}: more than {MOST:,} values; give a larger step")
    values = [first]
    while True:
        following = first + len(values) * numbers["step"] if by_step else values[-1] * numbers["factor"]
        if following > last * (1 + 1e-12):
            return values
        values.append(following)


def is_number(value: Any) -> bool:
    """And no boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def constraint(text: Any, names: Sequence[str], path: str) -> Callable[[Row], bool]:
    """What a row must meet."""
    found = CONSTRAINT.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise SpecError(f"{path}={text!r:.60}: must compare two terms, as max_num_batched_tokens >= 4 * max_num_seqs")
    left, sign, right = found.groups()
    first, second, compare = term(left, names, path), term(right, names, path), SIGNS[sign]
    return lambda row: bool(compare(first(row), second(row)))


def term(text: str, names: Sequence[str], path: str) -> Callable[[Row], Any]:
    """A number, a column, or their product."""
    factor, column = 1.0, None
    for part in text.split("*"):
        word = part.strip()
        word = word if word in names else word.partition(".")[2] if word.partition(".")[2] in names else word
        if word in names and column is None:
            column = word
            continue
        try:
            factor *= float(word)
        except ValueError:
            raise SpecError(
                f"{path}: {word!r:.40} is no number and no key of this grid; name one of {', '.join(names)}"[:199]
            ) from None
    return lambda row: factor if column is None else product_of(factor, row[column], f"{path}: {column}")


def product_of(factor: float, value: Any, path: str) -> Any:
    """A column's number, times a factor."""
    if not is_number(value):
        raise SpecError(f"{path}={value!r:.40}: is no number, so nothing can be compared with it; drop the constraint")
    return factor * value
