"""Trace readers: a corpus of odd files read right or refused by line and rule, real excerpts exactly, whole traces."""

import csv
import gzip
import io
import json
import sys
import time
from datetime import datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from passcal.errors import SpecError, TraceError, Unsupported
from passcal.sources.readers import read_azure, read_mooncake, read_table, read_trace
from passcal.sources.readers.delimited import delimited
from passcal.sources.readers.source import Source
from tests.sources.traces.corpus import GROUP, READ, REFUSED, TABLE, moon
from tests.sources.traces.formats import FIELDS, FORMATS, Row

SOUND: list[Row] = [(0.0, 700, 3), (1000.0, 600, 2), (2500.0, 520, 4)]
ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
FULL = ROOT.parent / "shared" / "data" / "traces"


def write(folder: Path, content: bytes, name: str = "trace.txt") -> Path:
    """A file with this content."""
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.filterwarnings("error")
def test_refused_by_file_line_and_rule(tmp_path: Path, case: str) -> None:
    content, line, rule = REFUSED[case]
    path = write(tmp_path, content, "a" * 100 + ".txt")
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    message = str(caught.value)
    assert message.startswith("..." + "a" * 43 + ".txt" + (f", line {line}: " if line else ": "))
    assert rule in message
    assert len(message) < 200
    assert message.isprintable()


@pytest.mark.parametrize("case", READ)
@pytest.mark.filterwarnings("error")
def test_read_right(tmp_path: Path, case: str) -> None:
    content, rows = READ[case]
    frame = read_trace(write(tmp_path, content))
    assert list(frame.columns) == ["dispatch_ms", "isl", "prefix", "osl"]
    assert list(frame.itertuples(index=False, name=None)) == rows
    assert [str(kind) for kind in frame.dtypes] == ["float64", "int64", "int64", "int64"]


def test_paths_that_are_no_files(tmp_path: Path) -> None:
    for path, rule in ((tmp_path, "is a directory"), (tmp_path / "none.csv", "no such file"), ("\0", "cannot be read")):
        with pytest.raises(TraceError, match=rule):
            read_trace(path)
    with pytest.raises(TraceError, match="not a sound gzip stream"):
        read_trace(write(tmp_path, TABLE + b"0,5,1\n", "plain.csv.gz"))


def test_arguments_are_checked(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE + b"0,5,1\n")
    with pytest.raises(SpecError, match="format is 'csv', must be one of auto, azure, mooncake, table"):
        read_trace(path, format="csv")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="spread is 'random', must be one of none, uniform"):
        read_trace(path, spread="random")  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="line 1: unknown column 'dispatch_ms'; known: TIMESTAMP"):
        read_trace(path, format="azure")


def test_groups_are_labels_and_blank_is_missing(tmp_path: Path) -> None:
    frame = read_table(write(tmp_path, GROUP + b'0,5,1,"a, b",3\n1,5,1,007,9\n2,5,1,,0\n'))
    assert list(frame["prefix_group"].iloc[:2]) == ["a, b", "007"]
    assert list(frame["prefix_group"].isna()) == [False, False, True]
    assert list(frame["prefix_len"]) == [3, 9, 0]


def test_notes_say_what_was_changed(tmp_path: Path) -> None:
    assert read_table(write(tmp_path, TABLE + b"0,5,1\n1,5,1\n")).attrs["notes"] == []
    # One late row is one note's row, however many positions it shifts.
    frame = read_table(write(tmp_path, TABLE + b"5,5,1\n6,5,1\n7,5,1\n2,5,1\n"))
    assert frame.attrs["notes"] == [
        "1 of 4 rows were earlier than a row before them: sorted by time",
        "the first request is at 2 ms: the file's own clock is kept",
    ]
    (note,) = read_table(write(tmp_path, READ["epoch"][0].replace(b"1700000001", b"1700000002"))).attrs["notes"][1:]
    assert note.startswith("times count from an epoch: 1700000000000.000 ms taken off")


