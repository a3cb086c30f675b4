"""Roofline timing: a model card and a GPU card give the linear coefficients, with no measurement.

Prompt chunks are compute bound and decode rows memory bound, so a chunk's time grows with FLOPs and a row's with bytes; what a
pass pays once (reading the weights, launching kernels, starting all-reduces) is the fixed part of both. Peaks are scaled by stated
efficiencies, round figures that are the same for every card; `docs/design/provenance-cards.md` says where they come from (R3).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from passcal.errors import SpecError
from passcal.timing.cards import DTYPES, KV_DTYPES, Dtype, GpuCard, ModelCard, gpu_card, model_card
from passcal.timing.linear import LinearTiming

__all__ = ["HOW", "Roofline"]

HOW: Mapping[str, str] = {
    "a0": "once a pass with chunks: all weights but the embedding table are read, kernels launch, all-reduces start",
    "a1": "a chunk token: 2 FLOPs for each parameter that it takes, attention in a window, all-reduced bytes, KV written",
    "a2": "a chunk token and a token before its chunk: attention FLOPs in the layers without a window",
    "a3": "two tokens of one chunk: the same for half of the pairs, the others being masked (causal)",
    "d0": "once a pass with decode rows: as a0, of the experts only those at the tangent's foot",
    "d1": "a decode row: as a1, with the output head, its logits, a window's KV and the experts that one more row touches",
    "d2": "a token of context: its KV is read, or its attention computed where that is slower, in the layers without a window",
    "combine": "shared: chunks and rows go through the same matmuls; weights, launches and all-reduce starts are paid once",
}


def _check(name: str, value: Any, *, least: float = 0.0, most: float = math.inf, whole: bool = False) -> None:
    """Refuse a value that is not a number from `least` to `most`; a `most` of 1 is a share, which 0 may not be."""
    kind = int if whole else int | float
    if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most or value == math.inf:
        rule = "a whole number" if whole else "a finite number"
        raise SpecError(
            f"{name}={value!r}: must be {rule} from {least:g}" + (f" to {most:g}" if most < math.inf else "")
        )
    if most == 1 and value == 0:
        raise SpecError(f"{name}={value!r}: must be above 0 and at most 1; 1 is the card's own peak")


@dataclass(frozen=True)
class Roofline:
    """Timing of one engine from public figures: `Roofline("llama-3.1-8b", "h100").timing()`.

    Attributes:
        model, gpu: a name (a key of `MODELS`, `GPUS`, in any case, or a usual alias) or a card.
        tensor_parallel: GPUs that split every layer; it divides the attention heads.
        weight_dtype: `bf16`, `fp16`, `fp8`, `int4`, `nvfp4` or `mxfp4` for the layers (`mxfp4`: the experts), the embedding table
            and the output head staying in bf16; None: as in the published checkpoint.
        kv_dtype: `bf16`, `fp16` or `fp8`.
        compute_efficiency, memory_efficiency, link_efficiency: share of the GPU's peak that passes attain, in (0, 1].
        pass_overhead_ms: host work and sampling of a pass, in ms.
        layer_overhead_us: launches and tails of the kernels of one layer, in us; a MoE layer, with twice the kernels, pays it twice.
        link_latency_us: start of one all-reduce, two a layer, in us; nothing on one GPU.
        decode_rows: rows of the decode pass for which the experts touched are exact (elsewhere too many); a dense model has none.
        reserved_bytes: memory of each GPU that is neither weights nor KV: activations, graphs, the driver's context.

    Raises:
        SpecError: an unknown name, a value out of range, or weights that do not fit in the GPUs' memory.
    """

    model: str | ModelCard = "llama-3.1-8b"
    gpu: str | GpuCard = "h100"
    tensor_parallel: int = 1
    weight_dtype: str | None = None
    kv_dtype: str = "bf16"
    compute_efficiency: float = 0.6
    memory_efficiency: float = 0.8
    link_efficiency: float = 0.6
    pass_overhead_ms: float = 0.5
    layer_overhead_us: float = 30.0
    link_latency_us: float = 10.0
    decode_rows: int = 32
    reserved_bytes: float = 2e9

    def __post_init__(self) -> None:
        for name in ("compute_efficiency", "memory_efficiency", "link_efficiency"):
            _check(name, getattr(self, name), most=1)
        for name in ("pass_overhead_ms", "layer_overhead_us", "link_latency_us", "reserved_bytes"):
            _check(name, getattr(self, name))
        for name in ("tensor_parallel", "decode_rows"):
            _check(name, getattr(self, name), least=1, whole=True)
        heads = self.model_card.heads
        if heads % self.tensor_parallel:
            raise SpecError(f"tensor_parallel={self.tensor_parallel}: must divide {heads} heads; use a power of 2")
        if self.weight_dtype not in (None, *DTYPES):
            raise SpecError(f"weight_dtype={self.weight_dtype!r}: use one of {', '.join(DTYPES)}")
        if self.kv_dtype not in KV_DTYPES:
            raise SpecError(f"kv_dtype={self.kv_dtype!r}: use one of {', '.join(KV_DTYPES)}")
        if self._expert_dtype.experts_only and not self.model_card.experts:
            raise SpecError(
                f"weight_dtype={self.weight_dtype!r}: packs experts and the model has none; use fp8 or int4"
            )
        if self._free_bytes(1.0) <= 0:
            fits = [n for n in range(1, heads + 1) if heads % n == 0 and self._free_bytes(0.9, n) > 0]
            remedy = f"use tensor_parallel={fits[0]}" if fits else "use a smaller weight_dtype"
            needed, held = self.weight_bytes / 1e9, self.gpu_card.memory_bytes / 1e9
            rule = f"{needed:.1f} GB of weights do not fit in {held:.1f} GB a {self.gpu_card.name[:40]}"
            raise SpecError(f"tensor_parallel={self.tensor_parallel}: {rule}; {remedy}")

    @property
    def model_card(self) -> ModelCard:
        """The model's dimensions."""
        return model_card(self.model)

    @property
    def gpu_card(self) -> GpuCard:
        """The GPU's peaks."""
        return gpu_card(self.gpu)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the whole model's weights, over all GPUs."""
        model = self.model_card
        experts = model.experts * model.expert_params
        tables = model.total_params - model.dense_params - experts
        return round(2 * tables + self._dense_dtype.bytes * model.dense_params + self._expert_dtype.bytes * experts)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of KV of one token in one copy of the model, a window's layers included: what a hand-off moves."""
        return self.model_card.layers * self._layer_kv_bytes(1)

    def kv_pool_tokens(self, gpu_memory_utilization: float = 0.9, context_tokens: int | None = None) -> int:
        """Tokens whose KV fits beside the weights and the reserve.

        Args:
            gpu_memory_utilization: share of the GPU's memory that the engine may use.
            context_tokens: typical length of a sequence, beyond whose window the window's layers keep nothing; None: they keep all,
                which is never too many.

        Raises:
            SpecError: an argument is out of range, or not one token fits.
        """
        _check("gpu_memory_utilization", gpu_memory_utilization, most=1)
        model, kept = self.model_card, 1.0
        if context_tokens is not None:
            _check("context_tokens", context_tokens, least=1, whole=True)
            kept = min(1.0, model.window / context_tokens) if model.window_layers else 1.0
        layers = model.layers - model.window_layers * (1 - kept)
        tokens = int(self._free_bytes(gpu_memory_utilization) // (layers * self._layer_kv_bytes(self.tensor_parallel)))
        if tokens < 1:
            used = (self.weight_bytes / self.tensor_parallel + self.reserved_bytes) / 1e9
            rule = f"{used:.1f} GB of weights and reserve leave no room for KV; raise it or tensor_parallel"
            raise SpecError(f"gpu_memory_utilization={gpu_memory_utilization}: {rule}")
        return tokens

    def num_gpu_blocks(
        self, block_size: int = 16, gpu_memory_utilization: float = 0.9, context_tokens: int | None = None
    ) -> int:
        """Whole blocks of `block_size` tokens in the pool of `kv_pool_tokens`.

        Raises:
            SpecError: an argument is out of range, or not one block fits.
        """
        _check("block_size", block_size, least=1, whole=True)
        tokens = self.kv_pool_tokens(gpu_memory_utilization, context_tokens)
        if tokens < block_size:
            raise SpecError(
                f"block_size={block_size}: the KV pool holds {tokens} tokens; use smaller blocks or more GPUs"
            )
        return tokens // block_size

    def timing(self) -> LinearTiming:
        """The coefficients, in ms; see `HOW` for what each is made of."""
        ms = {name: sum(parts.values()) for name, parts in self.parts_ms().items()}
        prefill, decode = (ms["a0"], ms["a1"], ms["a2"], ms["a3"]), (ms["d0"], ms["d1"], ms["d2"])
        return LinearTiming(prefill=prefill, decode=decode, combine="shared", gpus=self.tensor_parallel)

    def describe(self) -> dict[str, Any]:
        """What was assumed and how each coefficient arises: `coefficients` holds a total, its parts (ms) and the reason."""
        stated = {field.name: getattr(self, field.name) for field in fields(self)}
        return stated | {
            "model": self.model_card.name,
            "gpu": self.gpu_card.name,
            "weight_dtype": self.weight_dtype or self.model_card.weight_dtype,
            "weight_bytes": self.weight_bytes,
            "kv_bytes_per_token": self.kv_bytes_per_token,
            "combine": HOW["combine"],
            "coefficients": {
                name: {"ms": sum(parts.values()), "parts_ms": parts, "how": HOW[name]}
                for name, parts in self.parts_ms().items()
            },
        }

    def parts_ms(self) -> dict[str, dict[str, float]]:
        """Every coefficient as the parts that sum to it, in ms."""
        model, tp = self.model_card, self.tensor_parallel
        full, window = model.layers - model.window_layers, model.window_layers * model.window
        foot, slope = self._experts_touched()
        fixed, token = self._fixed_ms(), self._token_ms()
        pair = self._compute_ms(model.pair_flops)
        context = max(self._read_ms(self._layer_kv_bytes(tp)), self._compute_ms(model.decode_pair_flops))
        expert = self._read_ms(model.expert_params * self._expert_dtype.bytes / tp)
        dense = self._read_ms((model.dense_params * self._dense_dtype.bytes + model.head_params * 2.0) / tp)
        return {
            "a0": {"weights": dense + model.experts * expert, **fixed},
            "a1": {"window attention": window * pair, **token},
            "a2": {"attention": full * pair},
            "a3": {"attention": full * pair / 2},
            "d0": {"weights": dense + foot * expert, **fixed},
            "d1": {
                "experts": slope * expert,
                "window KV": window * context,
                "head": self._compute_ms(2 * model.head_params),
                "logits": self._read_ms(8.0 * model.vocab / tp),  # 32-bit, written and read back by the sampler
                **token,
            },
            "d2": {"KV": full * context},
        }

    def _fixed_ms(self) -> dict[str, float]:
        """What every pass pays once beside the weights; a MoE layer launches about twice the kernels of a dense one."""
        model = self.model_card
        starts = 2 * model.layers * self.link_latency_us / 1e3 if self.tensor_parallel > 1 else 0.0
        layers = (model.layers + model.moe_layers) * self.layer_overhead_us / 1e3
        return {"pass": self.pass_overhead_ms, "layers": layers, "all-reduce starts": starts}

    def _token_ms(self) -> dict[str, float]:
        """What any token costs, of a chunk or a row: matmuls, all-reduced bytes (a ring's, of 16-bit sums), KV written."""
        model, tp = self.model_card, self.tensor_parallel
        dense = self._compute_ms(2 * model.dense_params, self._dense_dtype.compute)
        experts = self._compute_ms(2 * model.experts_per_token * model.expert_params, self._expert_dtype.compute)
        moved = 2 * model.layers * 2 * (tp - 1) / tp * 2.0 * model.hidden
        return {
            "matmuls": dense + experts,
            "all-reduce": moved / (self.gpu_card.link_bytes_per_s * self.link_efficiency) * 1e3,
            "KV write": self._read_ms(model.layers * self._layer_kv_bytes(tp)),
        }

    def _experts_touched(self) -> tuple[float, float]:
        """Foot and slope of the tangent, at `decode_rows`, to the experts of a layer that so many rows touch.

        Rows choose alike and apart, so each expert is missed by all with probability `(1 - k / E)^rows`. The curve is concave: its
        tangent is exact at `decode_rows` and above it elsewhere. A line through 1 row and `decode_rows` would err without bound beyond.
        """
        experts = self.model_card.experts
        missed = 1 - self.model_card.experts_per_token / experts if experts else 0.0
        if missed == 0:
            return float(experts), 0.0
        untouched = missed**self.decode_rows
        slope = -experts * untouched * math.log(missed)
        return experts * (1 - untouched) - slope * self.decode_rows, slope

    @property
    def _expert_dtype(self) -> Dtype:
        return DTYPES[self.weight_dtype or self.model_card.weight_dtype]

    @property
    def _dense_dtype(self) -> Dtype:
        return DTYPES["bf16"] if self._expert_dtype.experts_only else self._expert_dtype

    def _compute_ms(self, flops: float, compute: str = "bf16") -> float:
        """FLOPs of the whole model, split over the GPUs."""
        return flops / (self.gpu_card.flops_per_s(compute) * self.compute_efficiency * self.tensor_parallel) * 1e3

    def _read_ms(self, gpu_bytes: float) -> float:
        """Bytes that each GPU moves."""
        return gpu_bytes / (self.gpu_card.memory_bytes_per_s * self.memory_efficiency) * 1e3

    def _layer_kv_bytes(self, tensor_parallel: int) -> int:
        """Of a token, on each GPU."""
        return self.model_card.kv_values(tensor_parallel) * KV_DTYPES[self.kv_dtype]

    def _free_bytes(self, utilization: float, tensor_parallel: int | None = None) -> float:
        """What weights and the reserve leave on each GPU."""
        split = tensor_parallel or self.tensor_parallel
        return self.gpu_card.memory_bytes * utilization - self.weight_bytes / split - self.reserved_bytes
