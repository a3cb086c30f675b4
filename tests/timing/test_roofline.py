"""Roofline: published figures are met, the physics is held by hand-made numbers, and wrong input is refused."""

import itertools
from dataclasses import replace
from typing import Any

import pytest

from passcal.errors import SpecError
from passcal.timing.cards import DTYPES, GPUS, MODELS, GpuCard, ModelCard, gpu_card, model_card
from passcal.timing.roofline import HOW, Roofline

# Parameters as the publishers count them: all, and active a token (some count the embedding table among the active).
PUBLISHED = {
    "llama-3.1-8b": (8.030e9, 8.03e9),
    "llama-3.1-70b": (70.554e9, 70.55e9),
    "llama-3.1-405b": (405.853e9, 405.85e9),
    "qwen3-8b": (8.19e9, 8.19e9),
    "qwen3-32b": (32.76e9, 32.76e9),
    "qwen3-30b-a3b": (30.5e9, 3.3e9),
    "qwen3-235b-a22b": (235e9, 22e9),
    "gpt-oss-20b": (20.91e9, 3.61e9),
    "gpt-oss-120b": (116.83e9, 5.13e9),
    "deepseek-v3": (671e9, 37e9),
    "mixtral-8x7b": (46.7e9, 12.9e9),
    "gemma-3-27b": (27.4e9, 27.0e9),
    "mistral-7b": (7.248e9, 7.25e9),
}
ROOMY = GpuCard("roomy", 1e15, 4e12, 4e12, 400e9, 2e15)
FREE: dict[str, Any] = dict.fromkeys(("compute_efficiency", "memory_efficiency", "link_efficiency"), 1.0)
FREE |= dict.fromkeys(("pass_overhead_ms", "layer_overhead_us", "link_latency_us"), 0.0)


def coefficients(**knobs: Any) -> dict[str, float]:
    timing = Roofline(**knobs).timing()
    return dict(zip(("a0", "a1", "a2", "a3", "d0", "d1", "d2"), timing.prefill + timing.decode, strict=True))


def decode_ms(rows: int = 1, context: int = 1000, **knobs: Any) -> float:
    c = coefficients(**knobs)
    return c["d0"] + c["d1"] * rows + c["d2"] * rows * context


@pytest.mark.parametrize("name", MODELS)
def test_parameter_counts_meet_the_published_ones(name: str) -> None:
    card, (total, active) = MODELS[name], PUBLISHED[name]
    assert card.total_params == pytest.approx(total, rel=0.005)
    embedding = 0 if card.tied else card.head_params
    assert 0.98 * card.active_params <= active <= 1.02 * (card.active_params + embedding)