def test_ticks_are_reported_and_spread(tmp_path: Path) -> None:
    # Four ticks of 3 s that wander by 1 ms, with one row off the ticks.
    times = [0, 0, 0, 1500, 3000, 3000, 5999, 5999, 9000, 9000, 9000, 9000]
    path = write(tmp_path, b"".join(moon(str(t), isl=str(i + 1)) for i, t in enumerate(times)))
    assert read_mooncake(path).attrs["notes"] == [
        "91.7% of 12 rows share their instant: 5 distinct instants, 3000 ms apart (median)"
    ]
    frame = read_mooncake(path, spread="uniform")
    assert frame.attrs["notes"][1] == 'spread="uniform": rows of a tick dealt out evenly over 3000 ms'
    assert list(frame["dispatch_ms"]) == [0, 1000, 1500, 2000, 3000, 4499.5, 5999, 7499, 9000, 9750, 10500, 11250]
    assert list(frame["isl"]) == [1, 2, 4, 3, 5, 6, 7, 8, 9, 10, 11, 12]


def test_bursts_at_irregular_times_are_no_ticks(tmp_path: Path) -> None:
    path = write(tmp_path, TABLE + b"".join(b"%d,5,1\n" % t for t in (0, 0, 7, 7, 100, 100, 950, 950, 951)))
    frame = read_table(path, spread="uniform")
    assert list(frame["dispatch_ms"]) == [0, 0, 7, 7, 100, 100, 950, 950, 951]
    assert frame.attrs["notes"] == [
        "88.9% of 9 rows share their instant: 5 distinct instants",
        'spread="uniform": no tick found, no time changed',
    ]


def test_parquet_reads_like_csv(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(
        {"arrival_s": [0.5, 0.0], "isl": [5, 6], "osl": [1, 2], "prefix_group": [3, None], "prefix_len": [2, 0]}
    )
    frame["prefix_group"] = frame["prefix_group"].astype("Int64")
    frame.to_parquet(path := tmp_path / "trace.parquet")
    frame.to_csv(text := tmp_path / "trace.csv", index=False)
    pd.testing.assert_frame_equal(read_trace(path), read_trace(text), check_dtype=False)
    write(tmp_path, gzip.compress(path.read_bytes()), "trace.parquet.gz")
    pd.testing.assert_frame_equal(read_trace(tmp_path / "trace.parquet.gz"), read_trace(path))


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"isl": pd.array([5, None], "Int64")}, "row 2: isl is <NA>, must be a finite number"),
        ({"osl": [1.5, 1]}, "row 1: osl is 1.5, osl must be an integer"),
        ({"dispatch_ms": pd.to_datetime(["2024-01-01", "2024-01-02"])}, "row 1: dispatch_ms is 2024-01-01"),
        ({"isl": [True, True]}, "row 1: isl is True, must be a finite number"),
        ({"model": ["a", "b"]}, "line 1: unknown column 'model'"),
    ],
)
def test_parquet_refused_by_row(tmp_path: Path, change: dict[str, object], rule: str) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"dispatch_ms": [0.0, 1.0], "isl": [5, 6], "osl": [1, 2], **change}).to_parquet(
        path := tmp_path / "t.parquet"
    )
    with pytest.raises(TraceError) as caught:
        read_table(path)
    assert rule in str(caught.value)


def test_parquet_without_rows_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    pd.DataFrame({"dispatch_ms": [], "isl": [], "osl": []}).to_parquet(path := tmp_path / "t.parquet")
    with pytest.raises(TraceError, match="no rows; a trace needs at least one request"):
        read_table(path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unsupported, match=r"pip install 'passcal\[parquet\]'"):
        read_table(write(tmp_path, b"PAR1", "trace.parquet"))


@settings(deadline=None)
@given(st.text('1a,"\n ', max_size=24))
def test_what_is_accepted_reads_as_python_reads_it(body: str) -> None:
    source = Source("drawn.csv", f"x,y\n{body}".encode())
    try:
        rows = delimited(source, labels=["x", "y"])
    except TraceError:
        return
    assert (
        rows.frame.to_numpy().tolist() == list(csv.reader(io.StringIO(source.text.decode()), skipinitialspace=True))[1:]
    )


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(
        [content for content, _ in READ.values()] + [form.write(SOUND, FIELDS) for form in FORMATS.values()]
    ),
    st.integers(0, 10**6),
    st.integers(0, 3),
    st.binary(max_size=4),
)
def test_damage_is_refused_or_harmless(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, at: int, cut: int, paste: bytes
) -> None:
    at %= len(content)
    path = write(tmp_path_factory.getbasetemp(), content[:at] + paste + content[at + cut :], "damaged.txt")
    try:
        frame = read_trace(path)
    except TraceError as error:
        assert len(str(error)) < 200
        return
    assert frame["dispatch_ms"].is_monotonic_increasing
    assert (frame["isl"] > frame["prefix"]).all() and (frame["osl"] >= 1).all()


