"""Scheduler and KV knobs of an SGLang worker, in the engine's own option names and with its defaults."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from passcal.errors import SpecError
from passcal.spec.base import MOST, Count, Duration, Flag, Spec, Tokens, whole

__all__ = ["HostLoop", "Sglang"]

Chunk = Annotated[int, BeforeValidator(whole), Field(ge=-1, le=MOST)]


class HostLoop(Spec):
    """What the scheduler's own loop takes to select a pass, while the device runs the one before (S19).

    Attributes:
        prefill_select_ms: of a pass with prompts, mixed ones too.
        decode_select_ms: of a decode pass.
    """

    prefill_select_ms: Duration = 0.0
    decode_select_ms: Duration = 0.0


class Sglang(Spec):
    """An SGLang worker.

    Attributes:
        chunked_prefill_size: prompt tokens of a pass, beyond which a prompt is cut (S6, S8); -1 is off: prompts run whole.
        max_prefill_tokens: prompt tokens of a pass; exhausted, it admits no more, but it cuts nothing (S7).
        max_running_requests: slots: requests that run at a time (S5).
        enable_mixed_chunk: whether decode rows ride a prefill pass (S11); off, a prefill pass pauses every decode (S2). Needs chunking.
        disable_overlap_schedule: whether a pass is planned only when the one before it has been processed (S1).
        page_size: tokens of a KV page.
        max_total_tokens: KV tokens, whole pages of which are used; None: memory never binds.
        schedule_policy: `fcfs`, or `lpm`, the longest cached prefix first (S16).
        schedule_conservativeness: scales the share of an output that admission reserves (S12).
        prefill_decode_interval: rounds after a prefill that may not prefill (S14).
        ignore_eos: whether requests ignore the stop token, as benchmarks let them: their outputs are reserved whole (S6, S9). Off, by ratio.
        disable_radix_cache: whether nothing is kept of a request that is done (S15).
        dp_size: ranks of attention data parallelism (S18), which pass together. As in the engine, chunked_prefill_size and max_running_requests are
            a worker's and are divided among its ranks, max_prefill_tokens and max_total_tokens are a rank's.
        host_loop: time of the scheduler's own loop, under overlap on one rank a worker (S19); None: nothing.
        context_length: prompt plus output stay below it; a prompt that leaves no room is refused (S17).
        speculation: draft tokens.

    Raises:
        SpecError: a value out of range, an unknown option, mixed chunks without chunking, or a chunk or pool below a page.
    """

    backend: Literal["sglang"] = "sglang"
    chunked_prefill_size: Chunk = 8192
    max_prefill_tokens: Count = 16384
    max_running_requests: Count = 256
    enable_mixed_chunk: Flag = False
    disable_overlap_schedule: Flag = False
    page_size: Count = 1
    max_total_tokens: Count | None = None
    schedule_policy: Literal["fcfs", "lpm"] = "fcfs"
    schedule_conservativeness: Duration = 1.0
    prefill_decode_interval: Tokens = 0
    ignore_eos: Flag = True
    disable_radix_cache: Flag = False
    dp_size: Count = 1
    host_loop: HostLoop | None = None
    context_length: Count | None = None
    speculation: Any = None

    @model_validator(mode="after")
    def _rules(self) -> "Sglang":
        chunk, page = self.chunked_prefill_size, self.page_size
        if chunk == 0:
            raise SpecError("chunked_prefill_size=0: must be -1 (chunking off) or a number of tokens; write -1")
        if self.enable_mixed_chunk and chunk < 0:
            raise SpecError(
                "enable_mixed_chunk=True: rides on chunks, and chunked_prefill_size=-1 makes none; give a chunk size"
            )
        if 0 < chunk // self.dp_size < page or 0 < chunk < self.dp_size:
            raise SpecError(
                f"chunked_prefill_size={chunk}: for each of dp_size={self.dp_size} ranks is below page_size={page}, so no prompt is ever admitted; raise it"
            )
        if self.max_running_requests < self.dp_size:
            raise SpecError(
                f"max_running_requests={self.max_running_requests}: must be at least dp_size={self.dp_size}, whose ranks share them; raise it"
            )
        if self.host_loop is not None and (self.disable_overlap_schedule or self.dp_size > 1):
            raise SpecError(
                "host_loop: must be left unset with disable_overlap_schedule or dp_size above 1: it is the loop of the overlap scheduler on one rank; drop it"
            )
        if self.max_total_tokens is not None and self.max_total_tokens < page:
            raise SpecError(f"max_total_tokens={self.max_total_tokens}: holds no page of page_size={page}; raise it")
        return self
