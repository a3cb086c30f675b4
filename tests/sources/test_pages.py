"""Page ids: carried beside the frame, by its index, and turned into a prefix column."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from passcal.errors import SpecError, TraceError
from passcal.sources.readers import read_mooncake, read_trace, with_prefix

DATA = Path(__file__).parents[1] / "data"
MOONCAKE = DATA / "mooncake_conversation_head.jsonl"


def mooncake(folder: Path, rows: list[tuple[float, int, object]]) -> Path:
    """A trace of these rows (timestamp, input_length, hash_ids)."""
    path = folder / "trace.jsonl"
    keys = ("timestamp", "input_length", "hash_ids")
    path.write_text(
        "".join(json.dumps({**dict(zip(keys, row, strict=True)), "output_length": 2}) + "\n" for row in rows)
    )
    return path


def test_ids_are_those_of_the_file():
    written = [json.loads(line)["hash_ids"] for line in MOONCAKE.read_text().splitlines()]
    pages = read_trace(MOONCAKE).attrs["pages"]
    assert [part.tolist() for part in np.split(pages.ids, pages.offsets[1:-1])] == written
    assert pages.page_size == 512 and pages.sessions is None


def test_ids_follow_their_row_when_rows_are_sorted(tmp_path: Path):
    frame = read_mooncake(mooncake(tmp_path, [(9, 600, [1, 2]), (5, 1024, [3, 4]), (7, 512, [5])]))
    pages = frame.attrs["pages"]
    assert pages.ids.tolist() == [3, 4, 5, 1, 2] and pages.counts.tolist() == [2, 1, 2]
    assert list(frame["isl"]) == [1024, 512, 600]


def test_the_last_page_may_be_left_out(tmp_path: Path):
    """Where only full pages have ids."""
    frame = read_mooncake(mooncake(tmp_path, [(0, 600, [1]), (1, 600, [1, 2]), (2, 300, []), (3, 1024, [1, 2])]))
    assert frame.attrs["pages"].counts.tolist() == [1, 2, 0, 2]


def test_a_trace_without_ids_carries_none(tmp_path: Path):
    frame = read_mooncake(mooncake(tmp_path, [(0, 600, [])]))
    assert "pages" not in frame.attrs and not frame.attrs["notes"]
    with pytest.raises(SpecError, match="no page ids"):
        with_prefix(frame, pc.PrefixOracle())


@pytest.mark.parametrize(
    ("isl", "ids", "rule"),
    [
        (600, [1, 2, 3], "hash_ids has 3 ids, must be 1 pages of 512 for isl 600, and one if a part is left"),
        (1500, [1], "hash_ids has 1 ids, must be 2 pages of 512"),
        (512, [1, 2], "hash_ids has 2 ids, must be 1 pages"),
        (600, "1, 2", "hash_ids is '1, 2', must be a list of whole numbers"),
        (600, None, "hash_ids is None, must be a list"),
        (600, [1, 2.5], "must be a list of whole numbers below 2^63"),
        (600, [1, True], "must be a list of whole numbers"),
        (600, [1, "2"], "must be a list of whole numbers"),
        (600, [1, 2**63], "must be a list of whole numbers below 2^63"),
        (600, [1, [2]], "must be a list of whole numbers"),
    ],
)
def test_ids_are_checked(tmp_path: Path, isl: int, ids: object, rule: str):
    """One page more or less than the prompt has is another prompt's; and of two faults the earlier row is named."""
    path = mooncake(tmp_path, [(0, 600, [1, 2]), (1, isl, ids), (2, 0, [])])
    with pytest.raises(TraceError) as caught:
        read_mooncake(path)
    message = str(caught.value)
    assert ", line 2: hash_ids " in message and rule in message and len(message) < 200


def test_hits_become_the_prefix_of_a_replay(tmp_path: Path):
    rows = [(0, 1100, [1, 2, 3]), (5, 1200, [1, 2, 4]), (9, 700, [1, 5])]
    frame = with_prefix(read_mooncake(mooncake(tmp_path, rows)), pc.PrefixOracle(block_size=16))
    assert list(frame["prefix"]) == [0, 1024, 512]
    (note,) = frame.attrs["notes"]
    assert note.startswith("prefix: 51.2% of prompt tokens hit in pages of 512, PrefixOracle(")
    workload = pc.Workload.replay(frame)
    report = pc.evaluate_replay(workload, pc.Vllm(), pc.LinearTiming())
    assert list(report.requests()["prefix"]) == [0, 1024, 512]
    assert note in report.notes


def test_rows_may_be_taken_and_shuffled(tmp_path: Path):
    """The index says whose ids are whose; hits go by time."""
    whole = read_trace(MOONCAKE)
    oracle = pc.PrefixOracle(capacity_pages=100)
    some = whole[whole["isl"] < 9000]
    wanted = oracle.hits(whole.attrs["pages"].take(some.index), some["isl"])
    assert (with_prefix(some, oracle)["prefix"] == wanted).all()
    mixed = some.sample(frac=1.0, random_state=3)
    assert with_prefix(mixed, oracle)["prefix"].sort_index().equals(with_prefix(some, oracle)["prefix"])
    assert (whole["prefix"] == 0).all()


def test_a_lost_index_is_refused():
    whole = read_trace(MOONCAKE)
    shifted = whole.iloc[5:].reset_index(drop=True)
    with pytest.raises(SpecError, match="does not fit its page ids"):
        with_prefix(shifted, pc.PrefixOracle())
    with pytest.raises(SpecError, match="must number the trace's 60 rows"):
        with_prefix(whole.set_index(whole.index + 1), pc.PrefixOracle())
    with pytest.raises(SpecError, match="no rows"):
        with_prefix(whole.head(0), pc.PrefixOracle())
    with pytest.raises(SpecError, match="no page ids"):
        with_prefix(pd.DataFrame(whole.to_dict("list")), pc.PrefixOracle())


def test_a_table_has_none():
    with pytest.raises(SpecError, match="no page ids"):
        with_prefix(read_trace(DATA / "azure_code_head.csv"), pc.PrefixOracle())


def test_spread_changes_times_and_not_ids():
    plain, spread = read_mooncake(MOONCAKE), read_mooncake(MOONCAKE, spread="uniform")
    assert (plain.attrs["pages"].ids == spread.attrs["pages"].ids).all()
