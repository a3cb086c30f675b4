"""The tables that are at once the kernel's state, its log and, through pandas, the user's frames.

Times are milliseconds, lengths tokens, KV in blocks. A list of sequences (inbox, arrived, waiting, a crowd's bucket) is threaded
through `SEQUENCE.after`/`before`, so a sequence stands in one list at a time and lists need no room of their own; -1 ends a list. A second
pair, `older`/`newer`, threads the crowd by age and evicted sequences by eviction.
"""

from typing import Any, NamedTuple

import numpy as np

from passcal.core.compiled import table

__all__ = [
    "BOUNDLESS",
    "LANE",
    "LISTS",
    "MARK",
    "NEVER",
    "REQUEST",
    "RUN",
    "SEQUENCE",
    "SHAPES",
    "STALL",
    "TURN",
    "WORLD",
    "State",
    "grown",
]

NEVER = np.inf
NOBODY = -1
BOUNDLESS = 1 << 40  # requests, where lanes may have any number under way

# What was asked and when it happened: one row a request, in dispatch order; and one a leg of it, where it passes several stages.
REQUEST = np.dtype(
    [
        ("dispatch_ms", "f8"),
        ("visible_ms", "f8"),
        ("admitted_ms", "f8"),
        ("first_ms", "f8"),
        ("done_ms", "f8"),
        ("first_pass", "i8"),
        ("isl", "i4"),
        ("prefix", "i4"),
        ("osl", "i4"),
        ("group", "i4"),  # requests of one group share their first `shared` tokens, of the shorter one; -1: none
        ("shared", "i4"),
        ("preemptions", "i4"),
        ("cached", "i4"),  # prefix hit at first admission
        ("engine", "i4"),  # the rank it was routed to
        ("pinned", "i4"),  # the rank of its worker that it asks for; -1: any
        ("vision", "i4"),  # tokens of its prompt that an encoder makes
        (
            "most",
            "i4",
        ),  # max_tokens: outputs that the engine reckons with; osl come, the last one a stop token if they are fewer
    ]
)

# A request's life on an engine: `computed` tokens whose KV exists, `generated` tokens emitted; length = isl + generated.
SEQUENCE = np.dtype(
    [
        ("computed", "i4"),
        ("generated", "i4"),
        ("given", "i4"),  # tokens of the pass that is planned or in flight
        ("reached", "i4"),  # the most that was computed when it was evicted
        ("held", "i4"),  # blocks
        ("registered", "i4"),  # of these, how many can be hit; of an evicted one, how many it left that still can
        ("behind", "i4"),  # in the free queue, between what it left and what the next one did
        ("known", "i4"),  # the most that were ever registered
        ("slot", "i4"),  # row of its block table
        ("after", "i4"),
        ("before", "i4"),
        ("older", "i4"),  # neighbours in the crowd, or among evicted ones
        ("newer", "i4"),
        ("serial", "i4"),  # admission order
        ("last_pass", "i4"),  # the pass that emitted its newest token
        ("last_ms", "f8"),  # and when
    ]
)

# `count` successive passes of one plan; all but the first have no chunks, and their contexts grow by one a row. A long replay has millions.
RUN = np.dtype(
    [
        ("start_ms", "f8"),
        ("end_ms", "f8"),
        ("number", "i4"),  # of its first pass, on its engine
        ("prefill_tokens", "i4"),
        ("recomputed", "i4"),  # of these: computed once before, and lost to an eviction
        ("prefill_kv_tokens", "i8"),
        ("decode_kv_tokens", "i8"),  # of its first pass
        ("count", "i4"),
        ("engine", "i2"),
        ("prefill_requests", "i4"),
        ("decode_requests", "i4"),
        ("gaps", "i4"),  # rows of a pass whose token before came one pass earlier
        ("late_gaps", "i4"),  # rows whose token before came in the last pass with decode rows, an earlier one
        ("late_gap_ms", "f8"),
        ("held_by", "i2"),  # what kept the head of the queue out: HELD_*
        ("blocks", "i4"),  # in use, in its last pass
        ("block_ms", "f8"),  # blocks in use times how long, where it counts several passes
    ]
)

# A gap between two tokens of a request that are not of successive passes; between tokens of one pass (accepted drafts) it is 0.
STALL = np.dtype([("request", "i8"), ("from_pass", "i8"), ("to_pass", "i8"), ("gap_ms", "f8"), ("end_ms", "f8")])

SHAPES = np.dtype(
    [
        ("isl", "i4"),
        ("prefix", "i4"),
        ("osl", "i4"),
        ("group", "i4"),
        ("shared", "i4"),
        ("pinned", "i4"),
        ("most", "i4"),
        ("vision", "i4"),
    ]
)

# Sessions: what a row of SHAPES is, and a lane of turns; the rows of a lane stand together, a turn's own request before its calls.
TURN = np.dtype([("think_ms", "f8"), ("lane", "i4"), ("turn", "i4"), ("call", "i4")])
LANE = np.dtype(
    [
        ("next_ms", "f8"),  # when its next turn is sent, or its last one was
        ("row", "i8"),  # of SHAPES: the next to send
        ("end", "i8"),
        ("open", "i8"),  # requests of the turn under way that are not done
    ]
)

LISTS = 10  # lists of rows that a calendar may keep between planning and landing

