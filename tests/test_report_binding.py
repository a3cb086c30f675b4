"""What binds, on every backend: each limit where it is plain, and what one more client or a lifted limit does."""

from typing import Any

import pytest

import passcal as pc
from tests.worlds import CLOCK

KV = 6000  # tokens
LIMITS: dict[str, tuple[tuple[int, int, int], dict[str, dict[str, Any]]]] = {  # (isl, osl, clients), options by backend
    "clients": ((9, 200, 1), {"vllm": {}, "sglang": {}, "trtllm": {}}),
    "seats": (
        (900, 40, 64),
        {"vllm": {"max_num_seqs": 4}, "sglang": {"max_running_requests": 4}, "trtllm": {"max_batch_size": 4}},
    ),
    "budget": (
        (4000, 9, 64),
        {
            "vllm": {"max_num_batched_tokens": 512},
            "sglang": {"chunked_prefill_size": 512},
            "trtllm": {"max_num_tokens": 512},
        },
    ),
    "kv": (
        (900, 40, 64),
        {
            "vllm": {"num_gpu_blocks": KV // 16},
            "sglang": {"max_total_tokens": KV},
            "trtllm": {"max_tokens_in_kv": KV},
        },
    ),
    "prefill": ((8000, 4, 3), {"vllm": {}, "sglang": {"chunked_prefill_size": 32000}, "trtllm": {}}),
    "decode": ((9, 900, 250), {"vllm": {}, "sglang": {}, "trtllm": {}}),
}
CASES = [(limit, backend) for limit, (_, options) in LIMITS.items() for backend in options]
MORE_KV = {  # other ways for memory to keep requests out
    "vllm preempts": pc.Vllm(num_gpu_blocks=120, enable_prefix_caching=False),
    "vllm watermark": pc.Vllm(num_gpu_blocks=375, watermark=0.2),
    "sglang by ratio": pc.Sglang(max_total_tokens=KV, ignore_eos=False),
    "sglang without radix": pc.Sglang(max_total_tokens=KV, disable_radix_cache=True),
    "sglang mixed": pc.Sglang(max_total_tokens=KV, enable_mixed_chunk=True, chunked_prefill_size=700),
    "sglang in order": pc.Sglang(max_total_tokens=KV, disable_overlap_schedule=True),
    "trtllm pauses": pc.Trtllm(max_tokens_in_kv=KV, capacity_policy="MAX_UTILIZATION"),
    "trtllm static": pc.Trtllm(max_tokens_in_kv=KV, capacity_policy="STATIC_BATCH"),
    "trtllm whole prompts": pc.Trtllm(max_tokens_in_kv=KV, enable_chunked_prefill=False),
}


def asked(shape: tuple[int, int, int], engine: Any, more: int = 0) -> pc.Report:
    """Clients in a closed loop, `more` of them added."""
    isl, osl, clients = shape
    return pc.evaluate_closed_loop(pc.Workload.closed_loop(isl, osl, clients + more), engine, CLOCK)


def plain(limit: str, backend: str, more: int = 0) -> pc.Report:
    """The case of the table."""
    shape, options = LIMITS[limit]
    return asked(shape, pc.engine(backend, **options[backend]), more)


@pytest.mark.parametrize(("limit", "backend"), CASES)
def test_what_binds(limit: str, backend: str):
    """Each limit, where it is plain."""
    report = plain(limit, backend)
    assert report.binding == limit, report.binding.why
    assert report.binding.why
    assert report.to_columns()["binding"] == limit


@pytest.mark.parametrize("name", MORE_KV)
def test_memory_in_all_its_forms(name: str):
    report = asked((900, 40, 64), MORE_KV[name])
    assert report.binding == "kv", report.binding.why


@pytest.mark.parametrize(("limit", "backend"), [case for case in CASES if case[0] != "clients"])
def test_one_more_client_adds_little(limit: str, backend: str):
    """Where anything else binds: less than half of what a client has on average; with `clients`, more."""
    clients = LIMITS[limit][0][2]
    gain = plain(limit, backend, 1).throughput_per_s / plain(limit, backend).throughput_per_s - 1
    assert gain * clients < 0.5


@pytest.mark.parametrize("backend", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("clients", [1, 4])
def test_one_more_client_adds_its_share(backend: str, clients: int):
    shape, engine = (64, 200, clients), pc.engine(backend)
    report = asked(shape, engine)
    assert report.binding == "clients"
    assert (asked(shape, engine, 1).throughput_per_s / report.throughput_per_s - 1) * clients > 0.5


@pytest.mark.parametrize(
    ("limit", "backend", "looser"),
    [
        ("seats", "vllm", {"max_num_seqs": 8}),
        ("seats", "sglang", {"max_running_requests": 8}),
        ("seats", "trtllm", {"max_batch_size": 8}),
        ("budget", "vllm", {"max_num_batched_tokens": 2048}),
        ("budget", "sglang", {"chunked_prefill_size": 2048}),
        ("budget", "trtllm", {"max_num_tokens": 2048}),
        ("kv", "vllm", {"num_gpu_blocks": KV // 8}),
        ("kv", "sglang", {"max_total_tokens": 2 * KV}),
        ("kv", "trtllm", {"max_tokens_in_kv": 2 * KV}),
    ],
)
def test_lifting_what_binds_helps(limit: str, backend: str, looser: dict[str, Any]):
    lifted = asked(LIMITS[limit][0], pc.engine(backend, **looser))
    assert lifted.throughput_per_s > 1.1 * plain(limit, backend).throughput_per_s


def test_an_engine_that_waits_for_work():
    """Of a trace too, whatever else it does at times."""
    report = pc.evaluate_replay(pc.Workload.replay([(1000.0 * k, 200, 9) for k in range(9)]), pc.Vllm(), CLOCK)
    assert report.binding == "clients" and "idles" in report.binding.why


def test_limits_of_several_workers():
    """Shares of time are per rank."""
    for engine, limit in ((pc.Vllm(max_num_seqs=4), "seats"), (pc.Vllm(num_gpu_blocks=KV // 16), "kv")):
        loop = pc.Workload.closed_loop(900, 40, 64, requests=300)
        binding = pc.evaluate(loop, pc.Aggregated(engine, replicas=2), CLOCK).binding
        assert binding == limit
        assert 0.5 < float(binding.why.split("%")[0].split()[-1]) / 100 <= 1.0