def azure_by_hand(path: Path) -> list[tuple[float, int, int, int]]:
    """The Azure file row by row with the standard library: 100 ns units from the first request."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    units = []
    for row in rows:
        second, fraction = row["TIMESTAMP"].split(".")
        units.append(int(datetime.fromisoformat(second + "+00:00").timestamp()) * 10**7 + int(fraction))
    return [
        ((unit - units[0]) / 10**4, int(row["ContextTokens"]), 0, int(row["GeneratedTokens"]))
        for unit, row in zip(units, rows, strict=True)
    ]


def mooncake_by_hand(path: Path) -> list[tuple[float, int, int, int]]:
    """The Mooncake file line by line."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [(row["timestamp"], row["input_length"], 0, row["output_length"]) for row in rows]


EXCERPTS = [
    ROOT / "examples/data/azure_conv_2000.csv",
    DATA / "azure_code_head.csv",
    DATA / "mooncake_conversation_head.jsonl",
]
WHOLE = [FULL / "azure_llm_2023_conv.csv", FULL / "azure_llm_2023_code.csv", FULL / "mooncake_conversation_head.jsonl"]


@pytest.mark.parametrize(
    "path", EXCERPTS + [pytest.param(path, marks=pytest.mark.slow) for path in WHOLE], ids=lambda path: path.name
)
def test_real_traces_exactly(path: Path) -> None:
    if not path.exists():
        pytest.skip("the whole traces are not part of the project")
    frame = read_trace(path)
    by_hand = mooncake_by_hand if path.suffix == ".jsonl" else azure_by_hand
    assert list(frame.itertuples(index=False, name=None)) == by_hand(path)
    reader = read_mooncake if path.suffix == ".jsonl" else read_azure
    pd.testing.assert_frame_equal(reader(path), frame)


def test_example_trace_is_as_described() -> None:
    frame = read_azure(EXCERPTS[0])
    assert len(frame) == 2000
    assert tuple(frame.iloc[0]) == (0, 374, 0, 44)
    assert frame.attrs["notes"] == []


def test_mooncake_excerpt_sits_on_ticks() -> None:
    frame = read_mooncake(EXCERPTS[2])
    assert frame.attrs["notes"] == [
        'prefix is 0 in every row: page ids stand in attrs["pages"], with_prefix turns them into hits',
        "100.0% of 60 rows share their instant: 6 distinct instants, 3000 ms apart (median)",
    ]
    spread = read_mooncake(EXCERPTS[2], spread="uniform")
    assert spread["dispatch_ms"].is_unique
    assert np.abs(spread["dispatch_ms"] - frame["dispatch_ms"]).max() < 3001
    pd.testing.assert_frame_equal(spread.drop(columns="dispatch_ms"), frame.drop(columns="dispatch_ms"))


def test_toolagent_excerpt_as_a_table(tmp_path: Path) -> None:
    path = DATA / "mooncake_toolagent_excerpt.csv"
    with pytest.raises(TraceError, match="line 1: unknown column 'timestamp_ms'"):
        read_trace(path)
    written = pd.read_csv(path)
    written.columns = pd.Index(["arrival_ms", "isl", "osl", "prefix_group", "prefix_len"])
    written["prefix_len"] *= 512
    written.to_csv(tmp_path / "table.csv", index=False)
    frame = read_trace(tmp_path / "table.csv")
    for name in ("isl", "osl", "prefix_group", "prefix_len"):
        assert list(frame[name]) == list(written[name])
    assert frame["dispatch_ms"].iloc[0] == 1178625
    assert "5 distinct instants, 3054.5 ms apart" in frame.attrs["notes"][0]


@pytest.mark.slow
def test_a_million_rows_in_seconds(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    count = 1_000_000
    written = pd.DataFrame(
        {
            "dispatch_ms": rng.random(count).cumsum(),
            "isl": rng.integers(1, 9999, count),
            "osl": rng.integers(1, 999, count),
        }
    )
    written.to_csv(path := tmp_path / "million.csv", index=False)
    began = time.perf_counter()
    frame = read_trace(path)
    assert time.perf_counter() - began < 10
    np.testing.assert_allclose(frame["dispatch_ms"], written["dispatch_ms"], rtol=1e-15)
    assert (frame["isl"] == written["isl"]).all() and (frame["osl"] == written["osl"]).all()
    with path.open("ab") as file:
        file.write(b"0,5,0\n")
    with pytest.raises(TraceError, match="line 1000002: osl is 0"):
        read_trace(path)
