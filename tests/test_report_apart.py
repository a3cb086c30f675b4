"""What a report says of prefill and decode apart: TTFT in parts, hand-offs, what binds, phases."""

from typing import Any

import numpy as np
import pytest

import passcal as pc
from passcal.columns import COLUMNS

TIMING = pc.LinearTiming()
KV = 131072  # bytes a token


def apart(gb_per_s: float = 50.0, decode: Any = None, **options: Any) -> pc.Disaggregated:
    """Engines of vLLM over a link of this bandwidth."""
    link = pc.Link(gb_per_s=gb_per_s, kv_bytes_per_token=KV)
    return pc.Disaggregated(prefill=pc.Vllm(), decode=decode or pc.Vllm(), link=link, **options)


def loop(clients: int = 16, isl: int = 4096, osl: int = 64, **options: Any) -> Any:
    """A closed loop."""
    return pc.Workload.closed_loop(isl=isl, osl=osl, concurrency=clients, **options)


@pytest.mark.parametrize("first_token", ["prefill", "decode", "decode_pass"])
def test_parts_and_gaps(first_token: str):
    """Parts add up to TTFT, which is where the first token is shown; ITL is of all gaps between tokens, the hand-off's too."""
    report = pc.evaluate(loop(requests=60), apart(8.0, prefill_workers=2, first_token=first_token), TIMING)
    parts = {name: sample.mean for name, sample in report.ttft_split_ms.items()}
    assert sum(parts.values()) == pytest.approx(report.ttft_ms.mean, rel=1e-12)
    assert (parts["transfer"] > 0) == (first_token != "prefill")
    assert (parts["first_pass"] > 0) == (first_token == "decode_pass")
    gaps = np.concatenate([np.diff(report.token_ms(i)) for i in range(60)])
    assert report.itl_ms.mean == pytest.approx(gaps.mean(), rel=1e-9)
    assert report.itl_ms.quantile(0.99) == pytest.approx(np.sort(gaps)[int(np.ceil(0.99 * len(gaps))) - 1], rel=1e-9)
    if first_token == "prefill":
        first = [report.token_ms(i)[1] - report.token_ms(i)[0] for i in range(60)]
        moved = sum(sample.mean for sample in report.hand_off_ms.values())
        assert min(first) > moved / 60 and np.mean(first) > moved


def test_frames_and_columns():
    """A row a request tells how it went over; one with nothing to go over for has no such times."""
    rows = [(0.0, 1024, 8), (1.0, 1024, 1), (2.0, 1024, 8)]
    report = pc.evaluate(pc.Workload.replay(rows), apart(decode_workers=2), TIMING)
    frame = report.requests()
    assert frame["decode_worker"].tolist() == [0, -1, 1]
    assert frame["transfer_ms"].isna().tolist() == [False, True, False]
    assert frame["transfer_ms"].iloc[0] >= 1024 * KV / (50e6 * 0.8)
    assert len(report.token_ms(1)) == 1 and report.gpus == 3
    columns = report.to_columns()
    assert tuple(columns) == COLUMNS
    assert columns["transfer_mean"] == pytest.approx(report.hand_off_ms["transfer"].mean)


@pytest.mark.parametrize(
    ("name", "clients", "deployment"),
    [
        ("decode", 64, apart(400.0, pc.Vllm(max_num_seqs=8), prefill_workers=4)),
        ("staging", 64, apart(400.0, pc.Vllm(num_gpu_blocks=1500), prefill_workers=4)),
        ("fabric", 64, apart(1.0, prefill_workers=4)),
        ("prefill", 64, apart(400.0, decode_workers=2)),
        ("clients", 1, apart(400.0)),
    ],
)
def test_what_binds(name: str, clients: int, deployment: pc.Disaggregated):
    """Each limit by its name, and lifting it helps, which lifting another one does not as much."""
    report = pc.evaluate(loop(clients), deployment, TIMING)
    assert report.binding == name, report.binding.why
    assert (report.staging_stalls > 0) == (name == "staging")
    lifted = {
        "decode": {"decode": pc.Vllm(max_num_seqs=16)},
        "staging": {"decode": pc.Vllm(num_gpu_blocks=3000)},
        "fabric": {"link": pc.Link(gb_per_s=2, kv_bytes_per_token=KV)},
        "prefill": {"prefill_workers": 2},
        "clients": {},
    }
    gains = {
        what: pc.evaluate(loop(clients), deployment.model_copy(update=change), TIMING).throughput_per_s
        for what, change in lifted.items()
        if change
    }
    if name == "clients":
        assert pc.evaluate(loop(2), deployment, TIMING).throughput_per_s > 1.5 * report.throughput_per_s
    else:
        assert gains[name] > 1.3 * report.throughput_per_s


