"""The options of a TensorRT-LLM engine that are modelled."""

from dataclasses import dataclass

from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields

CAPACITY_POLICIES = ("GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH")
CHUNK_POLICIES = ("FCFS", "EQUAL_PROGRESS")


@dataclass(frozen=True, slots=True)
class Balance:
    """T7: how long prompts wait for those of other ranks, and then for more of them."""

    timeout_iters: int
    batching_wait_iters: int


@dataclass(frozen=True, slots=True)
class Options:
    """Under the engine's own names; any other is refused."""

    max_num_tokens: int
    max_batch_size: int
    enable_chunked_prefill: bool
    chunk_policy: str
    chunk_unit: int
    tokens_per_block: int
    max_tokens_in_kv: int | None
    capacity_policy: str
    overlap_scheduler: bool
    batch_wait_timeout_iters: int
    batch_wait_max_tokens_ratio: float
    attention_dp: int
    attention_dp_balance: Balance | None

    @classmethod
    def read(cls, engine: object) -> "Options":
        """Parse the options; T9: a budget below the unit starves prompts. T7: ranks do not wait as T6 does."""
        fields = Fields(engine, "engine")
        block = fields.whole("tokens_per_block", 32, low=1)
        options = cls(
            max_num_tokens=fields.whole("max_num_tokens", 8192, low=1),
            max_batch_size=fields.whole("max_batch_size", 256, low=1),
            enable_chunked_prefill=fields.flag("enable_chunked_prefill", True),
            chunk_policy=fields.choice("chunk_policy", CHUNK_POLICIES, "FCFS"),
            chunk_unit=fields.whole("chunk_unit", None, low=1, null=block),
            tokens_per_block=block,
            max_tokens_in_kv=fields.whole("max_tokens_in_kv", None, low=1, null=None),
            capacity_policy=fields.choice("capacity_policy", CAPACITY_POLICIES, "GUARANTEED_NO_EVICT"),
            overlap_scheduler=fields.flag("overlap_scheduler", True),
            batch_wait_timeout_iters=fields.whole("batch_wait_timeout_iters", 0),
            batch_wait_max_tokens_ratio=fields.number("batch_wait_max_tokens_ratio", 0.0),
            attention_dp=fields.whole("attention_dp", 1, low=1),
            attention_dp_balance=read_balance(fields.take("attention_dp_balance", None)),
        )
        fields.close()
        budget, unit = options.max_num_tokens, options.chunk_unit
        if options.enable_chunked_prefill and budget < unit:
            raise ScenarioError(f"engine: max_num_tokens {budget} is below the chunk unit of {unit}; raise it")
        waits = options.batch_wait_timeout_iters or options.batch_wait_max_tokens_ratio
        if options.attention_dp > 1 and waits:
            raise ScenarioError("engine: batch_wait_* is not modelled with attention_dp above 1; use the balance")
        if options.attention_dp == 1 and options.attention_dp_balance:
            raise ScenarioError("engine: attention_dp_balance needs attention_dp above 1")
        return options


def read_balance(value: object) -> Balance | None:
    """Parse the balance of the ranks; null for none."""
    if value is None:
        return None
    fields = Fields(value, "attention_dp_balance")
    balance = Balance(fields.whole("timeout_iters"), fields.whole("batching_wait_iters"))
    fields.close()
    return balance
