"""What the roofline knows by name: dimensions of published models, peaks of GPUs, sizes of number formats.

Figures are the publishers' own; `docs/design/provenance-cards.md` names the source of each card (clause R1, R2).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple, TypeVar

from passcal.errors import SpecError

__all__ = ["DTYPES", "GPUS", "KV_DTYPES", "MODELS", "Dtype", "GpuCard", "ModelCard", "gpu_card", "model_card"]


class Dtype(NamedTuple):
    """How a weight is stored and at which of a GPU's peaks it multiplies.

    Attributes:
        bytes: of one weight, its share of the block's scales included.
        compute: the peak, `"bf16"`, `"fp8"` or `"fp4"`; a GPU that lacks it unpacks the weights and multiplies in bf16.
        experts_only: the format is used for the experts of a MoE model, all else staying in bf16.
    """

    bytes: float
    compute: str
    experts_only: bool = False


DTYPES: Mapping[str, Dtype] = {
    "bf16": Dtype(2.0, "bf16"),
    "fp16": Dtype(2.0, "bf16"),
    "fp8": Dtype(1.0, "fp8"),
    "int4": Dtype((4 + 20 / 128) / 8, "bf16"),  # groups of 128: a 16-bit scale and a 4-bit zero point
    "nvfp4": Dtype((4 + 8 / 16) / 8, "fp4"),  # blocks of 16: an 8-bit scale
    "mxfp4": Dtype((4 + 8 / 32) / 8, "bf16", experts_only=True),  # blocks of 32: an 8-bit scale
}
KV_DTYPES: Mapping[str, int] = {"bf16": 2, "fp16": 2, "fp8": 1}


@dataclass(frozen=True)
class ModelCard:
    """Dimensions of a decoder-only transformer with gated FFNs, as its configuration file states them; sizes in elements.

    Attributes:
        head_dim: of a query, key and value head; of MLA without the rotary part.
        ffn: inner size of a dense layer's FFN (0: there is no dense layer).
        tied: the output head is the embedding table, held once.
        experts, experts_per_token, expert_ffn, shared_ffn: of a MoE layer: routed experts, those a token takes, the inner
            size of one, the inner size of what every token takes beside them.
        dense_layers: layers of a MoE model that have the dense FFN instead.
        kv_rank, query_rank, rope_dim: of MLA: latent size of KV (0: ordinary attention), of the query (0: none), rotary part.
        window, window_layers: tokens that a sliding-window layer looks back, and how many layers do.
        extra_params: parameters that are loaded but that a text pass does not read, such as a vision tower.
        weight_dtype: of the published checkpoint, a key of `DTYPES`.

    Raises:
        SpecError: a dimension is not a whole number in its range, or two of them contradict.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    dense_layers: int = 0
    kv_rank: int = 0
    query_rank: int = 0
    rope_dim: int = 0
    window: int = 0
    window_layers: int = 0
    extra_params: int = 0
    weight_dtype: str = "bf16"

    def __post_init__(self) -> None:
        for field in fields(self):
            value, least = getattr(self, field.name), int(field.name in _POSITIVE)
            if field.type is int and (isinstance(value, bool) or not isinstance(value, int) or value < least):
                raise SpecError(f"ModelCard.{field.name}={value!r}: must be a whole number from {least}; correct it")
        if self.weight_dtype not in DTYPES:
            raise SpecError(f"ModelCard.weight_dtype={self.weight_dtype!r}: must be one of {', '.join(DTYPES)}")
        for broken, rule in (
            (self.heads % self.kv_heads > 0, f"heads={self.heads}: must be a multiple of kv_heads={self.kv_heads}"),
            (self.experts_per_token > self.experts, f"experts_per_token={self.experts_per_token}: over the experts"),
            (self.experts > 0 and not self.experts_per_token * self.expert_ffn, "experts: need their number and size"),
            (self.dense_layers > self.layers, f"dense_layers={self.dense_layers}: over layers={self.layers}"),
            (self.window_layers > self.layers, f"window_layers={self.window_layers}: over layers={self.layers}"),
            (self.window_layers > 0 and self.window == 0, "window=0: window_layers need the tokens they look back"),
        ):
            if broken:
                raise SpecError(f"ModelCard {self.name[:40]!r}: {rule}; correct one of them")

    @property
    def moe_layers(self) -> int:
        """Layers with routed experts."""
        return self.layers - self.dense_layers if self.experts else 0

    @property
    def attention_params(self) -> int:
        """Projection parameters of one layer's attention."""
        out = self.heads * self.head_dim * self.hidden
        if not self.kv_rank:
            return 2 * out + 2 * self.kv_heads * self.head_dim * self.hidden
        query = self.heads * (self.head_dim + self.rope_dim)
        queries = self.query_rank * (self.hidden + query) if self.query_rank else self.hidden * query
        latent = self.hidden * (self.kv_rank + self.rope_dim) + self.kv_rank * self.heads * 2 * self.head_dim
        return queries + latent + out

    @property
    def dense_params(self) -> int:
        """Parameters of all layers' matmuls that every token takes: attention, dense and shared FFNs, routers."""
        ffn = 3 * self.hidden * (self.ffn * (self.layers - self.moe_layers) + self.shared_ffn * self.moe_layers)
        return self.attention_params * self.layers + ffn + self.hidden * self.experts * self.moe_layers

    @property
    def expert_params(self) -> int:
        """Parameters of one routed expert, summed over the layers that have it."""
        return 3 * self.hidden * self.expert_ffn * self.moe_layers

    @property
    def head_params(self) -> int:
        """Parameters of the output head; the embedding table has as many."""
        return self.vocab * self.hidden

    @property
    def total_params(self) -> int:
        """All parameters; biases and the norms inside attention (under 0.1% in every card) are left out."""
        norms = (2 * self.layers + 1) * self.hidden
        layers = self.dense_params + self.experts * self.expert_params
        return layers + self.head_params * (1 if self.tied else 2) + norms + self.extra_params

    @property
    def active_params(self) -> int:
        """Parameters that one decode row multiplies: its layers, its experts and the output head."""
        return self.dense_params + self.experts_per_token * self.expert_params + self.head_params

    @property
    def pair_flops(self) -> int:
        """FLOPs of one layer for a query and a key in a prompt chunk: score and weighted sum, 2 each an element."""
        return 2 * self.heads * (2 * self.head_dim + self.rope_dim)

    @property
    def decode_pair_flops(self) -> int:
        """The same in a decode row, where MLA works on the latent itself (the up-projections are absorbed)."""
        return 2 * self.heads * (2 * self.kv_rank + self.rope_dim) if self.kv_rank else self.pair_flops

    def kv_values(self, tensor_parallel: int = 1) -> int:
        """Elements of KV that one layer keeps of a token on each GPU: heads are split while they last, a latent never."""
        if self.kv_rank:
            return self.kv_rank + self.rope_dim
        return 2 * -(-self.kv_heads // tensor_parallel) * self.head_dim


_POSITIVE = {"layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"}


@dataclass(frozen=True)
class GpuCard:
    """Peaks of one GPU: dense FLOPs (no sparsity) a second, bytes, bytes a second.

    Attributes:
        memory_bytes: what the driver reports as total.
        link_bytes_per_s: to its peers, in one direction.
        fp8_flops_per_s, fp4_flops_per_s: 0 where the GPU does not multiply in that format.

    Raises:
        SpecError: a figure is negative or not finite, or zero where it may not be.
    """

    name: str
    bf16_flops_per_s: float
    memory_bytes: float
    memory_bytes_per_s: float
    link_bytes_per_s: float
    fp8_flops_per_s: float = 0.0
    fp4_flops_per_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            value, optional = getattr(self, field.name), field.name.startswith("fp")
            real = isinstance(value, int | float) and not isinstance(value, bool)
            if not real or not (0 < value < float("inf") or (optional and value == 0)):
                raise SpecError(f"GpuCard.{field.name}={value!r}: must be finite and above 0; correct it")

    def flops_per_s(self, compute: str) -> float:
        """The peak in `"bf16"`, `"fp8"` or `"fp4"`, bf16 standing in for a format that the GPU lacks."""
        return {"fp8": self.fp8_flops_per_s, "fp4": self.fp4_flops_per_s}.get(compute) or self.bf16_flops_per_s


MODELS: Mapping[str, ModelCard] = {
    card.name: card
    for card in (
        ModelCard("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256),
        ModelCard("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256),
        ModelCard("llama-3.1-405b", 126, 16384, 128, 8, 128, 53248, 128256),
        ModelCard("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936),
        ModelCard("qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936),
        ModelCard("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 0, 151936, False, 128, 8, 768),
        ModelCard("qwen3-235b-a22b", 94, 4096, 64, 4, 128, 0, 151936, False, 128, 8, 1536),
        ModelCard(
            "gpt-oss-20b", 24, 2880, 64, 8, 64, 0, 201088, False, 32, 4, 2880,
            window=128, window_layers=12, weight_dtype="mxfp4",
        ),
        ModelCard(
            "gpt-oss-120b", 36, 2880, 64, 8, 64, 0, 201088, False, 128, 4, 2880,
            window=128, window_layers=18, weight_dtype="mxfp4",
        ),
        ModelCard(
            "deepseek-v3", 61, 7168, 128, 128, 128, 18432, 129280, False, 256, 8, 2048, 2048, dense_layers=3,
            kv_rank=512, query_rank=1536, rope_dim=64, weight_dtype="fp8",
        ),
        ModelCard("mixtral-8x7b", 32, 4096, 32, 8, 128, 0, 32000, False, 8, 2, 14336),
        ModelCard(
            "gemma-3-27b", 62, 5376, 32, 16, 128, 21504, 262208, True,
            window=1024, window_layers=52, extra_params=417_000_000,
        ),
        ModelCard("mistral-7b", 32, 4096, 32, 8, 128, 14336, 32768),
    )
}  # fmt: skip
"""Models by name."""

_MIB = 2.0**20
GPUS: Mapping[str, GpuCard] = {
    card.name: card
    for card in (
        GpuCard("a100", 312e12, 81920 * _MIB, 2.039e12, 300e9),
        GpuCard("h100", 989.4e12, 81559 * _MIB, 3.35e12, 450e9, 1978.9e12),
        GpuCard("h200", 989.4e12, 143771 * _MIB, 4.8e12, 450e9, 1978.9e12),
        GpuCard("b200", 2250e12, 183359 * _MIB, 7.7e12, 900e9, 4500e12, 9000e12),
        GpuCard("l4", 121e12, 23034 * _MIB, 300e9, 32e9, 242.5e12),
        GpuCard("l40s", 362e12, 46068 * _MIB, 864e9, 32e9, 733e12),
        GpuCard("rtx-4090", 165.2e12, 24564 * _MIB, 1.008e12, 32e9, 330.3e12),
        GpuCard("mi300x", 1307.4e12, 196592 * _MIB, 5.3e12, 448e9, 2614.9e12),
    )
}
"""GPUs by name: the SXM or OAM module where a family has several."""

_MODEL_ALIASES = {
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "deepseek-r1": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "mixtral-8x7b-v0.1": "mixtral-8x7b",
    "qwen3-235b": "qwen3-235b-a22b",
    "qwen3-30b": "qwen3-30b-a3b",
}
_GPU_ALIASES = {"4090": "rtx-4090", "rtx4090": "rtx-4090", "mi300": "mi300x"}
_MODEL_NOISE = re.compile(r"^.*/|^meta-(?=llama)|-(instruct|it|chat|hf|base|thinking|2507|0324|0528|v0\.[23])(?=-|$)")
_GPU_NOISE = re.compile(
    r"^(nvidia|amd|instinct|geforce|hgx|dgx)-|-(sxm\d?|oam|80gb|141gb|24gb|48gb|192gb|hbm3e?)(?=-|$)"
)

_Card = TypeVar("_Card", ModelCard, GpuCard)


def _look_up(
    what: str, name: str, known: Mapping[str, _Card], aliases: Mapping[str, str], noise: re.Pattern[str]
) -> _Card:
    key, before = re.sub(r"[\s_]+", "-", name.strip().lower()), ""
    while key != before:
        before, key = key, noise.sub("", key)
    card = known.get(aliases.get(key, key))
    if card is None:
        raise SpecError(f"{what}={name[:12]!r}: use one of {' '.join(known)}")
    return card


def model_card(model: str | ModelCard) -> ModelCard:
    """The card of a model by name (any case; publisher and `-Instruct` are dropped), or the card itself.

    Raises:
        SpecError: the name is not known; the message lists those that are.
    """
    return (
        model if isinstance(model, ModelCard) else _look_up("model", str(model), MODELS, _MODEL_ALIASES, _MODEL_NOISE)
    )


def gpu_card(gpu: str | GpuCard) -> GpuCard:
    """The card of a GPU by name (any case; vendor and `-SXM` are dropped), or the card itself.

    Raises:
        SpecError: the name is not known; the message lists those that are.
    """
    return gpu if isinstance(gpu, GpuCard) else _look_up("gpu", str(gpu), GPUS, _GPU_ALIASES, _GPU_NOISE)
