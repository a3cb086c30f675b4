"""What single engines keep beyond `tables`: a rank's knobs and state, a request's, and what their KV is made of. Units as there."""

import numpy as np

__all__ = [
    "BLOCK",
    "LAUNCH",
    "NODE",
    "OUT",
    "SGLANG",
    "SGLANG_LIFE",
    "TRTLLM",
    "TRTLLM_LIFE",
    "VLLM_LIFE",
]

# A KV block, where identities are kept: its place in the free queue, who holds it, what it holds, and the next younger copy.
BLOCK = np.dtype([("after", "i8"), ("before", "i8"), ("refs", "i8"), ("content", "i8"), ("twin", "i8")])

# SGLang: a rank's knobs and state beyond RANK's, a request's beyond SEQUENCE's, and a node of its prefix tree.
SGLANG = np.dtype(
    [
        ("chunk", "i8"),  # chunked_prefill_size; 0: off
        ("most_prefill", "i8"),  # max_prefill_tokens
        ("page", "i8"),
        ("mixed", "i8"),
        ("ignore_eos", "i8"),
        ("foresee", "i8"),  # 1: admission looks at every end to come (S9), not only at sums (S8)
        ("radix", "i8"),
        ("tree", "i8"),  # 1: the prefix tree is kept; needed only where a prompt can hit it
        ("lpm", "i8"),  # 1: the longest cached prefix first
        ("interval", "i8"),  # prefill_decode_interval
        ("context", "i8"),  # context_length
        ("first_ratio", "f8"),
        ("decay", "f8"),
        ("least_ratio", "f8"),
        ("prefill_select_ms", "f8"),  # the scheduler's own time for a pass (S19)
        ("decode_select_ms", "f8"),
        ("first_node", "i8"),  # first of its nodes: the root of requests of no group
        # state
        ("ratio", "f8"),  # new-token ratio
        ("full", "i8"),  # 1: nothing is admitted until somebody leaves (S5)
        ("hold", "i8"),  # rounds that may not prefill
        (
            "extended",
            "i8",
        ),  # of a leader: 1: a rank of its group prefilled in the last round, so all hold from the next on
        ("partial", "i8"),  # the prompt that is between chunks, or nobody
        ("unpublished", "i8"),  # 1: its last chunk is not in the tree yet
        ("kind", "i8"),  # of the last round's pass
        ("finished", "i8"),  # requests done that still stand in running, or will
        ("decoded", "i8"),  # the last pass landed that had decode rows
        ("asked", "i8"),  # attempts to prefill
        # the plan at hand
        ("asleep", "i8"),  # of a leader: 1: the round before was idle, and nothing has arrived
        ("deferred", "i8"),  # 1: the interval forbade to prefill
        ("slot", "i8"),  # the list that its batch goes to
        ("rows", "i8"),
        ("input_left", "i8"),
        ("chunk_left", "i8"),
        ("promised", "f8"),
        ("taken", "i8"),
        ("ends", "i8"),  # entries of the list of ends to come; -1: not made yet
        # the prefix tree
        ("clock", "i8"),
        ("spare", "i8"),  # list of nodes to use again
        ("nodes", "i8"),  # rows used so far
        ("unlocked", "i8"),  # tokens that nobody locks
    ]
)
SGLANG_LIFE = np.dtype(
    [
        ("serial", "i8"),  # who it is, since rows of requests are used again
        ("place", "i8"),  # WAITING, LISTED or DROPPED
        ("limit", "i8"),  # outputs that the scheduler reserves
        ("launched", "i8"),  # the last pass that it was in
        ("key", "i8"),  # its order in the queue, of the plan at hand
        ("shared", "i8"),  # tokens that its group shares
        ("trunk", "i8"),  # of these, in whole pages
        ("root", "i8"),
        ("branch", "i8"),  # first node of its own chain
        ("leaf", "i8"),  # the node that it locks
        ("wasted", "i8"),  # 1: it is done, but a row of it is in flight
    ]
)
NODE = np.dtype(
    [
        ("parent", "i8"),  # -1: a root, or not in use
        ("below", "i8"),  # the next node of the trunk or chain
        ("kids", "i8"),
        ("start", "i8"),
        ("end", "i8"),
        ("lock", "i8"),  # running requests on it or below
        ("owner", "i8"),  # row of the request that made it
        ("serial", "i8"),
        ("trunk", "i8"),  # of the owner
        ("access", "f8"),
    ]
)

# TensorRT-LLM: the same.
TRTLLM = np.dtype(
    [
        ("policy", "i8"),
        ("chunking", "i8"),
        ("unit", "i8"),
        ("patience", "i8"),  # passes that prompts may be held back for
        ("ratio", "f8"),  # of the budget, below which they are
        ("balance", "i8"),  # 1: prompts wait until all ranks of the group have some (T7)
        ("most_waits", "i8"),  # passes that they wait for that
        ("most_batches", "i8"),  # and then for more of them
        # state
        ("waited", "i8"),
        ("batched", "i8"),
        ("kept", "i8"),  # lengths of the lists of the newest plan
        ("paused", "i8"),
        ("prompts", "i8"),
        ("rows", "i8"),
    ]
)
TRTLLM_LIFE = np.dtype(
    [
        ("prompt", "i4"),  # tokens to compute before a token comes: isl, after a pause the outputs so far too
        ("reserve", "i4"),  # blocks of prompt and full output
        ("state", "i4"),
        ("rode", "i4"),  # the newest pass that carried it
        ("wasted", "i4"),  # 1: it is done, but a row of it is in flight
    ]
)

# vLLM: a request's beyond SEQUENCE's, kept where a knob needs it.
VLLM_LIFE = np.dtype(
    [
        ("drafts", "i4"),  # of the pass that is planned or in flight (V16)
        ("rows", "i4"),  # decode rows so far: its place in the stream of accepted drafts
        ("emitted", "i4"),  # tokens of its newest pass that emitted any, since it was admitted; 0: none did
        ("rode", "i4"),  # the newest pass that carried it (V13)
    ]
)

# Launch times of a rank of vLLM (V14): its knobs, then its state.
LAUNCH = np.dtype(
    [
        ("decode_ms", "f8"),
        ("piecewise_ms", "f8"),
        ("eager_ms", "f8"),
        ("capture", "i8"),  # tokens above which a pass is eager
        ("eager_fraction", "f8"),  # of an eager pass, before which its launch cannot end
        ("detokenizer_ms", "f8"),  # a token
        # state
        ("held", "i8"),  # sequences whose newest outputs have not left
        ("busy_ms", "f8"),  # until when the detokenizer has work
        ("outs", "i8"),  # requests that left and have not come out of it
        ("first_out", "i8"),  # place of the first of them in the ring
    ]
)

# A request whose last token has left an engine with launch times, and when it comes out of the detokenizer.
OUT = np.dtype([("out_ms", "f8"), ("request", "i8")])