# The run as a whole: traffic, clock, counters, and why the kernel stopped.
WORLD = np.dtype(
    [
        ("now", "f8"),
        ("turnaround_ms", "f8"),
        ("ingest_ms", "f8"),  # a token
        ("encoder_ms", "f8"),  # of a request with vision tokens, where that is all that is known of its encoder
        ("stagger_ms", "f8"),
        ("answer_ms", "f8"),
        ("closed", "i8"),  # 1: a client sends its next request when the last one is done
        ("clients", "i8"),
        ("unborn", "i8"),  # clients that have not sent their first request yet
        ("lanes", "i8"),  # of sessions
        ("thinking", "i8"),  # of these, how many have a turn to send and none under way
        ("most_open", "i8"),  # requests that lanes may have under way in all
        ("open", "i8"),  # requests that they have
        ("limit", "i8"),  # requests to send in all
        ("sent", "i8"),
        ("logging", "i8"),  # 0: nothing is kept of what is done, and rows of requests are used again
        ("rows", "i8"),  # of requests, used so far
        ("spare", "i8"),  # list of requests whose rows are used again
        ("dealt", "i8"),  # position in the shapes
        ("done", "i8"),
        ("inbox_head", "i8"),
        ("inbox_tail", "i8"),
        ("gone", "i8"),  # requests that are done at this instant
        ("runs", "i8"),
        ("stalls", "i8"),
        ("passes", "i8"),
        ("preemptions", "i8"),
        ("lost", "i8"),  # 1: KV that was counted only could be hit: the run must begin again, with identities
        ("stages", "i8"),
        ("most_drafts", "i8"),  # of a decode row of any rank
        ("leaving", "i8"),  # entries of `State.leaving`
        ("transfers", "i8"),  # rows of transfers, used so far
        ("spare_transfer", "i8"),  # list of rows to use again
        ("cursor", "i8"),  # next rank to plan at this instant
        ("asked", "i8"),  # 1: the plan under the cursor waits for its price
        ("until_done", "i8"),
        ("until_row", "i8"),  # stop when the requests of all rows before this one are done
        ("first_open", "i8"),  # the first logged row whose request is not done
        ("until_pass", "i8"),
        ("watch", "i8"),  # 1: look for a repeated state
        ("landings", "i8"),  # with completions, since the watch began
        ("renew", "i8"),
    ]
)


# Where a compared state stood, and the counts that must agree before states are compared number by number.
MARK = np.dtype(
    [
        ("now", "f8"),
        ("passes", "i8"),
        ("sent", "i8"),
        ("length", "i8"),
        ("crowd", "i8"),
        ("crowd_kv", "i8"),
        ("running", "i8"),
        ("waiting", "i8"),
    ]
)


class State(NamedTuple):
    """Everything that the kernel knows; it stops and resumes between any two passes without other memory."""

    world: Any  # WORLD[1]
    requests: Any  # REQUEST[n], as their clients see them
    legs: Any  # REQUEST[n * stages], as the engines do; the same table where there is one stage
    sequences: Any  # SEQUENCE[n * stages]
    runs: Any  # RUN[n]
    stalls: Any  # STALL[n]
    ranks: Any  # RANK[ranks]
    stages: Any  # STAGE[stages]
    hops: Any  # HOP[stages - 1], or [1]
    hands: Any  # HAND[n * hops], or [1]
    pairs: Any  # PAIR[sources * sinks of all hops], or [1]
    ends: Any  # END[sources + sinks of all hops], or [1]
    transfers: Any  # TRANSFER[n], or [1]
    leaving: Any  # i8[n, 2], legs that the landings at hand ended, or of which they computed a chunk up to a token; or [1, 2]
    shapes: Any  # SHAPES[n], dealt in dispatch order, or sent by lanes
    turns: Any  # TURN[n], beside them, or [1]
    lanes: Any  # LANE[n], or [1]
    thinking: Any  # i8[lanes], a binary heap of those that have a turn to send
    origins: Any  # i8[n], the row of `turns` that a request was sent for
    forms: Any  # FORM[stages]
    captured: Any  # i8[stages, n], padded row counts
    shape: Any  # SHAPE[1], of the plan being priced
    chunks: Any  # i8[n, 2], its chunks when a Python model prices it: new, past
    running: Any  # i8[ranks, seats], in admission order
    late: Any  # i8[ranks, seats], finished in the pass that an async plan could not see yet
    gone: Any  # i8[ranks * seats], requests
    scratch: Any  # i8[seats]
    bucket_head: Any  # i8[ranks, ring]
    bucket_tail: Any  # i8[ranks, ring]
    residues: Any  # i8[ranks, block_size], crowd rows that need a block when pass number mod block_size is this
    homes: Any  # i8[groups], the rank that a prefix group is routed to
    resident: Any  # i8[ranks, groups], blocks of a group's prefix that any of its prompts has computed there
    blocks: Any  # BLOCK[ranks, blocks + 2], or [1, 2]
    contents: Any  # i8[ranks, (groups + slots) * width], oldest block that holds a content
    tables: Any  # i8[ranks, slots, width], blocks of a sequence in order
    slots: Any  # i8[ranks, slots], a stack of free ones
    lists: Any  # i8[ranks, LISTS, width], what a calendar keeps between planning and landing
    sglang: Any  # SGLANG[ranks], or [1]
    sglang_lives: Any  # SGLANG_LIFE[n], or [1]
    nodes: Any  # NODE[ranks * n], or [1]
    trtllm: Any  # TRTLLM[ranks], or [1]
    trtllm_lives: Any  # TRTLLM_LIFE[n], or [1]
    vllm_lives: Any  # VLLM_LIFE[n], or [1]
    launches: Any  # LAUNCH[ranks], or [1]
    outs: Any  # OUT[ranks, n], a ring in the detokenizer's order
    marks: Any  # MARK[2], of the kept state and of the one that repeated it
    kept: Any
    fresh: Any


def grown(rows: Any, at_least: int) -> Any:
    """A larger copy of a table, new rows zeroed."""
    more = np.zeros(max(at_least, 2 * len(rows)), rows.dtype)
    more[: len(rows)] = rows
    return table(more)
