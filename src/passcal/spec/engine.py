"""Scheduler and KV knobs of one worker, in the engine's own option names and with its defaults."""

from typing import Any, Literal

from pydantic import model_validator

from passcal.errors import SpecError
from passcal.spec.base import Count, Flag, Fraction, Spec, Tokens
from passcal.spec.sglang import HostLoop, Sglang
from passcal.spec.trtllm import AttentionDpBalance, Trtllm
from passcal.spec.vllm_parts import Launch, Speculation

__all__ = [
    "ENGINES",
    "AttentionDpBalance",
    "EngineSpec",
    "HostLoop",
    "Launch",
    "Sglang",
    "Speculation",
    "Trtllm",
    "Vllm",
    "engine",
]


class Vllm(Spec):
    """A vLLM worker.

    Attributes:
        max_num_batched_tokens: token budget of a pass; at least `max_num_seqs`, as vLLM itself demands (V3).
        max_num_seqs: seats: sequences that run at a time.
        enable_chunked_prefill: whether a prompt may be cut to the budget that is left (V11).
        long_prefill_token_threshold: largest chunk of a sequence in a pass while others are there; 0 is off (V10).
        async_scheduling: whether a pass is planned when the one before it starts (V12); unset is the engine's default, on.
        num_gpu_blocks: KV blocks, the null block included (V7); None: memory never binds.
        block_size: tokens of a block.
        enable_prefix_caching: whether blocks are shared by content (V9).
        scheduler_reserve_full_isl: whether a whole prompt must fit the free blocks to be admitted (V6).
        watermark: fraction of blocks kept free when requests are admitted (V7).
        prefill_schedule_interval: passes between prefills with attention data parallelism (V15).
        max_model_len: prompt plus output at which generation stops; a prompt at or over it is refused (E2).
        data_parallel_size: ranks that run in lockstep (E1).
        launch: what launching a pass takes, under async scheduling on one rank a worker (V14); None: nothing.
        speculation: drafts of decode rows (V16); None: none.
        host_offload: a CPU tier for KV: under async scheduling no sequence of the pass in flight is preempted (V13).

    Raises:
        SpecError: a value out of range, an unknown option, or a budget below the seats.
    """

    backend: Literal["vllm"] = "vllm"
    max_num_batched_tokens: Count = 8192
    max_num_seqs: Count = 256
    enable_chunked_prefill: Flag = True
    long_prefill_token_threshold: Tokens = 0
    async_scheduling: Flag | None = None
    num_gpu_blocks: Count | None = None
    block_size: Count = 16
    enable_prefix_caching: Flag = True
    scheduler_reserve_full_isl: Flag = True
    watermark: Fraction = 0.0
    prefill_schedule_interval: Count = 1
    max_model_len: Count | None = None
    data_parallel_size: Count = 1
    launch: Launch | None = None
    speculation: Speculation | None = None
    host_offload: Flag = False

    @model_validator(mode="after")
    def _rules(self) -> "Vllm":
        budget, seats = self.max_num_batched_tokens, self.max_num_seqs
        if budget < seats:
            raise SpecError(
                f"max_num_batched_tokens={budget}: must be at least max_num_seqs={seats}, or decodes starve; raise the one or lower the other"
            )
        if self.num_gpu_blocks is not None and self.num_gpu_blocks < 2:
            raise SpecError(
                f"num_gpu_blocks={self.num_gpu_blocks}: one block is the null block; give at least 2, or None for no limit"
            )
        return self


EngineSpec = Vllm | Sglang | Trtllm
ENGINES: dict[str, type[Vllm] | type[Sglang] | type[Trtllm]] = {"vllm": Vllm, "sglang": Sglang, "trtllm": Trtllm}


def engine(backend: str, **options: Any) -> EngineSpec:
    """The spec of a worker by the name of its backend, with the engine's own options.

    Raises:
        SpecError: an unknown backend or option, or a value out of range.
    """
    if backend not in ENGINES:
        raise SpecError(f"backend={backend!r}: must be one of {', '.join(ENGINES)}; name one of these")
    return ENGINES[backend](**options)
