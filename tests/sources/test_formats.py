"""What can go wrong with a file, asked of every reader: each kind is read right, or refused with file, line and rule."""

import gzip
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from passcal.errors import TraceError
from passcal.sources.readers import read_trace
from tests.sources.traces.formats import FIELDS, FORMATS, Format, Row

ROWS: list[Row] = [(0.0, 700, 3), (1000.0, 600, 2), (2500.0, 520, 4)]
HUGE = "9" * 30


@pytest.fixture(params=FORMATS)
def form(request: pytest.FixtureRequest) -> Format:
    return FORMATS[request.param]


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], list[tuple[float, int, int]]]:
    """The rows that a file with this content holds."""

    def reading(content: bytes) -> list[tuple[float, int, int]]:
        path = tmp_path / "trace.dat"
        path.write_bytes(content)
        frame = read_trace(path)
        assert list(frame.columns) == ["dispatch_ms", "isl", "prefix", "osl"]
        return list(frame[["dispatch_ms", "isl", "osl"]].itertuples(index=False, name=None))

    return reading


Read = Callable[[bytes], list[tuple[float, int, int]]]


def refused(read: Read, content: bytes, where: str, rule: str) -> None:
    """Refused in one line that names the file, the place and the rule."""
    with pytest.raises(TraceError) as caught:
        read(content)
    message = str(caught.value)
    assert len(message) < 200 and message.isprintable()
    assert f"trace.dat{where}: " in message, message
    assert rule in message, message


def place(form: Format, row: int) -> str:
    """Where a refusal says that a row stands."""
    return f", {form.unit} {form.first + row}"


def test_as_it_should_be(form: Format, read: Read):
    assert read(form.write(ROWS, FIELDS)) == ROWS


def test_byte_order_mark(form: Format, read: Read):
    assert read(b"\xef\xbb\xbf" + form.write(ROWS, FIELDS)) == ROWS


def test_windows_line_ends(form: Format, read: Read):
    assert read(form.write(ROWS, FIELDS).replace(b"\n", b"\r\n")) == ROWS


def test_tabs(form: Format, read: Read):
    """Between the fields, or between the tokens of JSON."""
    content = form.write(ROWS, FIELDS)
    changed = (
        content.replace(b", ", b",\t").replace(b": ", b":\t")
        if content.startswith(b"{")
        else content.replace(b",", b"\t")
    )
    assert changed != content and read(changed) == ROWS


def test_gzip(form: Format, read: Read):
    assert read(gzip.compress(form.write(ROWS, FIELDS))) == ROWS
    refused(read, gzip.compress(form.write(ROWS, FIELDS))[:-9], "", "gzip stream is cut short")


def test_cut_short(form: Format, read: Read):
    """Within the last row."""
    content = form.write(ROWS, FIELDS)
    if form.whole:
        refused(read, content[:-20], ", line 1", "not one whole JSON object")
    else:
        cut = content[: content.rindex(b",")] if not content.startswith(b"{") else content[:-10]
        refused(read, cut, place(form, 2), "not one whole JSON object" if content.startswith(b"{") else "2 fields")


@pytest.mark.parametrize("field", FIELDS)
def test_missing_column(form: Format, read: Read, field: str):
    content = form.write(ROWS, [name for name in FIELDS if name != field])
    with pytest.raises(TraceError, match=r"missing|must be a list|no time column") as caught:
        read(content)
    assert "trace.dat" in str(caught.value) and len(str(caught.value)) < 200
    if field == "osl":
        assert form.osl in str(caught.value)


@pytest.mark.parametrize("field", FIELDS)
def test_column_given_twice(form: Format, read: Read, field: str):
    """It is not known which one is meant."""
    content = form.write(ROWS, [*FIELDS, field])
    refused(read, content, ", line 1", "repeated" if content.startswith(b"{") else "appears 2 times")


@pytest.mark.parametrize(
    ("row", "rule"),
    [
        (("NaN", 9, 2), "must be a"),
        ((5.0, "NaN", 2), "must be a finite number"),
        ((5.0, 9, -2), "osl must be >= 1"),
        ((5.0, -9, 2), "isl must be >= 1"),
        ((5.0, 9, HUGE), "osl must be <= 2147483647"),
        ((5.0, HUGE, 2), "isl must be <= 2147483647"),
        ((5.0, 9, "2.5"), "osl must be an integer"),
        ((5.0, 9, '"2"'), "must be a finite number"),
        ((HUGE, 9, 2), "must be"),
        (("-1", 9, 2), "must be"),
    ],
    ids=lambda value: "-".join(str(cell)[:4] for cell in value) if isinstance(value, tuple) else "",
)
def test_a_bad_value(form: Format, read: Read, row: Row, rule: str):
    """Named with its place, whichever the reader; a quoted number is one only to CSV."""
    content = form.write([*ROWS[:2], row, ROWS[2]], FIELDS)
    if row[2] == '"2"' and not content.startswith(b"{"):
        assert read(content)
        return
    refused(read, content, place(form, 2), rule)


def test_out_of_order(form: Format, read: Read, tmp_path: Path):
    assert read(form.write([ROWS[k] for k in (1, 2, 0)], FIELDS)) == ROWS
    assert any("sorted by time" in note for note in read_trace(tmp_path / "trace.dat").attrs["notes"])


def test_ids_given_twice(form: Format, read: Read):
    """Names must differ where there are any; without names two equal rows are two requests."""
    if form.ids:
        content = form.write(ROWS, FIELDS).replace(b'"r2"', b'"r0"').replace(b'"s2"', b'"s0"')
        refused(read, content, place(form, 2), "must be there once" if b'"r0"' in content else "is on line 1 too")
    else:
        assert read(form.write([ROWS[0], ROWS[0], ROWS[1]], FIELDS)) == [ROWS[0], ROWS[0], ROWS[1]]


def test_nothing_in_it(form: Format, read: Read):
    refused(read, b"", "", "empty")
    content = form.write([], FIELDS)
    with pytest.raises(TraceError, match=r"no rows|empty|no request succeeded"):
        read(content)


def test_ticks_are_found_and_spread(form: Format, tmp_path: Path):
    """Coarse times are the same problem in every format."""
    path = tmp_path / "trace.dat"
    path.write_bytes(form.write([(3000.0 * (k // 3), 600, 2) for k in range(15)], FIELDS))
    assert any("5 distinct instants, 3000 ms apart" in note for note in read_trace(path).attrs["notes"])
    assert list(read_trace(path, spread="uniform")["dispatch_ms"]) == [1000.0 * k for k in range(15)]


@pytest.mark.slow
def test_a_million_rows(form: Format, read: Read, tmp_path: Path):
    count = 1_000_000
    path = tmp_path / "trace.dat"
    path.write_bytes(form.write([(8.0 * k, 600 + k % 7, 1 + k % 5) for k in range(count)], FIELDS))
    began = time.perf_counter()
    frame = read_trace(path)
    assert time.perf_counter() - began < 60
    numbers = np.arange(count)
    assert len(frame) == count and (frame["isl"] == 600 + numbers % 7).all() and (frame["osl"] == 1 + numbers % 5).all()
    np.testing.assert_allclose(frame["dispatch_ms"], 8.0 * numbers)
