"""An encoder stage in front: the tandem of three, and of an encoder and an engine."""

from typing import Any

import numpy as np
import pytest

import passcal as pc

TIMING = pc.LinearTiming()
IMAGES = pc.LinearTiming(prefill=(3.0, 0.01), decode=(1.0,))
LINK = pc.Link(gb_per_s=50, kv_bytes_per_token=131072)
EMBEDDINGS = pc.Link(gb_per_s=1, efficiency=1.0, kv_bytes_per_token=8192, latency_ms=0.25)
SHAPES = [(600, 32), {"isl": 900, "osl": 48, "vision_tokens": 576}, {"isl": 2000, "osl": 20, "vision_tokens": 1152}]


def apart(**options: Any) -> pc.Disaggregated:
    """One prefill and one decode worker."""
    return pc.Disaggregated(prefill=pc.Vllm(), decode=pc.Vllm(), link=LINK, **options)


def encoder(**options: Any) -> pc.Encoder:
    """One encoder worker that plans with all that it knows."""
    return pc.Encoder(engine=pc.Vllm(async_scheduling=False), **options)


def models(names: str) -> dict[str, pc.LinearTiming]:
    """A timing model by stage."""
    return {name: IMAGES if name == "encoder" else TIMING for name in names.split()}


def closed(clients: int, requests: int, shapes: Any = SHAPES) -> Any:
    """Clients of a closed loop."""
    return pc.Workload.closed_loop(shapes=shapes, concurrency=clients, requests=requests)


def test_a_lone_image_by_hand():
    """Encoder pass, latency and bytes of its output, then the prompt with its vision tokens in it."""
    report = pc.evaluate(
        closed(1, 1, [SHAPES[1]]), apart(encoder=encoder(link=EMBEDDINGS)), models("encoder prefill decode")
    )
    parts = {name: sample.mean for name, sample in report.ttft_split_ms.items()}
    encoded, moved = 3.0 + 0.01 * 576, 0.25 + 576 * 8192 / 1e6
    assert parts["encode"] == pytest.approx(encoded + moved, rel=1e-12)
    assert parts["prefill"] == pytest.approx(5.0 + 0.02 * 900, rel=1e-12)
    assert report.stages == ("encoder", "prefill", "decode")
    assert report.ttft_ms.mean == pytest.approx(sum(parts.values()), rel=1e-12)
    times = report.token_ms(0)
    assert len(times) == 48 and times == sorted(times)


def test_in_front_of_one_engine():
    """The same, with the whole output from the engine behind."""
    report = pc.evaluate(
        closed(1, 1, [SHAPES[1]]), pc.Aggregated(pc.Vllm(), encoder=encoder(link=EMBEDDINGS)), models("encoder engine")
    )
    alone = pc.evaluate(closed(1, 1, [(900, 48)]), pc.Vllm(), TIMING)
    delay = 3.0 + 0.01 * 576 + 0.25 + 576 * 8192 / 1e6
    assert report.stages == ("encoder", "engine") and not report.hand_off_ms
    assert np.allclose(np.array(report.token_ms(0)) - delay, alone.token_ms(0), rtol=1e-12)


def test_requests_without_images_pass_it_by():
    """To the bit: as if there were none, wherever nobody with an image is in the way."""
    rows = [(0.0, 700, 20), (40.0, 900, 30), (90.0, 300, 25)]
    last = {"dispatch_ms": 5000.0, "isl": 600, "osl": 4, "vision_tokens": 576}
    listed = [{"dispatch_ms": t, "isl": isl, "osl": osl, "vision_tokens": 0} for t, isl, osl in rows]
    with_encoder = pc.evaluate(
        pc.Workload.replay([*listed, last]), apart(encoder=encoder(link=EMBEDDINGS)), models("encoder prefill decode")
    )
    without = pc.evaluate(pc.Workload.replay(rows), apart(), TIMING)
    for i in range(len(rows)):
        assert with_encoder.token_ms(i) == without.token_ms(i)


