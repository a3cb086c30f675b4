"""What the closed form reads and writes of one candidate: a row of numbers in, a record it works in, a row of figures out."""

from typing import Any

import numpy as np

__all__ = [
    "ALTERNATING",
    "BINDINGS",
    "BRACKET",
    "CALENDARS",
    "CANDIDATE",
    "FIGURES",
    "GROUP",
    "HOP",
    "LEVELS",
    "REGIMES",
    "SERVED",
    "SGLANG_MIXED",
    "STAGES",
    "STATE",
    "TRTLLM",
    "VLLM",
    "WORK",
    "columnwise",
]

VLLM, SGLANG_MIXED, ALTERNATING, TRTLLM = 0, 1, 2, 3
CALENDARS = ("vllm", "sglang mixed", "sglang alternating", "trtllm")
CANDIDATE = np.dtype(
    [
        (name, "f8")
        for name in (
            "calendar",
            "budget",  # tokens of a pass
            "seats",
            "new",  # prompt tokens to compute
            "past",  # prompt tokens that are cached
            "isl",
            "osl",
            "clients",
            "ahead",  # 1: a pass is planned when the one before it starts
            "rate",  # requests a ms of an open loop; 0: a closed loop
            "think_ms",  # from a client's last token to its next request being visible
            "unit",  # tokens that a cut chunk is a multiple of
            "a0",
            "a1",
            "a2",
            "a3",
            "d0",
            "d1",
            "d2",
            "saved_ms",  # what a pass with chunks and rows saves of their sum
            "overlaps",  # 1: such a pass costs the larger of the two
            "covered",  # 1: every option is in the closed form; 0: no figure holds
            "proven",  # 1: the price is the timing model's own formula, and memory never binds: the bracket holds
            "in_kv",  # requests that KV holds at a time, where that is fewer than may run
            "kv",  # requests that KV holds at a time; infinite where memory never binds
            "exact",  # 1: the price is the timing model's own formula
        )
    ]
)
HOP = np.dtype(
    [
        (name, "f8")
        for name in (
            "sources",  # prefill workers
            "sinks",  # decode workers
            "inflight",  # prompts that a prefill worker computes at a time
            "most",  # transfers under way at a worker
            "first_token",  # 0: shown by prefill, 1: when the decode side attaches, 2: by a pass of that side
            "hold",  # 0: nothing, 1: blocks, 2: blocks and a seat
            "routing",
            "transfer",
            "transfer_start",  # 1: chunks are sent as they are computed
            "bytes",  # of a request
            "latency_ms",
            "capacity",  # bytes a ms of a worker's end
            "osl",
            "early",  # 1: memory of the decode side is reserved before prefill
            "held_prefill",  # prompts that KV of a prefill worker holds
            "held_decode",  # requests that KV of a decode worker holds, those on their way to it among them
        )
    ]
)
STAGES = np.dtype(
    [
        (name, "f8")
        for name in (
            "gaps",  # outputs after the first
            "passes",  # decode passes of a request
            "holding",  # prompts that a prefill worker has until they are sent
            "prompt_ms",  # a prompt's tokens, without what its passes cost once
            "own_ms",  # a prompt alone
            "work_ms",  # what a prompt costs a busy worker
            "cohort",  # prompts that all prefill workers make at a time
            "batch",  # those of one worker, as one of them sees it on average
            "locked",  # 1: a cohort ends together, too
            "row_ms",  # a decode row at its mean context
            "unit_ms",  # all bytes of a prompt at a worker's bandwidth
            "left_ms",  # those that are left when its prefill ends
            "latency_ms",
            "ends",  # workers of the side that has fewer
            "seats",  # rows of a decode worker
            "pass_ms",  # a decode pass
            "prefill_ms",
            "queue_ms",
            "hold_ms",
            "transfer_ms",
            "attach_ms",
            "rate",  # requests a ms
            "binding",
        )
    ]
)
WORK = np.dtype(
    [
        (name, "f8")
        for name in (
            "n",  # requests in seats
            "more",  # outputs after the first
            "queued",  # 1: clients outnumber seats
            "row_ms",  # a decode row at its mean context
            "prompt_ms",  # a prompt's tokens, without what its passes cost once
            "per_request",  # passes of a full engine
            "full_ms",  # a pass of a full engine
            "full_rate",  # requests a ms of a full engine
            "cohort",  # prompts of one
            "count",  # cohorts of a turn
            "last",  # prompts of the last cohort
            "chunk",  # tokens of a prompt in a pass
            "span",  # passes that a prompt takes
            "group",  # prompts that share the rests of each other's last passes
            "mixed",  # passes with chunks in a turn
            "gap",  # passes that a returning cohort misses
            "gap_cohorts",
            "turn",  # passes from one prompt of a client to its next
            "idle",  # 1: all are done before the first returns
            "backlog",  # 1: prompts queue up in every turn, so passes are packed full
            "first_ms",
            "middle_ms",
            "before_last_ms",
            "last_ms",  # passes that carry these cohorts
            "cohort_ms",  # their mean, but for the last
            "first_rows",
            "middle_rows",
            "before_last_rows",
            "last_rows",
            "chunk_ms",  # a pass with a whole chunk of a prompt that takes several
            "rest_ms",  # a pass with the last chunk of a group
            "rows_only_ms",
            "drain_ms",  # passes of a turn after the first cohort is done
            "cycle_ms",
            "rate",  # requests a ms
            "mean_ms",  # TTFT
            "span_ms",  # first token to last
            "own_ms",  # passes that carry a request's prompt
            "atoms",  # rows of the mixture in use
            "regime",
        )
    ]
)
STATE = np.dtype(
    [
        (name, "f8")
        for name in (
            "now",
            "plan",  # what is visible at this time may be in the next pass
            "turn",  # passes with rows so far
            "rows",  # requests past their prompt
            "context",  # of all rows in the next pass
            "todo",  # tokens left of the prompt that was cut; 0: none was
            "cut_visible",
            "cut_begun",
            "tokens",  # of prompts in this pass
            "given",  # those of the prompt that was cut before
            "taken",  # requests of the first waiting group that are no longer waiting
            "free",  # seats
            "fresh",  # requests that the last pass ended
            "decoded",  # when the last pass with rows ended
            "woken",  # when the last request was awaited
            "ties",  # plans that a request came with or missed by less than what rounding may be
            "passes",
            "done",  # requests
        )
    ]
    + [
        (name, "i8")
        for name in (
            "steps",
            "first_waiting",
            "end_waiting",
            "first_row",
            "end_row",
            "served",  # rows of what is served, all of which have their first token
            "told",  # those of them that are done
            "gaps",
            "ends",  # passes that ended requests
            "renewal",  # the end at which the state is kept anew
        )
    ]
)
GROUP = np.dtype(
    [
        (name, "f8")
        for name in (
            "count",
            "visible",  # of a waiting group: when the scheduler saw its requests, or will see them
            "first",  # of rows: when they had their first token
            "end",  # of rows: the turn that is their last
        )
    ]
)
SERVED = np.dtype([(name, "f8") for name in ("count", "visible", "begun", "first", "done")])
LEVELS = (0.5, 0.75, 0.9, 0.95, 0.99, 0.999)
BRACKET = ("ttft_steady_p99_lo", "ttft_steady_p99_hi")
NAMES = ("mean", "p50", "p75", "p90", "p95", "p99", "p999")
FIGURES = (  # columns of the row out, in order
    *(f"ttft_steady_{name}" for name in NAMES),
    *BRACKET,
    "ttft_transient_mean",
    "ttft_transient_max",
    "itl_mean",
    "itl_p50",
    "itl_p99",
    *(f"{metric}_{name}" for metric in ("tpot", "e2e", "queue") for name in NAMES),
    "throughput_rps",
    "output_tokens_per_s",
    "regime",
    "binding",
    "met",  # 1: of the cycle itself, which was gone through
    "hold_mean",
    "transfer_mean",
    "attach_mean",
)
REGIMES = (  # how clients travel
    "refine",  # the closed form does not cover an option: every figure is NaN
    "together",  # all in one pass
    "cohorts",  # in cohorts of whole prompts
    "chunked",  # one prompt after another, each over several passes
    "full",  # more work than passes: every pass is full
    "crowded",  # as many prompts as fit in, cut where a pass ends
    "returning",  # all are done before the first returns, and the engine idles
    "wave",  # all prompts, then all rows
    "prompts",  # outputs of one token: prompts only
    "kv",  # as many as KV holds
    "open",  # an open loop
    "overload",  # an open loop above what the engine serves
    "composed",  # prefill and decode apart
)
BINDINGS = ("clients", "seats", "budget", "kv", "prefill", "decode", "staging", "fabric")
LINE = 8  # numbers of a cache line


def columnwise(count: int) -> Any:
    """Room for `FIGURES` of so many rows: a row each, columns contiguous in memory, an odd number of cache lines apart so that they do not displace each other."""
    lines = (count // LINE + 1) | 1
    return np.empty((len(FIGURES), lines * LINE)).T[:count]