@pytest.mark.parametrize("dtype", [None, "bf16", "fp8", "int4", "nvfp4"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_has_sane_coefficients_and_says_why(name: str, dtype: str | None) -> None:
    roof = Roofline(name, ROOMY, tensor_parallel=8, weight_dtype=dtype)
    c = coefficients(model=name, gpu=ROOMY, tensor_parallel=8, weight_dtype=dtype)
    assert all(value > 0 for value in c.values())
    assert c["a2"] == pytest.approx(2 * c["a3"])
    assert c["d0"] <= c["a0"] and c["d1"] > c["a1"] * 0.5
    told = roof.describe()
    assert {key: told["coefficients"][key]["ms"] for key in c} == c
    assert all(told["coefficients"][key]["how"] == HOW[key] for key in c)
    assert told["weight_dtype"] == dtype or dtype is None
    assert roof.timing().combine == "shared"


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_prices_a_small_model(gpu: str) -> None:
    roof = Roofline("mistral-7b", gpu)
    read_ms = roof.weight_bytes / GPUS[gpu].memory_bytes_per_s * 1e3
    assert read_ms < decode_ms(model="mistral-7b", gpu=gpu) < 2 * read_ms + 2
    assert 1_000 < roof.kv_pool_tokens() < 2_000_000
    assert coefficients(model="mistral-7b", gpu=gpu, weight_dtype="int4")["d0"] < roof.timing().decode[0]


@pytest.mark.parametrize(("model", "gpu"), list(itertools.product(MODELS, GPUS)))
def test_memory_needed_and_had(model: str, gpu: str) -> None:
    """A pair either fits, with room for a block, or is refused with a split that does fit."""
    try:
        assert Roofline(model, gpu).num_gpu_blocks() > 0
    except SpecError as refusal:
        text = str(refusal)
        assert len(text) < 200 and "\n" not in text
        if "use tensor_parallel=" in text:
            assert Roofline(model, gpu, int(text.rsplit("=", 1)[1])).num_gpu_blocks() > 0


def test_llama_8b_on_one_h100() -> None:
    roof = Roofline("llama-3.1-8b", "h100")
    assert roof.weight_bytes == pytest.approx(16.06e9, rel=1e-3)
    assert roof.kv_bytes_per_token == 131072
    peak_ms = roof.weight_bytes / 3.35e12 * 1e3
    assert peak_ms < decode_ms() < 2 * peak_ms
    assert roof.num_gpu_blocks(32) == roof.kv_pool_tokens() // 32


def test_ideal_coefficients_by_hand() -> None:
    c = coefficients(model="llama-3.1-8b", gpu="h100", **FREE)
    layers = 32 * (4096 * 4096 * 2 + 4096 * 1024 * 2 + 3 * 4096 * 14336)
    head = 128256 * 4096
    assert c["d0"] == c["a0"] == pytest.approx((layers + head) * 2 / 3.35e12 * 1e3)
    assert c["a1"] == pytest.approx((2 * layers / 989.4e12 + 131072 / 3.35e12) * 1e3)
    assert c["a2"] == pytest.approx(4 * 32 * 128 * 32 / 989.4e12 * 1e3)
    assert c["d1"] == pytest.approx(c["a1"] + (2 * head / 989.4e12 + 8 * 128256 / 3.35e12) * 1e3)
    assert c["d2"] == pytest.approx(131072 / 3.35e12 * 1e3)


def test_ideal_split_and_latent_attention_by_hand() -> None:
    c = coefficients(model="llama-3.1-8b", gpu="h100", tensor_parallel=4, **FREE)
    one = coefficients(model="llama-3.1-8b", gpu="h100", **FREE)
    sums = 2 * 32 * 4096 * 2  # two all-reduces a layer, 16-bit; a ring sends and takes each element 2 * 3/4 times
    assert c["a1"] == pytest.approx(one["a1"] / 4 + sums * 1.5 / 450e9 * 1e3)
    started = coefficients(model="llama-3.1-8b", gpu="h100", tensor_parallel=4, **FREE | {"link_latency_us": 10.0})
    assert started["d0"] == pytest.approx(c["d0"] + 0.64)
    latent = coefficients(model="deepseek-v3", gpu=ROOMY, tensor_parallel=8, **FREE)
    assert latent["a2"] == pytest.approx(61 * 128 * 2 * (192 + 128) / 8 / 1e15 * 1e3)


def test_kv_pool_is_near_a_measured_one() -> None:
    """vLLM 0.19 found 2588 blocks for Llama-3.1-8B on an RTX 4090 with a 2048-token budget; the reserve is for larger ones."""
    assert 0.9 * 2588 < Roofline("llama-3.1-8b", "rtx-4090").num_gpu_blocks() < 2588


# Mean TPOT (ms) of Llama-3.1-70B fp8, vLLM, 1024 tokens in, 8192 nominal (nine tenths of it real) out, 16 clients.
@pytest.mark.parametrize(
    ("gpu", "tp", "tpot"), [("h200", 2, 17.18), ("h200", 4, 11.29), ("b200", 2, 11.32), ("b200", 8, 7.03)]
)
def test_decode_is_near_measured_ones(gpu: str, tp: int, tpot: float) -> None:
    knobs = {"model": "llama-3.1-70b", "gpu": gpu, "tensor_parallel": tp, "weight_dtype": "fp8"}
    assert decode_ms(16, 1024 + 3686, **knobs) == pytest.approx(tpot, rel=0.2)


@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-235b-a22b", "deepseek-v3"])
def test_doubling_the_split_less_than_halves(model: str) -> None:
    for tp in (1, 2, 4):
        one, two = (
            coefficients(model=model, gpu=replace(GPUS["h200"], memory_bytes=2e12), tensor_parallel=n)
            for n in (tp, 2 * tp)
        )
        assert all(one[key] / 2 < two[key] for key in ("a0", "a1", "d0", "d1"))
        assert two["a0"] < one["a0"] and two["d0"] < one["d0"]
        assert two["a2"] == pytest.approx(one["a2"] / 2)


@pytest.mark.parametrize(
    ("knob", "low", "high", "keys"),
    [
        ("compute_efficiency", 0.4, 0.8, ("a1", "a2", "a3", "d1")),
        ("memory_efficiency", 0.4, 0.8, ("a0", "a1", "d0", "d1", "d2")),
        ("link_efficiency", 0.4, 0.8, ("a1", "d1")),
        ("pass_overhead_ms", 2.0, 1.0, ("a0", "d0")),
        ("layer_overhead_us", 20.0, 10.0, ("a0", "d0")),
        ("link_latency_us", 20.0, 10.0, ("a0", "d0")),
        ("weight_dtype", "bf16", "fp8", ("a0", "a1", "d0", "d1")),
        ("kv_dtype", "bf16", "fp8", ("a1", "d1", "d2")),
        ("decode_rows", 64, 8, ("d0",)),
        ("decode_rows", 8, 64, ("d1",)),
        ("gpu", "h100", "b200", ("a0", "a1", "a2", "a3", "d0", "d1", "d2")),
    ],
)
def test_each_knob_moves_its_coefficients(knob: str, low: Any, high: Any, keys: tuple[str, ...]) -> None:
    base = {"model": "mixtral-8x7b", "gpu": "h100", "tensor_parallel": 4}
    before, after = coefficients(**base | {knob: low}), coefficients(**base | {knob: high})
    assert all(after[key] < before[key] for key in keys)
    assert knob == "decode_rows" or all(after[key] == before[key] for key in before if key not in keys)


@pytest.mark.parametrize("name", [name for name, card in MODELS.items() if card.experts])
@pytest.mark.parametrize("at", [1, 16, 256])
def test_experts_touched_are_exact_where_asked_and_too_many_elsewhere(name: str, at: int) -> None:
    card = MODELS[name]
    expert = DTYPES[card.weight_dtype].bytes * card.expert_params / ROOMY.memory_bytes_per_s * 1e3
    parts = Roofline(name, ROOMY, decode_rows=at, **FREE).parts_ms()
    others = parts["a0"]["weights"] - card.experts * expert

    for rows in (1, 2, at * 0.9999, at, at * 1.0001, 256):
        touched = (parts["d0"]["weights"] - others + parts["d1"]["experts"] * rows) / expert
        expected = card.experts * (1 - (1 - card.experts_per_token / card.experts) ** rows)
        assert touched == pytest.approx(expected) if rows == at else touched >= expected * (1 - 1e-9)


def test_kv_is_split_while_heads_last_and_a_latent_never() -> None:
    def read_ms(model: str, tp: int) -> float:
        return coefficients(model=model, gpu=ROOMY, tensor_parallel=tp)["d2"]

    assert read_ms("llama-3.1-8b", 8) == pytest.approx(read_ms("llama-3.1-8b", 1) / 8)
    assert read_ms("llama-3.1-8b", 16) == read_ms("llama-3.1-8b", 8)
    assert Roofline("deepseek-v3", ROOMY).kv_bytes_per_token == 61 * (512 + 64) * 2
    latent = 61 * 576 * 2 / (4e12 * 0.8) * 1e3
    assert read_ms("deepseek-v3", 8) == pytest.approx(latent)
    assert (
        read_ms("deepseek-v3", 1) > latent
    )  # 128 heads on one GPU: computing with the latent takes longer than reading it


def test_windows_cost_a_row_and_not_a_context() -> None:
    sliding = MODELS["gemma-3-27b"]
    full = replace(sliding, window=0, window_layers=0)
    with_window, without = (coefficients(model=card, gpu=ROOMY) for card in (sliding, full))
    for term in ("a2", "a3", "d2"):
        assert with_window[term] == pytest.approx(without[term] * 10 / 62)
    assert with_window["d1"] == pytest.approx(without["d1"] + 1024 * without["d2"] * 52 / 62)
    assert with_window["a1"] == pytest.approx(without["a1"] + 1024 * without["a2"] * 52 / 62)
    pool = Roofline(sliding, "h100").kv_pool_tokens
    assert pool() == pool(context_tokens=1024) < pool(context_tokens=8192)
    assert pool(context_tokens=10**9) == pytest.approx(pool() * 62 / 10, rel=1e-3)


def test_parts_that_only_some_models_have() -> None:
    mixtral = MODELS["mixtral-8x7b"]
    assert mixtral.dense_params == 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 4096 * 8)
    dense, routed = (
        Roofline(m, ROOMY, layer_overhead_us=10).parts_ms()["d0"]["layers"] for m in ("mistral-7b", mixtral)
    )
    assert (dense, routed) == pytest.approx((0.32, 0.64))
    assert [8 * DTYPES[d].bytes for d in ("int4", "nvfp4", "mxfp4")] == [4.15625, 4.5, 4.25]


@pytest.mark.parametrize(("name", "gib"), [("gpt-oss-20b", 12.8), ("gpt-oss-120b", 60.8)])
def test_packed_experts_weigh_what_the_checkpoint_does(name: str, gib: float) -> None:
    assert Roofline(name, ROOMY).weight_bytes == pytest.approx(gib * 2**30, rel=0.02)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("meta-llama/Meta_Llama_3.1_8B-Instruct", "llama-3.1-8b"),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("H100_SXM", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_usual_names(given: str, name: str) -> None:
    assert (model_card(given) is MODELS[name]) if name in MODELS else (gpu_card(given) is GPUS[name])


def test_cards_of_ones_own() -> None:
    tiny = ModelCard("tiny", 2, 64, 4, 2, 16, 128, 1000)
    roof = Roofline(tiny, replace(GPUS["l4"], name="mine"))
    assert roof.kv_bytes_per_token == 2 * 2 * 2 * 16 * 2
    assert (roof.describe()["model"], roof.describe()["gpu"]) == ("tiny", "mine")


@pytest.mark.parametrize(
    ("knob", "values"),
    [
        ("tensor_parallel", (3, 0, True, 2.0)),
        ("decode_rows", (0, 1.5)),
        ("compute_efficiency", (0, 1.01, float("nan"))),
        ("memory_efficiency", (0.0, -1)),
        ("link_efficiency", (2, "1")),
        ("pass_overhead_ms", (-0.1, float("inf"))),
        ("layer_overhead_us", (None, float("nan"))),
        ("reserved_bytes", (-1, float("inf"))),
        ("weight_dtype", ("fp7", "mxfp4", "")),
        ("kv_dtype", ("int4", None)),
        ("model", ("a-model-of-which-nobody-heard", "mistral-7b-v0.1")),
        ("gpu", ("a-gpu-of-which-nobody-heard", "h100-pcie", "a100-40gb", "")),
        ("gpu_memory_utilization", (0, 1.1, 0.1)),
        ("context_tokens", (0, 1.5)),
        ("block_size", (0, 10**9)),
    ],
)
def test_refusals_say_value_rule_and_remedy(knob: str, values: tuple[Any, ...]) -> None:
    known = {"model": MODELS, "gpu": GPUS}.get(knob, {})
    for value in values:
        with pytest.raises(SpecError) as refusal:
            _ = Roofline(**{knob: value}) if hasattr(Roofline, knob) else Roofline().num_gpu_blocks(**{knob: value})
        text = str(refusal.value)
        assert text.startswith(f"{knob}={value!r}"[:15]) and len(text) < 200 and "\n" not in text
        assert all(name in text for name in known)


def test_weights_that_do_not_fit() -> None:
    with pytest.raises(SpecError, match=r"141.1 GB of weights do not fit in 85.5 GB a h100; use tensor_parallel=2"):
        Roofline("llama-3.1-70b")
    assert Roofline("llama-3.1-70b", tensor_parallel=2).num_gpu_blocks() > 0


@pytest.mark.parametrize(
    ("card", "broken"),
    [
        (MODELS["llama-3.1-8b"], {"layers": 0}),
        (MODELS["llama-3.1-8b"], {"kv_heads": 5}),
        (MODELS["mixtral-8x7b"], {"experts_per_token": 9}),
        (MODELS["deepseek-v3"], {"dense_layers": 62}),
        (MODELS["gemma-3-27b"], {"window": 0}),
        (MODELS["gemma-3-27b"], {"window_layers": 63}),
        (GPUS["h100"], {"memory_bytes": 0}),
        (GPUS["h100"], {"bf16_flops_per_s": float("nan")}),
        (GPUS["h100"], {"fp8_flops_per_s": -1.0}),
    ],
)
def test_contradictory_cards(card: Any, broken: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=type(card).__name__):
        replace(card, **broken)
