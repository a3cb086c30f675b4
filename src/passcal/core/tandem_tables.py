"""The tables of stages and of what moves between them. Units as in `tables`; sizes in bytes.

A request has a leg at each stage: row `request * stages + stage` of `State.legs`. Between two stages lies a hop, and each request has a hand-off at
each hop: row `request * hops + hop` of `State.hands`. What is sent are transfers, which flow between the workers' ends.
"""

import numpy as np

__all__ = [
    "END",
    "FIRST_DECODE",
    "FIRST_DECODE_PASS",
    "FIRST_PREFILL",
    "HAND",
    "HOLD_BLOCKS",
    "HOLD_NONE",
    "HOLD_SEAT",
    "HOP",
    "PAIR",
    "STAGE",
    "TRANSFER",
]

FIRST_PREFILL, FIRST_DECODE, FIRST_DECODE_PASS = 0, 1, 2
HOLD_NONE, HOLD_BLOCKS, HOLD_SEAT = 0, 1, 2  # the seat, and the blocks with it

# A pool of workers behind a router: its ranks stand together, those of a worker too.
STAGE = np.dtype(
    [
        ("first", "i8"),
        ("ranks", "i8"),
        ("workers", "i8"),
        ("width", "i8"),  # ranks of a worker
        ("routing", "i8"),
        # state
        ("turn", "i8"),  # of the round robin
    ]
)

# From one stage to the next: what is handed over, when, and over which fabric.
HOP = np.dtype(
    [
        ("fresh", "i8"),  # 1: the prompt is still to be computed there; 0: its KV comes with it
        ("early", "i8"),  # 1: memory is reserved there before the request starts here (D6)
        ("first_token", "i8"),  # where the first token is shown (D2): FIRST_*
        ("missing", "i8"),  # 1: a cached prefix is there already
        ("bytes", "f8"),  # a token
        ("capacity", "f8"),  # bytes a ms, of each end; infinite: no fabric
        ("latency_ms", "f8"),
        ("most", "i8"),  # transfers under way at an end; 0: any number
        ("reserve", "i8"),  # tokens beyond the prompt that are reserved there, where the engine reserves by tokens
        ("first_pair", "i8"),
        ("first_end", "i8"),  # ends of the workers here, then of those there
        ("sources", "i8"),
        ("sinks", "i8"),
        # state
        ("order", "i8"),  # transfers that became ready
        ("clock_ms", "f8"),  # until when `PAIR.served` counts
        ("next_ms", "f8"),  # when the next flow ends, at the rates of now
        ("latent_head", "i8"),  # transfers in their latency, in order of its end
        ("latent_tail", "i8"),
        ("flows", "i8"),
        ("queued", "i8"),  # 1: a transfer has become ready since any was started
    ]
)

# A request at a hop.
HAND = np.dtype(
    [
        ("asked_ms", "f8"),  # for memory; -1 before, as the others
        ("granted_ms", "f8"),
        ("start_ms", "f8"),  # of its first transfer
        ("end_ms", "f8"),  # when it has arrived
        ("sent", "i8"),  # tokens that need not be sent any more
        ("open", "i8"),  # transfers that have not ended
        ("ready", "i8"),  # 1: the stage before is done with it
        ("owed", "i8"),  # 1: the engine would have given its memory back, but for the transfer
        ("staged_head", "i8"),  # transfers that wait for the grant
        ("staged_tail", "i8"),
        ("left", "i8"),  # of a request's first hand-off: legs whose rows nothing refers to any more
    ]
)

TRANSFER = np.dtype(
    [
        ("leg", "i8"),  # at the stage that it leaves
        ("source", "i8"),  # worker there
        ("sink", "i8"),
        ("order", "i8"),
        ("bytes", "f8"),
        ("flows_ms", "f8"),  # when its latency is over
        ("mark", "f8"),  # what its pair has served when it ends
        ("after", "i8"),  # in a queue
        ("left", "i8"),  # in its pair's heap
        ("right", "i8"),
    ]
)

# All flows between two workers, which share both ends and so have one rate; a skew heap of them by mark.
PAIR = np.dtype(
    [
        ("rate", "f8"),  # bytes a ms, of each flow
        ("served", "f8"),  # bytes that a flow here since the pair began has got
        ("flows", "i8"),
        ("top", "i8"),
        ("fixed", "i8"),  # while rates are shared out
    ]
)

# A worker's egress or ingress.
END = np.dtype(
    [
        ("head", "i8"),  # of an egress: transfers that are ready and have not started
        ("tail", "i8"),
        ("under_way", "i8"),
        ("flows", "i8"),
        ("open", "i8"),  # while rates are shared out: flows that have none yet, and what is left for them
        ("spare", "f8"),
    ]
)
