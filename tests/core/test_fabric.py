"""Transfers (D3): the laws of the fabric alone, and figures of whole runs in which only the fabric takes time."""

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import passcal as pc
from passcal.scenario import answer

ROOT = Path(__file__).parents[2]
FREE = {"kind": "linear", "prefill": [0.0, 0.0, 0.0, 0.0], "decode": [0.0, 0.0, 0.0]}
GB = {"gb_per_s": 1.0, "efficiency": 1.0, "kv_bytes_per_token": 1_000_000}  # a token takes 1 ms


def sent(
    rows: list[tuple[float, int]], link: dict[str, Any], prefix: int = 0, workers: tuple[int, int] = (1, 1)
) -> list[dict[str, Any]]:
    """Requests of one token, shown when it has arrived; prefill takes no time."""
    requests = [{"dispatch_ms": at, "isl": isl, "prefix": prefix, "osl": 1} for at, isl in rows]
    apart = {
        "kind": "disaggregated",
        "decode": {"backend": "vllm", "engine": {}, "timing": FREE},
        "link": link,
        "first_token": "decode",
        "prefill_workers": workers[0],
        "decode_workers": workers[1],
    }
    asked = {"name": "sent", "backend": "vllm", "engine": {"max_num_batched_tokens": 10**6}, "timing": FREE}
    return answer(asked | {"deployment": apart, "workload": {"mode": "replay", "requests": requests}})["requests"]


def lasting(answers: list[dict[str, Any]]) -> list[float]:
    """How long the transfers took."""
    return [one["transfer_done_ms"] - one["transfer_start_ms"] for one in answers]


@pytest.mark.slow
def test_the_laws_of_the_fabric():
    """Uncompiled, in a process of its own."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/core/laws_of_the_fabric.py"]
    environment = os.environ | {"PASSCAL_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:]
    assert done.stdout.startswith("." * 7)


def test_a_prompt_adds_its_bytes():
    (one,) = sent([(0.0, 128)], GB)
    assert one["token_ms"] == [128.0] == [one["transfer_done_ms"]]


def test_missing_tokens_alone_are_sent():
    link = GB | {"kv_bytes_per_token": 1000}
    assert lasting(sent([(0.0, 120)], link | {"transfer": "missing"}, prefix=100)) == [pytest.approx(0.02, rel=1e-12)]
    assert lasting(sent([(0.0, 120)], link, prefix=100)) == [pytest.approx(0.12, rel=1e-12)]


def test_a_latency_takes_no_bandwidth():
    assert lasting(sent([(0.0, 100)], GB | {"latency_ms": 3.0})) == [103.0]
    assert lasting(sent([(0.0, 100)], GB | {"latency_ms": 3.0, "kv_bytes_per_token": 0})) == [3.0]
    assert lasting(sent([(0.0, 100), (0.0, 100)], GB | {"latency_ms": 300.0})) == [500.0, 500.0]


def test_efficiency_is_of_the_nominal_bandwidth():
    assert lasting(sent([(0.0, 100)], GB | {"efficiency": 0.5})) == [200.0]


def test_two_into_one_ingress_take_twice_as_long():
    assert lasting(sent([(0.0, 100), (0.0, 100)], GB, workers=(2, 1))) == [200.0, 200.0]
    assert lasting(sent([(0.0, 100), (0.0, 100)], GB, workers=(1, 2))) == [200.0, 200.0]


def test_disjoint_pairs_do_not_touch():
    assert lasting(sent([(0.0, 100), (0.0, 70)], GB, workers=(2, 2))) == [100.0, 70.0]


def test_a_later_flow_shares_what_is_left():
    """60 ms alone, 80 ms of halves, and the later one's last 60 ms alone."""
    first, second = sent([(0.0, 100), (60.0, 100)], GB)
    assert first["transfer_done_ms"] == 140.0
    assert second["transfer_done_ms"] == 200.0


def test_the_tightest_end_is_fixed_first():
    """Three flows leave worker 0, and three enter worker 0 there: a third each. The fifth, between the others, has two thirds."""
    answers = sent([(0.0, 100)] * 5, GB, workers=(2, 2))
    assert [(one["engine"], one["decode_engine"] - 2) for one in answers] == [(0, 0), (1, 1), (0, 1), (1, 0), (0, 0)]
    assert lasting(answers) == pytest.approx([300.0, 150.0, 300.0, 300.0, 300.0], rel=1e-12)


def test_one_transfer_at_a_time_is_a_queue():
    answers = sent([(0.0, 10), (0.0, 20), (1.0, 30)], GB | {"max_transfers_per_worker": 1})
    assert [one["transfer_start_ms"] for one in answers] == [0.0, 10.0, 30.0]
    assert [one["transfer_done_ms"] for one in answers] == [10.0, 30.0, 60.0]
    assert all(one["transfer_done_ms"] <= other["transfer_start_ms"] for one, other in pairwise(answers))


@pytest.mark.slow
def test_many_flows_cost_hardly_more_than_linear_time():
    """All under way at once, over four pairs of workers; the best of three runs each."""

    def seconds(flows: int) -> float:
        rows = [(0.0, 100 + 37 * n % 9001, 1) for n in range(flows)]
        apart = pc.Disaggregated(
            prefill=pc.Vllm(max_num_batched_tokens=10**9, max_num_seqs=10**5),
            decode=pc.Vllm(),
            prefill_workers=2,
            decode_workers=2,
            link=pc.Link(gb_per_s=1.0, kv_bytes_per_token=1000),
            first_token="decode",
        )
        took = []
        for _ in range(3):
            begun = perf_counter()
            pc.evaluate(pc.Workload.replay(rows), apart, pc.LinearTiming((1.0,), (1.0,)))
            took.append(perf_counter() - begun)
        return min(took)

    seconds(100)
    assert seconds(16_000) < 3 * 8 * max(seconds(2_000), 0.01)
