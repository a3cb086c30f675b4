"""The table of schedulers. Units as in `tables`."""

import numpy as np

__all__ = ["RANK"]

# One scheduler: its knobs and its state.
RANK = np.dtype(
    [
        # what the loop looks at wherever anything happens, side by side
        ("flying", "i8"),
        ("most_flying", "i8"),  # 2: a pass is launched before the outputs of the last one are seen
        ("dry", "i8"),  # 1: its last plan was empty, so it plans again only after a landing or an arrival
        ("idle", "i8"),  # 1: it slept until this instant
        ("land_ms", "f8"),  # end of the oldest pass in flight
        ("ready_ms", "f8"),  # before which it does not plan
        ("launching", "i8"),  # 1: launches take time
        ("width", "i8"),  # ranks of the worker, which run in lockstep
        ("running", "i8"),
        ("crowd", "i8"),
        ("lates", "i8"),
        ("waiting", "i8"),
        ("handed", "i8"),
        ("arrived_head", "i8"),
        # knobs
        ("budget", "i8"),
        ("max_seats", "i8"),
        ("chunked", "i8"),
        ("long_prefill", "i8"),
        ("lookahead", "i8"),
        ("stopping", "i8"),  # 1: some requests end by a stop token, which no plan foresees
        ("memory", "i8"),  # 0: KV never binds and is not counted
        ("usable", "i8"),
        ("block_size", "i8"),
        ("reserve_full", "i8"),
        ("mark", "i8"),  # blocks kept free when waiting requests are admitted
        ("form", "i8"),
        ("backend", "i8"),
        ("index", "i8"),
        ("stage", "i8"),
        ("leader", "i8"),  # the first of these
        ("interval", "i8"),  # passes between prefills
        ("caching", "i8"),  # 1: a preempted sequence can hit its own blocks
        ("sharing", "i8"),  # 1: memory never binds, and prompts of a group hit all that any of them has computed
        ("groups", "i8"),
        ("slots_free", "i8"),
        ("waited", "i8"),  # 1: it had no rows in the last pass of its group
        ("draining", "i8"),  # 1: nobody had rows to run, so all of its group decide again with all that is known
        ("drained", "i8"),  # 1: the plan at hand knows every output
        ("identities", "i8"),  # 1: KV is kept by content, so that prompts can hit it
        ("drafts", "i8"),  # of a decode row; 0: no speculation
        ("accepted", "f8"),  # of these, in the mean
        ("offload", "i8"),  # 1: who is in the pass in flight is not preempted
        ("nulls", "i8"),  # 1: where a rank of its group has rows, one without runs an empty pass (S18, T7)
        ("null_ms", "f8"),  # what that costs
        ("lightest", "i8"),  # 1: within a worker, requests go to the rank with the fewest prompt tokens (T7)
        ("selecting", "i8"),  # 1: the scheduler's own loop takes time (S19)
        ("attaching", "i8"),  # 1: what arrives here has its KV with it, and needs a seat only (D10)
        ("holding", "i8"),  # what is kept of a request that goes on, until it has arrived there (D5)
        ("sending", "i8"),  # 1: each chunk is sent when it is computed (D4)
        (
            "ahead",
            "i8",
        ),  # 1: hand-offs take and free memory or seats while a plan is formed already (see `calendar.vllm_ahead`)
        # state
        ("free", "i8"),
        ("crowd_kv", "i8"),
        ("newest", "i8"),  # row of the crowd
        ("crowded", "i8"),  # 1: decode rows live in the crowd, since the order of single rows does not matter
        ("blank", "i8"),  # free blocks that nobody can hit, before all others
        ("remains_head", "i8"),  # evicted sequences that can hit blocks
        ("remains_tail", "i8"),
        ("arrived_tail", "i8"),
        ("waiting_head", "i8"),
        ("waiting_tail", "i8"),
        ("number", "i8"),
        ("serial", "i8"),
        ("outstanding", "i8"),  # requests routed to it and not done
        ("tokens", "i8"),  # of their prompts
        ("open", "i8"),  # of a leader: its group may start a pass at this instant
        ("step", "i8"),  # of a leader: passes of its group since it last drained
        ("deferring", "i8"),  # 1: the plan at hand leaves prompts alone
        ("wanting", "i8"),  # 1: the last pass that could admit left requests waiting for capacity
        ("again", "i8"),  # 1: but that plan moved something, so another is made at once
        ("asking_head", "i8"),  # hand-offs that wait for memory here (D6)
        ("asking_tail", "i8"),
        ("handed_head", "i8"),  # hand-offs that have arrived and wait for a seat
        ("handed_tail", "i8"),
        ("staging", "i8"),  # hand-offs that hold memory and have no seat yet
        ("resuming", "i8"),  # evicted sequences that wait to resume
        ("keeping", "i8"),  # seats that are kept for a transfer
        ("freed", "i8"),  # 1: somebody's memory came free at this instant
        ("planned", "i8"),  # rows of the plan that was formed when the last pass landed
        ("shift", "i8"),  # blocks that hand-offs took, less those that they set free, since the pass in flight began
        ("seats_shift", "i8"),  # seats that they set free since
        ("select_ms", "f8"),  # of the plan at hand (S19)
        ("held_by", "i8"),
        ("preempted", "i8"),  # victims of the plan at hand
        ("start_ms", "f8"),  # of the newest pass, in flight or landed
        ("end_ms", "f8"),
        ("row", "i8"),  # of the log
        ("land_row", "i8"),
    ]
)
