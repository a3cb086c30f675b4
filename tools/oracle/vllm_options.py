"""The options of a vLLM engine that are modelled."""

from dataclasses import dataclass
from math import floor

from tools.oracle.engine import Launch
from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields


@dataclass(frozen=True, slots=True)
class Speculation:
    """V16: drafts of a decode row, and how many of them are accepted in the mean."""

    drafts: int
    accepted: float

    def accepted_by(self, row: int) -> int:
        """V16: a deterministic stream: the whole part always, the fraction spread over the rows."""
        return floor((row + 1) * self.accepted) - floor(row * self.accepted)


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
    data_parallel_size: int
    prefill_schedule_interval: int
    launch: Launch | None
    speculation: Speculation | None
    host_offload: bool

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
            data_parallel_size=fields.whole("data_parallel_size", 1, low=1),
            prefill_schedule_interval=fields.whole("prefill_schedule_interval", 1, low=1),
            launch=read_launch(fields.take("launch", None)),
            speculation=read_speculation(fields.take("speculation", None)),
            host_offload=fields.flag("host_offload", False),
        )
        fields.close()
        budget, seats = options.max_num_batched_tokens, options.max_num_seqs
        if budget < seats:
            raise ScenarioError(f"engine: max_num_batched_tokens {budget} is below max_num_seqs {seats}; raise it")
        if options.launch and not (options.async_scheduling and options.data_parallel_size == 1):
            raise ScenarioError("engine: launch needs async_scheduling and a data_parallel_size of 1")
        return options


def read_launch(value: object) -> Launch | None:
    """Parse the launch times; null for none."""
    if value is None:
        return None
    fields = Fields(value, "launch")
    launch = Launch(
        decode_ms=fields.number("decode_ms"),
        piecewise_ms=fields.number("piecewise_ms"),
        eager_ms=fields.number("eager_ms"),
        max_cudagraph_capture_size=fields.whole("max_cudagraph_capture_size"),
        eager_queue_fraction=fields.number("eager_queue_fraction", 0.0, most=1.0),
        detokenizer_ms=fields.number("detokenizer_ms", 0.0),
    )
    fields.close()
    return launch


def read_speculation(value: object) -> Speculation | None:
    """Parse the drafts and their acceptance; null for none."""
    if value is None:
        return None
    fields = Fields(value, "speculation")
    drafts = fields.whole("drafts", low=1)
    speculation = Speculation(drafts, fields.number("accepted", most=drafts))
    fields.close()
    return speculation
