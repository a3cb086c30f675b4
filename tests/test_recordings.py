"""Schedules recorded from the real engine's scheduler classes: every first and last token, preemption and pass."""

import copy
from functools import cache
from pathlib import Path

import pytest

import passcal as pc
from tools.conformance.__main__ import main
from tools.conformance.adapters import asked
from tools.conformance.comparison import compare, differences
from tools.conformance.golden import LIMIT_BYTES
from tools.conformance.recordings import GOLDEN, RECORDED, Case, kinds, read

FILES = sorted(GOLDEN.glob("*.jsonl.gz"))
VLLM = GOLDEN / "vllm.jsonl.gz"
FULL = sorted(RECORDED.glob("vllm*.jsonl.gz"))
FULL_TRTLLM = sorted(RECORDED.glob("trtllm*.jsonl.gz"))
FULL_SGLANG = sorted(RECORDED.glob("sglang*.jsonl.gz"))
VLLM = GOLDEN / "vllm.jsonl.gz"


@cache
def cases(file: Path) -> list[Case]:
    """A file's cases, read once."""
    return list(read(file))


def departures(those: list[Case]) -> dict[str, tuple[str, ...]]:
    """What is wrong, by case."""
    return {outcome.name: outcome.found for outcome in map(compare, those) if outcome.found}


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name.split(".")[0])
def test_the_committed_subset(file: Path):
    those = cases(file)
    assert those
    assert all(compare(case).refused is None for case in those)
    assert not departures(those)


def test_the_subset_holds_every_kind():
    """A sweep over nothing would prove nothing."""
    found = {kind for file in FILES for case in cases(file) for kind in kinds(case)}
    assert found >= {
        *("vllm", "async", "sync", "closed", "open", "varied lengths", "preemption", "watermark", "long prompts"),
        *("chunking off", "few seats", "turnaround", "stagger"),
        *("trtllm", "maximum utilization", "static batch", "equal progress", "batch wait"),
        *(
            "sglang",
            "mixed chunk",
            "pages",
            "radix off",
            "stops possible",
            "longest prefix first",
            "shared prefix",
            "interval",
        ),
    }
    assert sum(file.stat().st_size for file in FILES) <= LIMIT_BYTES


def test_a_wrong_answer_is_seen():
    """Each thing that is compared is missed when it is wrong."""
    case = cases(VLLM)[0]
    report = pc.evaluate(*asked(case))
    assert not differences(case, report)
    for table, column in [
        ("requests", "first_ms"),
        ("requests", "done_ms"),
        ("requests", "preemptions"),
        ("passes", "end_ms"),
        ("passes", "prefill_tokens"),
        ("passes", "prefill_chunks"),
        ("passes", "decode_rows"),
    ]:
        wrong = copy.deepcopy(case)
        wrong[table][column][-1] += (
            1 if column not in ("first_ms", "done_ms", "end_ms") else 3e-6 * wrong[table][column][-1]
        )
        assert len(differences(wrong, report)) == 1, column
    del case["passes"]["end_ms"][-1]
    assert differences(case, report)
    cases.cache_clear()


@pytest.mark.slow
def test_the_command(capsys: pytest.CaptureFixture[str]):
    assert main([str(VLLM)]) == 0
    printed = capsys.readouterr().out
    count = len(cases(VLLM))
    assert f"{count}/{count}" in printed.replace(" ", "")
    assert "a second" in printed


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="the full set of recordings does not lie beside the checkout")
@pytest.mark.parametrize("file", FULL, ids=lambda file: file.name.split(".")[0])
def test_the_full_set(file: Path):
    """All cases without prefix cache run and agree."""
    plain = [case for case in cases(file) if "prefix cache" not in kinds(case)]
    assert len(plain) == {"vllm.jsonl.gz": 153, "vllm_random.jsonl.gz": 77}[file.name]
    assert all(compare(case).refused is None for case in plain)
    assert not departures(plain)


@pytest.mark.slow
@pytest.mark.skipif(not FULL_TRTLLM, reason="the full set of recordings does not lie beside the checkout")
@pytest.mark.parametrize("file", FULL_TRTLLM, ids=lambda file: file.name.split(".")[0])
def test_the_full_set_of_trtllm(file: Path):
    those = cases(file)
    assert len(those) == {"trtllm.jsonl.gz": 58, "trtllm_random.jsonl.gz": 30}[file.name]
    assert all(compare(case).refused is None for case in those)
    assert not departures(those)


@pytest.mark.slow
@pytest.mark.skipif(not FULL_SGLANG, reason="the full set of recordings does not lie beside the checkout")
@pytest.mark.parametrize("file", FULL_SGLANG, ids=lambda file: file.name.split(".")[0])
def test_the_full_set_of_sglang(file: Path):
    those = cases(file)
    assert len(those) == {"sglang.jsonl.gz": 80, "sglang_probes.jsonl.gz": 265, "sglang_random.jsonl.gz": 57}[file.name]
    assert all(compare(case).refused is None for case in those)
    assert not departures(those)


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="the full set of recordings does not lie beside the checkout")
def test_cached_cases_agree_or_are_refused():
    """What cannot be answered right must not be answered."""
    assert not departures([case for file in FULL for case in cases(file) if "prefix cache" in kinds(case)])