def test_phases_are_mixed_and_told_apart():
    """The mixture is the mean of its components; the first is the burst; the spread is their range (D8)."""
    deployment = apart(prefill_workers=2)
    report = pc.evaluate(loop(12), deployment, TIMING, phases=3)
    burst = pc.evaluate(loop(12), deployment, TIMING)
    assert len(report.phases) == 3
    assert report.phases[0].ttft_ms.mean == burst.ttft_ms.mean
    means = [phase.ttft_ms.mean for phase in report.phases]
    assert report.ttft_ms.mean == pytest.approx(np.mean(means), rel=1e-12)
    assert report.spread["ttft_mean_ms"] == (min(means), max(means))
    assert report.throughput_per_s == pytest.approx(np.mean([p.throughput_per_s for p in report.phases]), rel=1e-12)


def test_several_cycles_by_phase():
    """One tandem locks several cycles, chosen by the first phase, whose TTFT differ by a multiple (D8)."""
    found = []
    for osl in (16, 32, 64, 128):
        for clients in (4, 8, 16):
            low, high = pc.evaluate(loop(clients, 2048, osl), apart(400.0), TIMING, phases=4).spread["ttft_mean_ms"]
            found.append(high / low)
    assert max(found) > 1.5


def test_a_cycle_is_found_or_a_window_says_so():
    """A cycle's averages are exact; where passes of two pools never fall into step, the window is told, and how to look for longer."""
    exact = pc.evaluate(loop(8, 2048), apart(), TIMING)
    assert exact.window.kind == "cycle" and not exact.notes
    assert exact.throughput_per_s * exact.e2e_ms.mean == pytest.approx(8000.0, rel=1e-9)
    drifting = pc.evaluate(loop(128, 1024, 16), apart(1.0, prefill_workers=3, decode_workers=2), TIMING)
    assert drifting.window.kind == "window" and "LimitCycle(max_passes=)" in drifting.notes[0]
    strict = pc.LimitCycle(max_passes=2000, strict=True)
    with pytest.raises(pc.NotConverged, match="max_passes=2000"):
        pc.evaluate(loop(128, 1024, 16), apart(1.0, prefill_workers=3, decode_workers=2), TIMING, stop=strict)


def test_timing_by_stage():
    """Each pool its own model; a name that is no stage is refused."""
    slow = pc.LinearTiming(decode=(80.0, 0.5, 2e-6))
    mixed = pc.evaluate(loop(requests=20), apart(), {"prefill": TIMING, "decode": slow})
    assert mixed.itl_ms.quantile(0.5) > 80.0
    assert mixed.ttft_ms.values.min() == pc.evaluate(loop(requests=20), apart(), TIMING).ttft_ms.values.min()
    with pytest.raises(pc.SpecError, match="mapping of prefill, decode"):
        pc.evaluate(loop(requests=20), apart(), {"prefill": TIMING})


def test_gpus_of_both_pools():
    """Each pool's ranks times its model's GPUs (E3)."""
    eight = pc.LinearTiming(gpus=8)
    report = pc.evaluate(
        loop(requests=8),
        apart(prefill_workers=2, decode=pc.Vllm(data_parallel_size=2)),
        {"prefill": TIMING, "decode": eight},
    )
    assert report.gpus == 2 + 2 * 8
