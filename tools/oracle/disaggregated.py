"""The part of the scenario language that says how prefill and decode lie apart."""

from dataclasses import dataclass

from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields
from tools.oracle.requests import Hold
from tools.oracle.timing import Timing, read_timing
from tools.oracle.transfers import Link

FIRST_TOKENS = ("prefill", "decode", "decode_pass")
ROUTINGS = ("round_robin", "least_loaded")
RESERVED = 512


@dataclass(frozen=True, slots=True)
class Pool:
    """Equal workers of one stage; `engine` stays raw."""

    backend: str
    engine: dict
    timing: Timing
    workers: int


@dataclass(frozen=True, slots=True)
class Disaggregated:
    """A pool that decodes behind the one that a scenario describes, and the way between."""

    decode: Pool
    prefill_workers: int
    link: Link
    first_token: str
    hold: Hold
    routing: str
    prefill_inflight_cap: int | None
    num_reserved_decode_tokens: int


def read_disaggregated(fields: Fields) -> Disaggregated:
    """Parse a deployment of that kind."""
    decode = Fields(fields.take("decode"), "decode")
    backend, engine, timing = decode.take("backend"), decode.take("engine"), read_timing(decode.take("timing"))
    decode.close()
    asked = Disaggregated(
        decode=Pool(backend, engine, timing, fields.whole("decode_workers", 1, low=1)),
        prefill_workers=fields.whole("prefill_workers", 1, low=1),
        link=read_link(fields.take("link")),
        first_token=fields.choice("first_token", FIRST_TOKENS, "prefill"),
        hold=Hold(fields.choice("hold", [each.value for each in Hold], Hold.NONE.value)),
        routing=fields.choice("routing", ROUTINGS, "round_robin"),
        prefill_inflight_cap=fields.whole("prefill_inflight_cap", None, low=1, null=None),
        num_reserved_decode_tokens=fields.whole("num_reserved_decode_tokens", RESERVED),
    )
    if backend != "sglang" and asked.num_reserved_decode_tokens != RESERVED:
        raise ScenarioError(f"deployment: num_reserved_decode_tokens is not modelled for decode by {backend}")
    if backend == "sglang" and asked.first_token == "decode_pass":
        raise ScenarioError("deployment: first_token decode_pass is not modelled for decode by sglang; use decode")
    return asked


def read_link(value: object) -> Link:
    """Parse the fabric; a link that carries nothing would never end."""
    fields = Fields(value, "link")
    link = Link(
        gb_per_s=fields.number("gb_per_s"),
        efficiency=fields.number("efficiency", 0.8, most=1.0),
        latency_ms=fields.number("latency_ms", 0.0),
        kv_bytes_per_token=fields.number("kv_bytes_per_token"),
        max_transfers_per_worker=fields.whole("max_transfers_per_worker", None, low=1, null=None),
        transfer=fields.choice("transfer", ("full", "missing"), "full"),
        transfer_start=fields.choice("transfer_start", ("last_chunk", "each_chunk"), "last_chunk"),
    )
    fields.close()
    if not link.bytes_per_ms:
        raise ScenarioError("link: gb_per_s and efficiency must be above 0")
    return link
