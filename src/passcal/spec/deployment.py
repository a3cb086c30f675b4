"""How engines are deployed."""

from typing import Any, Literal

from pydantic import Field, model_validator

from passcal.errors import SpecError, Unsupported
from passcal.spec.base import Count, Duration, Positive, Ratio, Spec, Tokens
from passcal.spec.engine import EngineSpec

__all__ = ["Aggregated", "Deployment", "Disaggregated", "Encoder", "Link"]


class Link(Spec):
    """What the KV of prompts, or an encoder's output, moves over, from a worker's egress to a worker's ingress (D3).

    Attributes:
        gb_per_s: nominal bandwidth of each worker's egress and ingress, in 1e9 bytes a second; flows share both ends max-min fairly.
        kv_bytes_per_token: bytes that a token moves; 0: only the latency counts.
        efficiency: of the nominal bandwidth, what is reached.
        latency_ms: fixed part of every transfer, in which it takes no bandwidth.
        max_transfers_per_worker: transfers under way at each egress and each ingress; None: any number.
        transfer: `full` sends all of a prompt, `missing` leaves out its cached prefix, which is there already.
        transfer_start: `last_chunk` sends a prompt when it is computed, `each_chunk` its chunks as they are (D4).
    """

    gb_per_s: Positive
    kv_bytes_per_token: Duration
    efficiency: Ratio = 0.8
    latency_ms: Duration = 0.0
    max_transfers_per_worker: Count | None = None
    transfer: Literal["full", "missing"] = "full"
    transfer_start: Literal["last_chunk", "each_chunk"] = "last_chunk"


class Encoder(Spec):
    """What makes the vision tokens of requests before their prompts are computed; requests without any pass it by.

    Attributes:
        engine: the spec of an encoder worker, to which vision tokens are a prompt.
        workers: how many there are.
        link: what its output moves over; None: it is there at once.
        routing: which worker a request goes to when it becomes visible.
        latency_ms: instead of all that: a time that is added before a request with vision tokens is visible.
    """

    engine: EngineSpec | None = Field(default=None, discriminator="backend")
    workers: Count = 1
    link: Link | None = None
    routing: Literal["round_robin", "least_loaded"] = "round_robin"
    latency_ms: Duration | None = None

    @model_validator(mode="after")
    def _one_of_both(self) -> "Encoder":
        if (self.engine is None) == (self.latency_ms is None):
            raise SpecError(
                "Encoder: engine and latency_ms: exactly one of both is needed; give the engine, or a number alone"
            )
        if self.engine is None and (self.link is not None or self.workers != 1 or self.routing != "round_robin"):
            raise SpecError(
                "Encoder: latency_ms alone has no workers, link or routing; leave them out, or give the engine"
            )
        if self.link is not None and (self.link.transfer, self.link.transfer_start) != ("full", "last_chunk"):
            raise Unsupported("Encoder: link: transfer and transfer_start are of prompts with KV; leave them unset")
        return self


class Aggregated(Spec):
    """Workers that each do prefill and decode.

    Attributes:
        engine: the spec of a worker.
        replicas: workers behind one router.
        routing: which worker (and rank of it) a request goes to when it becomes visible: `round_robin` over workers and then over their
            ranks, `least_loaded` by requests not done, or `prefix_affinity`, where a prefix group stays together (E4).
        encoder: what makes vision tokens before; None: the engine's own passes do.
    """

    engine: EngineSpec = Field(discriminator="backend")
    replicas: Count = 1
    routing: Literal["round_robin", "least_loaded", "prefix_affinity"] = "round_robin"
    encoder: Encoder | None = None

    def __init__(self, engine: Any = None, **values: Any) -> None:
        super().__init__(engine=engine, **values)


class Disaggregated(Spec):
    """Workers that do prefill only, and workers that go on from there; the KV of a prompt moves between them (D1-D10).

    Attributes:
        prefill, decode: the specs of a worker of each pool; they may be of different engines.
        prefill_workers, decode_workers: how many there are.
        link: what the KV moves over; None: it is there at once.
        first_token: where a request's first token is shown (D2): at the end of its `prefill`, when the `decode` side attaches, or by a pass of
            that side which computes the prompt's last token once more (`decode_pass`).
        hold: what a prefill worker keeps of a prompt until its transfer has ended: `none`, its `blocks`, or `blocks_and_seat` (D5).
        routing: of both pools: the prefill worker is chosen when a request becomes visible, the decode worker when it asks for memory (D7).
        prefill_inflight_cap: seats of a prefill rank, whatever its options say; 1 computes prompts one after the other; None: no such cap.
        num_reserved_decode_tokens: tokens beyond the prompt that SGLang reserves on the decode side for each request (D6).
        encoder: what makes vision tokens before; None: prefill passes do.
    """

    prefill: EngineSpec = Field(discriminator="backend")
    decode: EngineSpec = Field(discriminator="backend")
    prefill_workers: Count = 1
    decode_workers: Count = 1
    link: Link | None = None
    first_token: Literal["prefill", "decode", "decode_pass"] = "prefill"
    hold: Literal["none", "blocks", "blocks_and_seat"] = "none"
    routing: Literal["round_robin", "least_loaded"] = "round_robin"
    prefill_inflight_cap: Count | None = None
    num_reserved_decode_tokens: Tokens = 512
    encoder: Encoder | None = None


Deployment = Aggregated | Disaggregated
