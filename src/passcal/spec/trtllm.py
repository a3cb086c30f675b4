"""Scheduler and KV knobs of a TensorRT-LLM worker (PyTorch backend), in the engine's own option names."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from passcal.errors import SpecError
from passcal.spec.base import Count, Duration, Flag, Spec, Tokens

__all__ = ["AttentionDpBalance", "Trtllm"]

Share = Annotated[Duration, Field(le=1.0)]


class AttentionDpBalance(Spec):
    """How long prompts wait for the other ranks of attention data parallelism (T7); the engine's own defaults.

    Attributes:
        timeout_iters: passes until every rank has a prompt, while every rank has decode rows to run.
        batching_wait_iters: passes after that, in which more prompts may come.
    """

    timeout_iters: Tokens = 50
    batching_wait_iters: Tokens = 10


def balance_or_none(value: Any) -> Any:
    """True stands for the engine's defaults, False for none."""
    return (AttentionDpBalance() if value else None) if isinstance(value, bool) else value


Balance = Annotated[AttentionDpBalance | None, BeforeValidator(balance_or_none)]


class Trtllm(Spec):
    """A TensorRT-LLM worker.

    Attributes:
        max_num_tokens: token budget of a pass, rows first (T4).
        max_batch_size: seats: requests that are taken in at a time, from before their first block to their last token (T8).
        enable_chunked_prefill: whether prompts may be cut to the budget (T9); off, whole prompts or none (T10).
        chunk_policy: who gets the budget when prompts want more: `FCFS`, in order, or `EQUAL_PROGRESS`, in rounds (T9).
        chunk_unit: tokens that a cut prompt's chunk is a multiple of; None: the block.
        tokens_per_block: tokens of a KV block.
        max_tokens_in_kv: KV tokens, whole blocks of which are used; None: memory never binds.
        capacity_policy: who may run: `GUARANTEED_NO_EVICT` reserves full outputs (T1), `MAX_UTILIZATION` the next token and pauses the
            last started when blocks run short (T2), `STATIC_BATCH` takes prompts only when no row is left (T3).
        overlap_scheduler: whether a pass is planned when the one before it starts (T5).
        admission_lookahead: whether an arrival during a pass waits for the next but one, because the next is planned already (T5). Unset: as
            `overlap_scheduler`. Off under overlap: a pass is planned when the one before it has landed, so nobody waits an extra pass.
        batch_wait_timeout_iters: passes that prompts may be held back for while rows run alone (T6); 0 is off.
        batch_wait_max_tokens_ratio: share of the budget below which a pass holds its prompts back (T6).
        attention_dp: ranks of attention data parallelism (T7), which pass together; every option holds for a rank.
        attention_dp_balance: how long prompts wait until all ranks have some (T7); True is the engine's defaults, None not at all.
        max_seq_len: prompt plus output at which generation stops; a prompt at or over it is refused (E2).
        speculation: draft tokens.

    Raises:
        SpecError: a value out of range, an unknown option, or options that contradict each other.
    """

    backend: Literal["trtllm"] = "trtllm"
    max_num_tokens: Count = 8192
    max_batch_size: Count = 256
    enable_chunked_prefill: Flag = True
    chunk_policy: Literal["FCFS", "EQUAL_PROGRESS"] = "FCFS"
    chunk_unit: Count | None = None
    tokens_per_block: Count = 32
    max_tokens_in_kv: Count | None = None
    capacity_policy: Literal["GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"] = "GUARANTEED_NO_EVICT"
    overlap_scheduler: Flag = True
    admission_lookahead: Flag | None = None
    batch_wait_timeout_iters: Tokens = 0
    batch_wait_max_tokens_ratio: Share = 0.0
    attention_dp: Count = 1
    attention_dp_balance: Balance = None
    max_seq_len: Count | None = None
    speculation: Any = None

    @property
    def unit(self) -> int:
        """Tokens of a chunk unit."""
        return self.chunk_unit or self.tokens_per_block

    @model_validator(mode="after")
    def _rules(self) -> "Trtllm":
        if self.enable_chunked_prefill and self.max_num_tokens < self.unit:
            raise SpecError(
                f"max_num_tokens={self.max_num_tokens}: must be at least the chunk unit of {self.unit}, or cut prompts starve; raise it, or lower chunk_unit"
            )
        if not self.enable_chunked_prefill and (self.chunk_unit is not None or self.chunk_policy != "FCFS"):
            name = "chunk_policy" if self.chunk_unit is None else "chunk_unit"
            raise SpecError(
                f"{name}={getattr(self, name)!r}: must be left alone with enable_chunked_prefill=False, which cuts no prompt; drop it"
            )
        if self.max_tokens_in_kv is not None and self.max_tokens_in_kv < self.tokens_per_block:
            raise SpecError(
                f"max_tokens_in_kv={self.max_tokens_in_kv}: must hold a block of {self.tokens_per_block}; raise it, or None for no limit"
            )
        if self.attention_dp_balance is not None and self.attention_dp == 1:
            raise SpecError(
                "attention_dp_balance: must be left off with attention_dp=1, where there is no other rank to wait for; drop it"
            )
        if self.batch_wait_timeout_iters and self.attention_dp > 1:
            raise SpecError(
                f"batch_wait_timeout_iters={self.batch_wait_timeout_iters}: must be 0 with attention_dp above 1, where the engine turns it off; drop it"
            )
        if self.admission_lookahead and not self.overlap_scheduler:
            raise SpecError(
                "admission_lookahead=True: must be off without overlap, which plans a pass when it starts; drop it, or set overlap_scheduler"
            )
        return self