@pytest.mark.parametrize("name", ["vllm", "sglang", "trtllm"])
def test_tokens_times_and_parts_of_a_crowd(name: str):
    """Every token comes once, in order; the parts add up to TTFT, request by request; ITL is of all tokens; stages keep causality."""
    deployment = pc.Disaggregated(
        prefill=pc.engine(name),
        decode=pc.engine(name),
        prefill_workers=2,
        link=LINK,
        first_token="decode",
        encoder=pc.Encoder(engine=pc.engine(name), workers=2, link=EMBEDDINGS, routing="least_loaded"),
    )
    report = pc.evaluate(closed(9, 45), deployment, models("encoder prefill decode"))
    frame = report.requests()
    times = [report.token_ms(i) for i in range(45)]
    assert [len(t) for t in times] == frame["osl"].tolist()
    gaps = np.concatenate([np.diff(t) for t in times])
    assert gaps.min() > 0.0 and report.itl_ms.mean == pytest.approx(gaps.mean(), rel=1e-9)
    parts = sum(sample.mean for sample in report.ttft_split_ms.values())
    assert parts == pytest.approx(report.ttft_ms.mean, rel=1e-9)
    assert (frame["prefill_done_ms"] >= frame["admitted_ms"]).all()
    assert (frame["transfer_start_ms"] >= frame["prefill_done_ms"]).all()
    assert (frame["attach_ms"] >= frame["transfer_done_ms"]).all()
    assert (frame["first_ms"] == frame["attach_ms"]).all()


def test_a_number_alone_is_added():
    """Requests with vision tokens are visible so much later; others are not."""
    rows = [
        {"dispatch_ms": 0.0, "isl": 900, "osl": 8, "vision_tokens": 576},
        {"dispatch_ms": 9000.0, "isl": 900, "osl": 8, "vision_tokens": 0},
    ]
    for deployment in (
        pc.Aggregated(pc.Vllm(), encoder=pc.Encoder(latency_ms=25.0)),
        apart(encoder=pc.Encoder(latency_ms=25.0)),
    ):
        first, second = pc.evaluate(pc.Workload.replay(rows), deployment, TIMING).ttft_ms.values
        assert max(first, second) - min(first, second) == pytest.approx(25.0, rel=1e-9)


def test_steady_state_of_three_stages():
    """Little's law over the whole tandem, and the same cycle whoever asks."""
    loop = pc.Workload.closed_loop(shapes=SHAPES, concurrency=6)
    report = pc.evaluate(loop, apart(encoder=encoder(link=EMBEDDINGS)), models("encoder prefill decode"))
    assert report.window.kind == "cycle"
    assert report.throughput_per_s * report.e2e_ms.mean == pytest.approx(6000.0, rel=1e-9)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: pc.Encoder(), "exactly one of both"),
        (lambda: pc.Encoder(engine=pc.Vllm(), latency_ms=1.0), "exactly one of both"),
        (lambda: pc.Encoder(latency_ms=1.0, workers=2), "has no workers"),
        (
            lambda: pc.Encoder(engine=pc.Vllm(), link=LINK.model_copy(update={"transfer": "missing"})),
            "leave them unset",
        ),
        (
            lambda: pc.evaluate(closed(1, 1, [(100, 2)]), apart(encoder=encoder()), TIMING),
            "no request has vision_tokens",
        ),
        (lambda: pc.evaluate(closed(1, 1), apart(encoder=encoder()), models("prefill decode")), "mapping of encoder"),
        (lambda: closed(1, 1, [{"isl": 5, "osl": 2, "vision_tokens": 6}]), "vision_tokens=6"),
        (
            lambda: pc.evaluate(
                closed(1, 1), apart(encoder=pc.Encoder(engine=pc.Sglang(prefill_decode_interval=2))), TIMING
            ),
            "prefill_decode_interval",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(make: Any, told: str):
    """In one line."""
    with pytest.raises(ValueError, match=told) as refusal:
        make()
    assert len(str(refusal.value)) < 200 and "\n" not in str(refusal.value)
