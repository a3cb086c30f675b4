"""The options of an SGLang engine that are modelled."""

from dataclasses import dataclass

from tools.oracle.engine import HostLoop
from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields

CHUNKING_OFF = -1


@dataclass(frozen=True, slots=True)
class Options:
    """Under SGLang's own names; any other is refused."""

    chunked_prefill_size: int | None
    max_prefill_tokens: int
    max_running_requests: int
    enable_mixed_chunk: bool
    disable_overlap_schedule: bool
    page_size: int
    max_total_tokens: int | None
    schedule_policy: str
    schedule_conservativeness: float
    prefill_decode_interval: int
    ignore_eos: bool
    disable_radix_cache: bool
    dp_size: int
    host_loop: HostLoop | None

    @classmethod
    def read(cls, engine: object) -> "Options":
        """Parse the options; S8: a chunk below a page never admits. S11: mixing needs chunking. S18: nor do no slots."""
        fields = Fields(engine, "engine")
        chunk = fields.whole("chunked_prefill_size", 8192, low=CHUNKING_OFF)
        chunk = chunk if chunk > 0 else None
        options = cls(
            chunked_prefill_size=chunk,
            max_prefill_tokens=fields.whole("max_prefill_tokens", 16384, low=1),
            max_running_requests=fields.whole("max_running_requests", 256, low=1),
            enable_mixed_chunk=fields.flag("enable_mixed_chunk", False) and chunk is not None,
            disable_overlap_schedule=fields.flag("disable_overlap_schedule", False),
            page_size=fields.whole("page_size", 1, low=1),
            max_total_tokens=fields.whole("max_total_tokens", None, low=1, null=None),
            schedule_policy=fields.choice("schedule_policy", ("fcfs", "lpm"), "fcfs"),
            schedule_conservativeness=fields.number("schedule_conservativeness", 1.0),
            prefill_decode_interval=fields.whole("prefill_decode_interval", 0),
            ignore_eos=fields.flag("ignore_eos", True),
            disable_radix_cache=fields.flag("disable_radix_cache", False),
            dp_size=fields.whole("dp_size", 1, low=1),
            host_loop=read_host_loop(fields.take("host_loop", None)),
        )
        fields.close()
        of_ranks = f" for each of {options.dp_size} ranks" if options.dp_size > 1 else ""
        if chunk is not None and (share := options.per_rank(chunk)) < options.page_size:
            raise ScenarioError(
                f"engine: chunked_prefill_size {share}{of_ranks} is below page_size {options.page_size}; raise it"
            )
        if options.per_rank(options.max_running_requests) < 1:
            raise ScenarioError(f"engine: max_running_requests is 0{of_ranks}; raise it")
        if options.host_loop and (options.disable_overlap_schedule or options.dp_size > 1):
            raise ScenarioError("engine: host_loop needs the overlap schedule and a dp_size of 1")
        return options

    def per_rank(self, limit: int) -> int:
        """S18: what each rank has of a limit that they share."""
        return limit // self.dp_size


def read_host_loop(value: object) -> HostLoop | None:
    """Parse the host's times; null for none."""
    if value is None:
        return None
    fields = Fields(value, "host_loop")
    host_loop = HostLoop(fields.number("prefill_select_ms"), fields.number("decode_select_ms"))
    fields.close()
    return host_loop
