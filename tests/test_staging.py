"""What staging and slot hold do (D5, D6): bounds that follow from memory alone, and the signs of what `examples/staging.py` and `slot_hold.py` show."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

import passcal as pc
from passcal.evaluate import measure
from passcal.stopping import Drained
from passcal.timing.roofline import Roofline

EXAMPLES = Path(__file__).parents[1] / "examples"
TIMING = Roofline(model="llama-3.1-8b", gpu="h100").timing()
ISL, OSL, POOL = 4096, 256, 32
ALIKE, VARIED = [(ISL, OSL)], [(ISL, osl) for osl in (96, 416, 160, 352, 256, 192, 320)]


def apart(decode, prefill=None, transfers=None, gb_per_s=5.0, latency_ms=0.0, **options):
    """Four prefill workers and a decode worker; a link over which 7.45 prompts a second fit."""
    link = pc.Link(
        gb_per_s=gb_per_s, kv_bytes_per_token=131072, latency_ms=latency_ms, max_transfers_per_worker=transfers
    )
    return pc.Disaggregated(
        prefill=prefill or pc.Vllm(), decode=decode, prefill_workers=4, link=link, **{"hold": "blocks", **options}
    )


def vllm(seats=256, cached=True):
    """KV for 32 requests with their outputs; only prompts are reserved, and what is evicted may be found in the prefix cache."""
    blocks = POOL * (ISL + OSL) // 16 + 1
    return pc.Vllm(max_num_seqs=seats, num_gpu_blocks=blocks, enable_prefix_caching=cached)


def trtllm(seats):
    """The same KV; outputs are reserved too, so that nobody is ever evicted (T1)."""
    return pc.Trtllm(max_batch_size=seats, max_tokens_in_kv=POOL * (ISL + OSL))


def rate(deployment, shapes=ALIKE, clients=64, **options):
    """Requests a second."""
    loop = pc.Workload.closed_loop(shapes=shapes, concurrency=clients)
    return pc.evaluate(loop, deployment, TIMING, **options).throughput_per_s


class Lives:
    """When each of 400 requests went over (ms): granted, sent, arrived, attached, done."""

    def __init__(self, deployment):
        loop = pc.Workload.closed_loop(shapes=ALIKE, concurrency=64, requests=400)
        measured = measure(loop, deployment, TIMING, Drained())
        state, rows = measured.state, measured.rows
        hands = state.hands[rows]
        self.granted, self.sent, self.arrived = hands["granted_ms"], hands["start_ms"], hands["end_ms"]
        self.attached = state.legs[2 * rows.start + 1 : 2 * rows.stop : 2]["admitted_ms"]
        self.done = state.requests["done_ms"][rows]
        self.moments = np.unique(np.concatenate([self.granted, self.sent, self.arrived, self.attached, self.done]))

    def count(self, begin, end):
        """How many are between the two, behind each moment."""
        here = np.searchsorted(np.sort(begin), self.moments, "right")
        return here - np.searchsorted(np.sort(end), self.moments, "right")


@pytest.mark.parametrize("latency_ms", [0.0, 100.0])
@pytest.mark.parametrize("seats", [12, 24, 28])
def test_hand_offs_fit_what_full_seats_leave(seats, latency_ms):
    """Beside full seats floor(pool / sequence) - max_num_seqs of them hold memory, under way or arrived, and no more (D6); the bound is reached."""
    lives = Lives(apart(trtllm(seats), latency_ms=latency_ms))
    held, running = lives.count(lives.granted, lives.attached), lives.count(lives.attached, lives.done)
    assert running.max() == seats and (held + running).max() == POOL
    assert held[running == seats].max() == POOL - seats
    assert lives.count(lives.sent, lives.arrived)[running == seats].max() <= POOL - seats


def test_without_headroom_a_transfer_needs_an_empty_seat():
    """The first 32 fill the pool; from then on memory is granted only at the instant at which somebody leaves, and nothing is sent beside full seats."""
    lives = Lives(apart(trtllm(POOL)))
    assert np.isin(np.sort(lives.granted)[POOL:], lives.done).all()
    running = lives.count(lives.attached, lives.done)
    assert running.max() == POOL and lives.count(lives.sent, lives.arrived)[running == POOL].max() == 0


@pytest.mark.parametrize("decode", [vllm, trtllm])
def test_alike_requests_have_an_interior_maximum(decode):
    """Seats add throughput until hand-offs go over in one batch: then the link and the decode worker take turns."""
    few, some, all_of_it, more = (rate(apart(decode(n))) for n in (12, 22, 32, 48))
    assert few < some > all_of_it and all_of_it == pytest.approx(more, rel=0.01)


def test_at_worst_link_and_decode_take_turns():
    """One turn: 33 prompts fit the pool (257 blocks each), cross the link together, and make 255 tokens in passes of 33 rows."""
    fit = POOL * 272 // 257
    link_ms = fit * ISL * 131072 / (5e6 * 0.8)
    rows = pc.PassShape(decode_requests=fit, decode_kv_tokens=fit * (ISL + OSL // 2))
    turn_ms = link_ms + (OSL - 1) * TIMING.pass_ms(rows)
    assert rate(apart(vllm(48))) == pytest.approx(1e3 * fit / turn_ms, rel=0.03)


@pytest.mark.parametrize("seats", [24, 28, 32, 48])
def test_what_keeps_hand_offs_apart_keeps_the_throughput(seats):
    """One transfer at a time, or outputs of different lengths: no seats are too many, and the link's 7.45 prompts a second are reached within 2%."""
    most = 5e9 * 0.8 / (ISL * 131072)
    assert rate(apart(vllm(seats), transfers=1)) == pytest.approx(most, rel=0.02)
    assert rate(apart(vllm(seats)), VARIED) == pytest.approx(most, rel=0.02)


