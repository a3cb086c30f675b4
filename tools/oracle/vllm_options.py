"""The options of a vLLM engine that are modelled."""

from dataclasses import dataclass

from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields


@dataclass(frozen=True, slots=True)
class Options:
    """Under vLLM's own names; any other is refused."""

    max_num_batched_tokens: int
    max_num_seqs: int
    enable_chunked_prefill: bool
    long_prefill_token_threshold: int
    async_scheduling: bool
    enable_prefix_caching: bool
    num_gpu_blocks: int | None
    block_size: int
    watermark: float
    scheduler_reserve_full_isl: bool

    @classmethod
    def read(cls, engine: object) -> "Options":
        """Parse the options; V3: vLLM itself refuses a budget smaller than the seats."""
        fields = Fields(engine, "engine")
        options = cls(
            max_num_batched_tokens=fields.whole("max_num_batched_tokens", 8192, low=1),
            max_num_seqs=fields.whole("max_num_seqs", 256, low=1),
            enable_chunked_prefill=fields.flag("enable_chunked_prefill", True),
            long_prefill_token_threshold=fields.whole("long_prefill_token_threshold", 0),
            async_scheduling=fields.flag("async_scheduling", True),
            enable_prefix_caching=fields.flag("enable_prefix_caching", True),
            num_gpu_blocks=fields.whole("num_gpu_blocks", None, low=2, null=None),
            block_size=fields.whole("block_size", 16, low=1),
            watermark=fields.number("watermark", 0.0, below=1.0),
            scheduler_reserve_full_isl=fields.flag("scheduler_reserve_full_isl", True),
        )
        fields.close()
        budget, seats = options.max_num_batched_tokens, options.max_num_seqs
        if budget < seats:
            raise ScenarioError(f"engine: max_num_batched_tokens {budget} is below max_num_seqs {seats}; raise it")
        return options
