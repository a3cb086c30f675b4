"""The shared scenarios: each is answered, and the answer keeps the laws that no schedule can break."""

import json
from itertools import pairwise
from math import inf

import pytest

from tools.oracle import simulate

from .building import ROOT
from .tandem_laws import assert_tandem, is_apart, sides

FILES = sorted((ROOT / "tests" / "agreement" / "scenarios").glob("*.json"))
LONG_RUN = {"vllm_512_512_c128_b4096_sync", "vllm_512_512_c128_b4096_async"}


@pytest.mark.parametrize(
    "path",
    [pytest.param(path, id=path.stem, marks=[pytest.mark.slow] if path.stem in LONG_RUN else []) for path in FILES],
)
def test_scenario(path):
    """Every request gets its tokens, in order, and the passes carried exactly the work there was."""
    asked = json.loads(path.read_text(encoding="utf-8"))
    answer = simulate(asked)
    assert asked["name"] == path.stem == answer["name"]
    for request in answer["requests"]:
        times = request["token_ms"]
        assert len(times) == outputs(asked, request)
        assert request["admitted_ms"] < times[0]
        assert all(a < b or (a == b and may_coincide(last_engine(asked))) for a, b in pairwise(times))
        assert request["dispatch_ms"] <= request["visible_ms"] <= request["admitted_ms"]
        assert 0 <= request["cached"] < request["isl"]
    if is_apart(asked):
        assert_tandem(asked, answer)
    else:
        assert_passes(asked, answer)


def last_engine(asked: dict) -> dict:
    """The options of the engine that makes the last outputs."""
    return sides(asked)[1][1] if is_apart(asked) else asked["engine"]


def outputs(asked: dict, request: dict) -> int:
    """The outputs of a request: SGLang cuts what its memory could never hold (S17)."""
    engine = last_engine(asked)
    memory = engine.get("max_total_tokens")
    if memory is None:
        return request["osl"]
    page = engine.get("page_size", 1)
    return min(request["osl"], memory // page * page - -(-request["isl"] // page) * page - page - 1)


def may_coincide(engine: dict) -> bool:
    """Tokens of one row come together (V16), and those of two passes after a long launch (V14)."""
    return bool({"speculation", "launch"} & engine.keys())


def drafts_of(asked: dict) -> int:
    """The drafts of a decode row (V16)."""
    return asked["engine"].get("speculation", {"drafts": 0})["drafts"]


def stops_of(asked: dict, answer: dict) -> int:
    """Rows that may be wasted: one a request, where a stop token may end it (V12, S4, T5)."""
    return len(answer["requests"]) if '"max_tokens"' in json.dumps(asked["workload"]) else 0


def limits(backend: str, engine: dict) -> tuple[float, float]:
    """Tokens and rows that no pass exceeds; SGLang limits prompts alone, and softly (S7)."""
    if backend == "vllm":
        return engine.get("max_num_batched_tokens", 8192), engine.get("max_num_seqs", 256)
    if backend == "trtllm":
        return engine.get("max_num_tokens", 8192), engine.get("max_batch_size", 256)
    return inf, engine.get("max_running_requests", 256)


def assert_passes(asked: dict, answer: dict) -> None:
    """Passes do not overlap, keep the budget and, where nothing is computed twice, add up."""
    budget, seats = limits(asked["backend"], asked["engine"])
    for engine in {each["engine"] for each in answer["passes"]}:
        for before, after in pairwise(each for each in answer["passes"] if each["engine"] == engine):
            assert before["end_ms"] <= after["start_ms"]
    for each in answer["passes"]:
        assert 0 < each["prefill_tokens"] + each["decode_requests"] <= budget
        assert each["prefill_requests"] + each["decode_requests"] <= seats
    if not any(request["preemptions"] for request in answer["requests"]):
        prompts = sum(request["isl"] - request["cached"] for request in answer["requests"])
        assert sum(each["prefill_tokens"] for each in answer["passes"]) == prompts
        decodes = sum(len(request["token_ms"]) - 1 for request in answer["requests"])
        rows, drafts = sum(each["decode_requests"] for each in answer["passes"]), drafts_of(asked)
        assert rows - stops_of(asked, answer) <= decodes <= rows * (1 + drafts)
