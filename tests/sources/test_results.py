"""Saved results of benchmark tools: what was sent and what was measured, and what is left out."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.errors import TraceError
from passcal.sources.readers import read_results, read_trace

COLUMNS = ["dispatch_ms", "isl", "prefix", "osl", "measured_ttft_ms", "measured_e2e_ms"]
SENT = [(0.0, 700, 0, 3, 250.0, 750.0), (1500.0, 600, 0, 2, 100.0, 120.0), (1750.0, 520, 0, 1, 80.0, 80.0)]
START_S = 27536.5


def vllm(**changes: Any) -> dict[str, Any]:
    """The three requests and a failed one, as `vllm bench serve --save-detailed` lists them."""
    return {
        "backend": "vllm",
        "request_throughput": 1.2,
        "input_lens": [700, 600, 9, 520],
        "output_lens": [3, 2, 0, 1],
        "ttfts": [0.25, 0.1, 0.0, 0.08],
        "itls": [[0.2, 0.3], [0.02], [], []],
        "latencies": [0.75, 0.12, 0.0, 0.08],
        "start_times": [START_S, START_S + 1.5, START_S + 1.6, START_S + 1.75],
        "errors": ["", "", "Connection reset", ""],
        **changes,
    }


def guidellm(**changes: Any) -> dict[str, Any]:
    """The same in GuideLLM's report."""
    successful = [
        {
            "request_id": f"r{k}",
            "request_start_time": 1.7e9 + t / 1000,
            "prompt_tokens": isl,
            "output_tokens": osl,
            "time_to_first_token_ms": ttft,
            "request_latency": e2e / 1000,
            "inter_token_latency_ms": 1.0,
        }
        for k, (t, isl, _, osl, ttft, e2e) in enumerate(SENT)
    ]
    requests = {"successful": successful, "errored": [{"request_id": "x"}], "incomplete": [{}, {}], **changes}
    return {"metadata": {}, "benchmarks": [{"requests": requests, "metrics": {}}]}


def aiperf() -> list[dict[str, Any]]:
    """The same in aiperf's records, with a warm-up, a failure and a cancellation; other units, a metric that is not read."""
    records = []
    for k, (t, isl, _, osl, ttft, e2e) in enumerate(SENT):
        metrics = {
            "input_sequence_length": {"value": isl, "unit": "tokens"},
            "output_sequence_length": {"value": osl, "unit": "tokens"},
            "time_to_first_token": {"value": ttft * 1e6, "unit": "ns"} if k else {"value": ttft, "unit": "ms"},
            "request_latency": {"value": e2e / 1000, "unit": "sec"},
            "inter_chunk_latency": {"value": [1, 2], "unit": "ms"},
        }
        metadata = {"x_request_id": f"r{k}", "request_start_ns": 10**18 + int(t * 1e6), "benchmark_phase": "profiling"}
        records.append({"metadata": metadata, "metrics": metrics, "error": None})
    first = records[0]
    return [
        {**first, "metadata": {**first["metadata"], "benchmark_phase": "warmup"}},
        *records,
        {"metadata": first["metadata"], "metrics": {}, "error": {"message": "timeout"}},
        {"metadata": {**first["metadata"], "was_cancelled": True}, "metrics": {}, "error": None},
    ]


def write(folder: Path, *records: Any, indent: int | None = None) -> Path:
    """A file of these objects, one a line or indented."""
    path = folder / "results.json"
    path.write_text("".join(json.dumps(record, indent=indent) + "\n" for record in records))
    return path


TOOLS = {"vllm": [vllm()], "guidellm": [guidellm()], "aiperf": aiperf()}


@pytest.mark.parametrize("tool", TOOLS)
def test_what_was_sent_and_measured(tmp_path: Path, tool: str):
    frame = read_results(write(tmp_path, *TOOLS[tool]))
    assert list(frame.columns) == COLUMNS
    np.testing.assert_allclose(frame.to_numpy(np.float64), SENT, rtol=1e-9, atol=1e-3)  # nanoseconds near 1e18 round
    assert any("1 requests failed: left out" in note for note in frame.attrs["notes"])
    assert any("times count from the first request" in note for note in frame.attrs["notes"])
    replayed = read_trace(tmp_path / "results.json")
    assert list(replayed.columns) == COLUMNS[:4]
    assert replayed.attrs["notes"][-1] == "not replayed, but in read_results: measured_ttft_ms, measured_e2e_ms"
    assert pc.evaluate_replay(pc.Workload.replay(replayed), pc.Vllm(), pc.LinearTiming()).window.requests == 3


def test_what_is_left_out_is_counted(tmp_path: Path):
    assert (
        "2 requests were cancelled or cut short: left out" in read_results(write(tmp_path, guidellm())).attrs["notes"]
    )
    notes = read_results(write(tmp_path, *aiperf())).attrs["notes"]
    assert {"1 requests were warm-ups: left out", "1 requests were cancelled or cut short: left out"} <= set(notes)


@pytest.mark.parametrize("tool", ["vllm", "guidellm"])
def test_an_indented_file_is_the_same(tmp_path: Path, tool: str):
    plain = read_results(write(tmp_path, *TOOLS[tool]))
    assert read_results(write(tmp_path, *TOOLS[tool], indent=2)).equals(plain)
    assert len(read_trace(tmp_path / "results.json")) == 3