@pytest.mark.parametrize("seats", [24, 32])
def test_evictions_cost_what_no_cache_has_kept(seats):
    """Only prompts are reserved, so rows that grow evict; without a cache all of it is computed anew, on the decode worker."""
    kept, lost = (rate(apart(vllm(seats, cached)), VARIED) for cached in (True, False))
    assert 0.75 * kept < lost < 0.95 * kept


def slot(seats, clients, shapes=ALIKE, hold="blocks_and_seat"):
    """The deployment of `slot_hold.py`."""
    return rate(apart(vllm(cached=False), pc.Vllm(max_num_seqs=seats), latency_ms=300.0, hold=hold), shapes, clients)


def test_prefill_seats_below_the_staging_limit():
    """24 clients never fill the pool: seats help until hardly anybody waits for one (D5)."""
    one, two, four, many = (slot(n, 24) for n in (1, 2, 4, 16))
    assert one < two < four and many == pytest.approx(four, rel=0.02)


def test_prefill_seats_above_the_staging_limit():
    """48 clients fill it: seats help at first, and then even less is served than with one (D5)."""
    one, two, four, many = (slot(n, 48) for n in (1, 2, 4, 16))
    assert one < two < four > 1.2 * many and many < one


def test_prefill_seats_do_no_harm_to_varied_requests():
    """They do not fill the pool in one go; evictions cost a little."""
    one, four, many = (slot(n, 48, VARIED) for n in (1, 4, 16))
    assert many > 1.5 * one and many == pytest.approx(four, rel=0.03)


def test_a_seat_that_is_not_held_limits_no_transfers():
    """One seat a worker computes prompts one by one, and is free when one is done; held, it waits for the prompt's arrival."""
    assert slot(1, 24, hold="none") == slot(1, 24, hold="blocks") > 1.05 * slot(1, 24)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["staging", "slot_hold"])
def test_examples_plot(name, monkeypatch, tmp_path):
    """`--plot FILE` writes a picture."""
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setattr(sys, "argv", [name, "--plot", str(tmp_path / "plot.png")])
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
