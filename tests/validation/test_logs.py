"""A log is read as it is meant, and what the page says of it holds from a fresh clone."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tools.validation.engine_log import read_log
from tools.validation.held_out import BANDS, half, utilisation
from tools.validation.tables import figures

LOG = Path(__file__).parents[1] / "data" / "vllm_engine_log_rtxpro6000"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four requests, listed out of order; the engine's clock is 100 s ahead and the third is queued soonest."""
    arrivals, queued = [10.0, 10.5, 11.0, 12.0], [110.004, 110.53, 111.001, 112.0009]
    rows = [
        {
            "arrival_time": a,
            "input_toks": 7 + k,
            "output_toks": 3,
            "queued_ts": q,
            "scheduled_ts": q,
            "first_token_ts": q + 1,
            "last_token_ts": q + 2,
        }
        for k, (a, q) in enumerate(zip(arrivals, queued, strict=True))
    ]
    (tmp_path / "requests.jsonl").write_text("\n".join(json.dumps(rows[k]) for k in (1, 0, 2, 3)))
    (tmp_path / "timeseries.csv").write_text("t,running,waiting,kv_cache_pct\n1.0,2,0,50\n2.0,4,1,100\n3.0,1,0,10\n")
    meta = {
        "engine_kwargs": {"max_num_seqs": 4, "max_num_batched_tokens": 64, "max_model_len": None, "dtype": "bfloat16"},
        "started_at": "1970-01-01T00:00:09.500000Z",
        "resolved_config": {
            "scheduler_config": {"async_scheduling": False},
            "cache_config": {"num_gpu_blocks": 30, "block_size": 8},
        },
    }
    (tmp_path / "meta.json").write_text(json.dumps(meta))
    return tmp_path


def test_stated_options_are_taken_and_others_keep_their_defaults(folder: Path):
    engine = read_log(folder).engine
    stated = (
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        engine.async_scheduling,
        engine.num_gpu_blocks,
        engine.block_size,
    )
    assert stated == (4, 64, False, 30, 8)
    assert (engine.max_model_len, engine.enable_prefix_caching) == (None, True)


def test_clocks_are_joined_on_the_first_half_alone(folder: Path):
    """The fourth request was queued sooner after its arrival than the first, but belongs to the second half."""
    log = read_log(folder)
    assert log.requests["isl"].tolist() == [7, 8, 9, 10]
    assert log.requests["dispatch_ms"].tolist() == [0.0, 500.0, 1000.0, 2000.0]
    assert log.requests["queued_ms"].to_numpy() == pytest.approx([0.0, 526.0, 997.0, 1996.9])
    assert log.fitted.tolist() == [True, True, False, False]


def test_load_is_on_the_same_clock(folder: Path):
    """The run started half a second before the first arrival."""
    log = read_log(folder)
    assert log.load["end_ms"].to_numpy() == pytest.approx([500.0, 1500.0, 2500.0])
    log.requests["scheduled_ms"], log.requests["last_ms"] = 0.0, [600.0, 1600.0, 1600.0, 2600.0]
    assert utilisation(log) == pytest.approx([0.5, 0.75, 0.75, 160 / 300])


@pytest.mark.slow
def test_the_second_half_of_a_committed_log_is_predicted():
    """The aims: medians within 5%, p99 within 10%; where seats bind the page claims more."""
    one = half(read_log(LOG))
    second, share = ~one.log.fitted, utilisation(one.log)
    off = {
        name: figures(one.predicted[name][second]) / figures(one.measured[name][second]) - 1
        for name in ("ttft", "tpot", "queue")
    }
    assert np.abs(pd.DataFrame(off)).max().max() < 0.01
    for low, high in BANDS.values():
        those = second & (share >= low) & (share < high)
        assert those.sum() > 20
        assert figures(one.predicted["tpot"][those]) == pytest.approx(figures(one.measured["tpot"][those]), rel=0.03)
        assert figures(one.predicted["ttft"][those]) == pytest.approx(figures(one.measured["ttft"][those]), rel=0.01)