def test_older_files_have_gaps_instead_of_latencies(tmp_path: Path):
    record = vllm()
    del record["latencies"], record["errors"]
    record = {key: value[:2] if isinstance(value, list) else value for key, value in record.items()}
    assert list(read_results(write(tmp_path, record))["measured_e2e_ms"]) == pytest.approx([750.0, 120.0])


def test_several_runs_in_a_file(tmp_path: Path):
    """None is taken without being asked for."""
    late = vllm(input_lens=[701, 601, 9, 521])
    path = write(tmp_path, vllm(), late)
    with pytest.raises(TraceError, match=r"holds 2 runs; read_results\(path, run=0\)"):
        read_trace(path)
    assert list(read_results(path, run=1)["isl"]) == [701, 601, 521]
    both = guidellm()
    both["benchmarks"].append(guidellm(successful=[])["benchmarks"][0])
    path = write(tmp_path, both)
    assert list(read_results(path, run=0)["isl"]) == [700, 600, 520]
    with pytest.raises(TraceError, match="no request succeeded"):
        read_results(path, run=1)
    for wrong in (2, -1, True, "0"):
        with pytest.raises(TraceError, match="run is"):
            read_results(path, run=wrong)  # type: ignore[arg-type]


def test_no_streaming_no_ttft(tmp_path: Path):
    """A figure that was not measured is NaN, not 0."""
    report = guidellm()
    for request in report["benchmarks"][0]["requests"]["successful"]:
        request["time_to_first_token_ms"] = None
    assert read_results(write(tmp_path, report))["measured_ttft_ms"].isna().all()
    records = aiperf()
    del records[2]["metrics"]["time_to_first_token"]
    assert list(read_results(write(tmp_path, *records))["measured_ttft_ms"].isna()) == [False, True, False]


def edited(change: Any) -> list[dict[str, Any]]:
    """aiperf's records after a change to the third line."""
    records = json.loads(json.dumps(aiperf()))
    change(records[2])
    return records


def request_edited(**changes: Any) -> list[dict[str, Any]]:
    """GuideLLM's report after a change to its second request; None takes the key out."""
    report = json.loads(json.dumps(guidellm()))
    request = report["benchmarks"][0]["requests"]["successful"][1]
    request.update(changes)
    for key in [key for key, value in changes.items() if value == "absent"]:
        del request[key]
    return [report]


@pytest.mark.parametrize(
    ("records", "rule"),
    [
        ([{"request_throughput": 1.0, "duration": 5}], ": start_times is None, must be a list"),
        ([vllm(ttfts=[0.1])], ": ttfts has 1 entries, start_times has 4"),
        ([vllm(errors=["", ""])], ": errors has 2 entries, start_times has 4"),
        ([vllm(output_lens=[3, 0, 0, 1])], ", request 2: output_lens is 0, osl must be >= 1"),
        ([vllm(output_lens=[3, 2, 0, 0])], ", request 4: output_lens is 0, osl must be >= 1"),
        ([vllm(ttfts=[0.25, -0.1, 0.0, 0.08])], ", request 2: ttfts is -0.1, must be >= 0"),
        (
            [vllm(latencies=[0.75, 0.05, 0.0, 0.08])],
            ", request 2: latencies is 0.05, must not end before the first token",
        ),
        ([vllm(start_times=[1, "2", 3, 4])], ", request 2: start_times is '\"2\"', must be a finite number"),
        ([{"benchmarks": []}], ", line 1: benchmarks must be a list of objects"),
        ([{"benchmarks": [{"requests": {}}]}], ": requests.successful must be a list"),
        ([guidellm(successful=[4])], ", request 1: 4 is not a JSON object"),
        (request_edited(prompt_tokens=None), ", request 2: prompt_tokens is 'null', must be a finite number"),
        (request_edited(request_latency="absent"), ", request 2: request_latency is missing"),
        (request_edited(request_id="r0"), ", request 2: id is 'r0', must be there once"),
        (edited(lambda r: r["metadata"].pop("request_start_ns")), ", line 3: request_start_ns is 'null'"),
        (edited(lambda r: r["metrics"].pop("request_latency")), ", line 3: request_latency is missing"),
        (edited(lambda r: r["metrics"].update(request_latency=7)), ", line 3: request_latency is 7, must be an object"),
        (
            edited(lambda r: r["metrics"]["request_latency"].update(unit="h")),
            ", line 3: unit of request_latency is 'h'",
        ),
        (edited(lambda r: r["metadata"].update(x_request_id="r0")), ", line 3: id is 'r0', must be there once"),
        (edited(lambda r: r.update(metrics=None)), ", line 3: metadata and metrics must be objects"),
    ],
)
def test_refused_by_request_and_rule(tmp_path: Path, records: list[Any], rule: str):
    path = write(tmp_path, *records)
    with pytest.raises(TraceError) as caught:
        read_trace(path)
    assert f"results.json{rule}" in str(caught.value), caught.value
    assert len(str(caught.value)) < 200


def test_other_json_is_refused(tmp_path: Path):
    for text in ("[1]", "7", '{"requests": 1'):
        path = tmp_path / "results.json"
        path.write_text(text)
        with pytest.raises(TraceError):
            read_results(path)
