"""Mixtures: rows of a weight that is spread evenly from a low to a high value."""

from math import floor
from typing import Any

from passcal.core.compiled import jit

__all__ = ["BINS", "add", "level", "levels", "point_levels", "put", "run_level", "sort_atoms"]

BINS, HALVINGS = 64, 60


@jit
def put(atoms: Any, at: int, weight: float, low: float, high: float) -> None:
    """Row `at` of a mixture: this weight, spread evenly from low to high."""
    atoms[at, 0], atoms[at, 1], atoms[at, 2] = weight, low, high


@jit
def add(atoms: Any, count: int, weight: float, value: float) -> int:
    """One value more, behind so many rows, or in the last one if that is of the same value; how many rows there are."""
    if count > 0 and abs(atoms[count - 1, 1] - value) <= 1e-12 * value:
        atoms[count - 1, 0] += weight
        return count
    put(atoms, count, weight, value, value)
    return count + 1


@jit
def sort_atoms(atoms: Any, count: int) -> None:
    """Rows by their middle, by insertion at shorter and shorter distances."""
    distance = 1
    while distance * 9 < count:
        distance = distance * 3 + 1
    while distance > 0:
        for a in range(distance, count):
            weight, low, high, b = atoms[a, 0], atoms[a, 1], atoms[a, 2], a
            while b >= distance and atoms[b - distance, 1] + atoms[b - distance, 2] > low + high:
                put(atoms, b, atoms[b - distance, 0], atoms[b - distance, 1], atoms[b - distance, 2])
                b -= distance
            put(atoms, b, weight, low, high)
        distance //= 3


@jit
def weight_of(atoms: Any, count: int) -> float:
    """Of all rows."""
    total = 0.0
    for a in range(count):
        total += atoms[a, 0]
    return total


@jit
def level(atoms: Any, count: int, share: float) -> float:
    """The quantile of a sorted mixture."""
    want, below = share * weight_of(atoms, count) * (1.0 - 1e-9), 0.0
    for a in range(count):
        weight = atoms[a, 0]
        if weight > 0.0 and below + weight >= want:
            return atoms[a, 1] + max(want - below, 0.0) / weight * (atoms[a, 2] - atoms[a, 1])
        below += weight
    return atoms[count - 1, 2]


@jit
def levels(atoms: Any, count: int, shares: Any, out: Any, at: int) -> None:
    """Ascending quantiles of a sorted mixture, into `out` from `at` on."""
    total, below, a = weight_of(atoms, count) * (1.0 - 1e-9), 0.0, 0
    for share in range(len(shares)):
        want = shares[share] * total
        while a < count - 1 and (atoms[a, 0] == 0.0 or below + atoms[a, 0] < want):
            below += atoms[a, 0]
            a += 1
        value, spread = atoms[a, 1], atoms[a, 2] - atoms[a, 1]
        if spread != 0.0:
            inside = max(want - below, 0.0) / atoms[a, 0] if atoms[a, 0] > 0.0 else 1.0
            value += min(inside, 1.0) * spread
        out[at + share] = value


@jit
def run_level(atoms: Any, share: float) -> float:
    """The quantile of a mixture whose rows are evenly spaced values, their number the fourth column: by halving, since rows overlap.

    Rows that lie on one side of what is left are counted once and put behind the others.
    """
    low, high, total = atoms[0, 1], atoms[0, 2], 0.0
    for a in range(len(atoms)):
        low, high, total = min(low, atoms[a, 1]), max(high, atoms[a, 2]), total + atoms[a, 0]
    want, below, count = share * total * (1.0 - 1e-9), 0.0, len(atoms)
    low *= 1.0 - 1e-9
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        if below + up_to(atoms, count, middle) >= want:
            high = middle
        else:
            low = middle
        a = 0
        while a < count:
            if atoms[a, 1] > high or atoms[a, 2] <= low:
                below += atoms[a, 0] if atoms[a, 2] <= low else 0.0
                count -= 1
                swap(atoms, a, count)
            else:
                a += 1
    return high


@jit
def up_to(atoms: Any, count: int, value: float) -> float:
    """The weight of values up to this one, of so many rows."""
    weight = 0.0
    for a in range(count):
        first, last, values = atoms[a, 1], atoms[a, 2], atoms[a, 3]
        if value >= last:
            weight += atoms[a, 0]
        elif value >= first:
            weight += atoms[a, 0] * (floor((value - first) / (last - first) * (values - 1.0) + 1e-9) + 1.0) / values
    return weight


@jit
def swap(atoms: Any, one: int, other: int) -> None:
    """Two rows."""
    for column in range(4):
        atoms[one, column], atoms[other, column] = atoms[other, column], atoms[one, column]


@jit
def point_levels(atoms: Any, count: int, shares: Any, out: Any, at: int) -> None:
    """Ascending quantiles of values that are not sorted, into `out` from `at` on; `atoms` has room for as many rows again, and `BINS`.

    Of many, only those are sorted that lie as near to a quantile as one of some bins is wide.
    """
    if count == 1:
        for share in range(len(shares)):
            out[at + share] = atoms[0, 1]
        return
    if count <= BINS:
        sort_atoms(atoms, count)
        levels(atoms, count, shares, out, at)
        return
    low, width = fill_bins(atoms, count)
    want, below, b, sorted_bin, rows = weight_of(atoms, count) * (1.0 - 1e-9), 0.0, 0, -1, 0
    bins, near = atoms[count : count + BINS], atoms[count + BINS :]
    for share in range(len(shares)):
        while b < BINS - 1 and (bins[b, 0] == 0.0 or below + bins[b, 0] < shares[share] * want):
            below += bins[b, 0]
            b += 1
        if b != sorted_bin:
            sorted_bin, rows = b, 0
            for a in range(count):
                if bin_of(atoms[a, 1], low, width) == b:
                    put(near, rows, atoms[a, 0], atoms[a, 1], atoms[a, 1])
                    rows += 1
            sort_atoms(near, rows)
        total, a = below, 0
        while a < rows - 1 and total + near[a, 0] < shares[share] * want:
            total += near[a, 0]
            a += 1
        out[at + share] = near[a, 1]


@jit
def fill_bins(atoms: Any, count: int) -> tuple[float, float]:
    """Weights of `BINS` bins, behind the rows; where they begin, and how wide each is."""
    low = high = atoms[0, 1]
    for a in range(1, count):
        low, high = min(low, atoms[a, 1]), max(high, atoms[a, 1])
    width = (high - low) / BINS
    for b in range(BINS):
        atoms[count + b, 0] = 0.0
    for a in range(count):
        atoms[count + bin_of(atoms[a, 1], low, width), 0] += atoms[a, 0]
    return low, width


@jit
def bin_of(value: float, low: float, width: float) -> int:
    """The bin that a value lies in."""
    return min(int((value - low) / width), BINS - 1) if width > 0.0 else 0
