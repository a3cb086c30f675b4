"""What no schedule of two stages can break."""

from collections.abc import Iterator
from itertools import cycle, islice, pairwise

Engine = tuple[str, dict]


def is_apart(asked: dict) -> bool:
    """Whether prefill and decode lie apart."""
    return asked.get("deployment", {}).get("kind") == "disaggregated"


def sides(asked: dict) -> tuple[Engine, Engine]:
    """Backend and options of either side."""
    decode = asked["deployment"]["decode"]
    return (asked["backend"], asked["engine"]), (decode["backend"], decode["engine"])


def assert_stages(asked: dict, answer: dict) -> None:
    """Everything happens in its order, and takes the time that it needs at least."""
    deployment = asked["deployment"]
    first_token, by_chunk = deployment.get("first_token", "prefill"), chunked(deployment)
    latency_ms = deployment["link"].get("latency_ms", 0.0)
    for request in answer["requests"]:
        done_ms, times = request["prefill_done_ms"], request["token_ms"]
        assert request["admitted_ms"] < done_ms
        if "decode_engine" not in request:
            assert first_token == "prefill" and times == [done_ms]
            continue
        start_ms, arrived_ms, attach_ms = (
            request[f"{key}_ms"] for key in ("transfer_start", "transfer_done", "attach")
        )
        assert by_chunk or done_ms <= start_ms
        assert max(start_ms, done_ms) + latency_ms <= arrived_ms + 1e-9 and arrived_ms <= attach_ms
        if not by_chunk:
            assert arrived_ms - start_ms >= latency_ms + size(asked, request) / capacity(deployment) - 1e-6
        if first_token == "decode_pass":
            assert attach_ms < times[0]
        else:
            assert times[0] == (done_ms if first_token == "prefill" else attach_ms)
            assert all(attach_ms < each for each in times[1:])


def chunked(deployment: dict) -> bool:
    """D4: chunks go as they are made."""
    return deployment["link"].get("transfer_start") == "each_chunk"


def size(asked: dict, request: dict) -> float:
    """D3: the bytes of a request."""
    link = asked["deployment"]["link"]
    there = min(request["prefix"], request["isl"] - 1) if link.get("transfer") == "missing" else 0
    return (request["isl"] - there) * link["kv_bytes_per_token"]


def capacity(deployment: dict) -> float:
    """D3: bytes a millisecond."""
    link = deployment["link"]
    return link["gb_per_s"] * link.get("efficiency", 0.8) * 1e6


def ranks(engine: dict) -> int:
    """Of a worker."""
    return next((engine[key] for key in ("data_parallel_size", "dp_size", "attention_dp") if key in engine), 1)


def assert_bytes(asked: dict, answer: dict) -> None:
    """D3: no end of the fabric ever carried more than it can, from the first of its transfers to the last."""
    (_, source), (_, target) = sides(asked)
    gone = [request for request in answer["requests"] if "decode_engine" in request]
    for key, engine in (("engine", source), ("decode_engine", target)):
        for worker in {request[key] // ranks(engine) for request in gone}:
            mine = [request for request in gone if request[key] // ranks(engine) == worker]
            if key == "engine" or len({ranks(source), ranks(target)}) == 1:
                span_ms = max(r["transfer_done_ms"] for r in mine) - min(r["transfer_start_ms"] for r in mine)
                assert (
                    sum(size(asked, each) for each in mine) <= span_ms * capacity(asked["deployment"]) * (1 + 1e-9) + 1
                )


def assert_work(asked: dict, answer: dict) -> None:
    """D1: the prefill side computes prompts, the decode side rows, and nothing twice where nobody was preempted."""
    if any(request["preemptions"] for request in answer["requests"]):
        return
    first = asked["deployment"].get("prefill_workers", 1) * ranks(asked["engine"])
    source = [each for each in answer["passes"] if each["engine"] < first]
    target = [each for each in answer["passes"] if each["engine"] >= first]
    assert sum(each["prefill_tokens"] for each in source) == sum(r["isl"] - r["cached"] for r in answer["requests"])
    assert not any(each["decode_requests"] for each in source)
    gone = [request for request in answer["requests"] if "decode_engine" in request]
    remade = len(gone) if asked["deployment"].get("first_token") == "decode_pass" else 0
    assert sum(each["prefill_tokens"] for each in target) == remade
    outputs = sum(len(request["token_ms"]) - 1 for request in gone)
    drafts = asked["deployment"]["decode"]["engine"].get("speculation", {"drafts": 0})["drafts"]
    rows, wasted = sum(each["decode_requests"] for each in target), sum("max_tokens" in r for r in sent(asked))
    assert rows - wasted <= outputs <= rows * (1 + drafts)


def sent(asked: dict) -> Iterator[dict]:
    """The requests of a replay, or of a closed loop as they are dealt."""
    workload = asked["workload"]
    if workload["mode"] == "replay":
        yield from workload["requests"]
    elif workload["mode"] == "closed":
        yield from islice(cycle(workload["shapes"]), workload["requests"])


def assert_memory(asked: dict, answer: dict) -> None:
    """D6: what hand-offs take from their grant to their end, at least, was never more than there is; one stage has blocks."""
    _, (backend, engine) = sides(asked)
    sizes = {"vllm": ("num_gpu_blocks", "block_size", 16), "trtllm": ("max_tokens_in_kv", "tokens_per_block", 32)}
    if backend not in sizes or engine.get(sizes[backend][0]) is None:
        return
    total, block = engine[sizes[backend][0]], engine.get(sizes[backend][1], sizes[backend][2])
    usable = total - 1 if backend == "vllm" else total // block
    moves = []
    for request in answer["requests"]:
        if "decode_engine" in request and not request["preemptions"]:
            need, rank = -(-(request["isl"] + 1) // block), request["decode_engine"]
            moves += [(request["token_ms"][-1], -need, rank), (request["transfer_start_ms"], need, rank)]
    taken = dict.fromkeys((rank for *_, rank in moves), 0)
    for _, need, rank in sorted(moves):
        taken[rank] += need
        assert taken[rank] <= usable


def assert_passes(answer: dict) -> None:
    """No engine passes twice at a time."""
    for engine in {each["engine"] for each in answer["passes"]}:
        for before, after in pairwise(each for each in answer["passes"] if each["engine"] == engine):
            assert before["end_ms"] <= after["start_ms"]


def assert_tandem(asked: dict, answer: dict) -> None:
    """All of it."""
    assert_stages(asked, answer)
    assert_bytes(asked, answer)
    assert_work(asked, answer)
    assert_memory(asked, answer)
    assert_passes(answer)
