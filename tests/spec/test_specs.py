"""Specs: what they accept, how they compare, and that they are values."""

import copy
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest

import passcal as pc

ROWS = [(0.0, 8, 1, 2), (5.0, 9, 0, 3)]
SPECS = [
    pc.Vllm(max_num_seqs=4),
    pc.Workload.closed_loop(8, 2, 3),
    pc.Workload.replay(ROWS),
    pc.Workload.replay(ROWS, max_concurrency=2),
    pc.Workload.sessions([[pc.Turn(8, 2), pc.Turn(9, 3, think_ms=5.0, calls=[(4, 0, 1)])]]),
    pc.Workload.sessions({"session": ["a", "b"], "isl": [8, 9], "osl": [2, 3]}),
    pc.Turn(8, 2, calls=[(4, 0, 1)]),
    pc.Aggregated(pc.Vllm()),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: type(spec).__name__)
def test_specs_are_values(spec: Any):
    """Equal and hashed by content, through copies and other processes."""
    for other in (copy.deepcopy(spec), pickle.loads(pickle.dumps(spec)), spec.model_copy()):
        assert other == spec
        assert hash(other) == hash(spec)
    changed = {"max_num_seqs": 5, "concurrency": 4, "turnaround_ms": 1.0, "replicas": 2, "think_ms": 1.0}
    assert spec != spec.model_copy(update=changed)


@pytest.mark.parametrize("eight", [8, 8.0, np.int32(8), np.float64(8)])
def test_whole_numbers_of_any_type(eight: Any):
    assert pc.Workload.closed_loop(eight, 2, 3) == pc.Workload.closed_loop(8, 2, 3)
    assert pc.Vllm(max_num_seqs=eight).max_num_seqs == 8
    assert type(pc.Vllm(max_num_seqs=eight).max_num_seqs) is int


def test_engines_by_name():
    assert pc.engine("vllm", max_num_seqs=4) == pc.Vllm(max_num_seqs=4)


def test_vllm_has_the_engines_defaults():
    """As vLLM has them; an edit here is a decision."""
    assert {name: value for name, value in pc.Vllm().model_dump().items() if value is not None} == {
        "backend": "vllm",
        "max_num_batched_tokens": 8192,
        "max_num_seqs": 256,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "block_size": 16,
        "enable_prefix_caching": True,
        "scheduler_reserve_full_isl": True,
        "watermark": 0.0,
        "prefill_schedule_interval": 1,
        "data_parallel_size": 1,
        "host_offload": False,
    }


def test_shapes_come_in_two_and_three():
    two, three = [(8, 2), (9, 3)], [(8, 0, 2), (9, 0, 3)]
    made = [pc.Workload.closed_loop(shapes=rows, concurrency=2) for rows in (two, three, np.array(two), iter(two))]
    assert all(workload == made[0] for workload in made)


def test_a_frame_of_any_column_order():
    frame = pd.DataFrame(ROWS, columns=["dispatch_ms", "isl", "prefix", "osl"])
    assert pc.Workload.replay(frame[["osl", "isl", "dispatch_ms", "prefix"]]) == pc.Workload.replay(ROWS)


def test_a_bare_engine_is_one_worker():
    workload = pc.Workload.replay(ROWS)
    bare, wrapped = (pc.evaluate(workload, d, pc.LinearTiming()) for d in (pc.Vllm(), pc.Aggregated(pc.Vllm())))
    assert bare.requests().equals(wrapped.requests())
