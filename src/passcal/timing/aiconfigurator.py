"""Timing from aiconfigurator's performance database: the installed package is asked what each pass takes.

It is asked for what it measures: one batch of prompts, one step of decode rows, and the parts of a step with both (A4). The parts are put
together here, so a chunk that continues its prompt, or rows whose contexts are shorter than the prompts beside them, are priced as what they are.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

from passcal.core.plan import PassShape
from passcal.errors import SpecError, Unsupported

__all__ = ["KEPT", "AiconfiguratorTiming", "database_engine"]

KEPT = 256  # engines that stay in memory: a frame has one for each way to split a model over GPUs


@dataclass(frozen=True)
class AiconfiguratorTiming:
    """A pass of one rank, priced by the database of the installed `aiconfigurator-core` (extra `aic`), in milliseconds.

    Attributes:
        model: a Hugging Face name, such as `meta-llama/Meta-Llama-3.1-8B`.
        system: a GPU system of the package, such as `h100_sxm`.
        backend: `vllm`, `sglang` or `trtllm`.
        version: of the backend, as summaries name it; None: the package's current one.
        tensor_parallel, pipeline_parallel: GPUs that one pass runs on. A pass lasts from the first stage to the last.
        attention_data_parallel: ranks whose tokens share the experts; each is taken to carry what this one does.
        moe_tensor_parallel, moe_expert_parallel: how experts are split; None where there are none.
        gemm, kvcache, fmha, moe, comm: names of quantisations, as summaries have them; None: the checkpoint's.

    Raises:
        Unsupported: at the first pass, without the package; or a pass that verifies drafts.
        SpecError: at the first pass, if the package cannot build such an engine.
    """

    model: str
    system: str
    backend: str
    version: str | None = None
    tensor_parallel: int = 1
    pipeline_parallel: int = 1
    attention_data_parallel: int = 1
    moe_tensor_parallel: int | None = None
    moe_expert_parallel: int | None = None
    gemm: str | None = None
    kvcache: str | None = None
    fmha: str | None = None
    moe: str | None = None
    comm: str | None = None
    pure: ClassVar[bool] = True

    @property
    def gpus(self) -> int:
        """GPUs that a pass runs on."""
        return self.tensor_parallel * self.pipeline_parallel

    def pass_ms(self, shape: PassShape) -> float:
        """Milliseconds of a pass of this shape.

        Rows are priced at their mean context. Chunks that differ are a batch of their mean whose attention grows with the pairs of tokens that attend.
        """
        if shape.draft_tokens:
            raise Unsupported(
                f"draft_tokens={shape.draft_tokens}: the database is asked without drafts; leave them out"
            )
        engine = database_engine(self)
        try:
            return float(asked_ms(engine, shape))
        except Exception as error:  # whatever the package raises where it has no data
            raise SpecError(
                f"{named(self)}: aiconfigurator has no price ({one_line(error)}); name another, or give timing="
            ) from error


def asked_ms(engine: Any, shape: PassShape) -> Any:
    """What the package's engine says of a pass."""
    rows = shape.decode_requests
    context = round(shape.decode_kv_tokens / rows) if rows else 2
    before = max(1, context - 1)  # the database counts what precedes the token that a row writes
    if not shape.chunks:
        return engine.decode_step_latency(rows, before, 1) if rows else 0.0
    count, (new, past) = len(shape.chunks), shape.chunks[0]
    alike = shape.chunks.count(shape.chunks[0]) == count
    if alike and not rows:
        return engine.predict_prefill_latency(count, past + new, past)
    if not alike:
        new, past = round(shape.prefill_tokens / count), round(shape.prefill_kv_tokens / count)
    pairs = 1.0 if alike else attended(shape.chunks) / attended(((new, past),) * count)
    _, shared, _, decode = engine.mixed_step_breakdown(shape.prefill_tokens, rows, before, 1, 0)
    attention = engine.mixed_step_breakdown(count * (past + new), 0, past + new, 1, past)[2]
    return shared + decode + pairs * attention


def attended(chunks: tuple[tuple[int, int], ...]) -> float:
    """Pairs of tokens that attend: each of a chunk to all before it."""
    return sum(new * past + new * new / 2 for new, past in chunks)


@lru_cache(maxsize=KEPT)
def database_engine(timing: AiconfiguratorTiming) -> Any:
    """The package's own engine for such a timing."""
    try:
        from aiconfigurator_core.sdk.engine import EngineHandle
    except ImportError:
        raise Unsupported(
            "AiconfiguratorTiming: the package aiconfigurator-core is not installed; pip install 'passcal[aic]'"
        ) from None
    try:
        return EngineHandle.compile(
            timing.model,
            timing.system,
            timing.backend,
            backend_version=timing.version,
            tp_size=timing.tensor_parallel,
            pp_size=timing.pipeline_parallel,
            attention_dp_size=timing.attention_data_parallel,
            moe_tp_size=timing.moe_tensor_parallel,
            moe_ep_size=timing.moe_expert_parallel,
            gemm_quant_mode=timing.gemm,
            kvcache_quant_mode=timing.kvcache,
            fmha_quant_mode=timing.fmha,
            moe_quant_mode=timing.moe,
            comm_quant_mode=timing.comm,
        )
    except Exception as error:  # whatever the package raises for a name or a split that it does not know
        raise SpecError(
            f"{named(timing)}: aiconfigurator has no such engine ({one_line(error)}); name another, or give timing="
        ) from error


def named(timing: AiconfiguratorTiming) -> str:
    """The engine in a few words."""
    return f"{timing.model} on {timing.system} with {timing.backend} {timing.version or ''}".strip()[:70]


def one_line(error: Exception) -> str:
    """The beginning of a message."""
    return " ".join(str(error).split())[:60]
