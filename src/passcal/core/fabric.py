"""Transfers between the workers of two stages: a queue a source, a latency, then flows that share the workers' ends max-min fairly (D3).

Flows between the same two workers have one rate, so they are counted by pair: each is due when its pair has served it its bytes (`TRANSFER.mark`), and a
heap a pair knows who is next. Rates are shared out by fixing the tightest end first, whenever a flow starts or ends.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.hand import hand_of
from passcal.core.lists import put_last
from passcal.core.tables import NEVER, NOBODY, State

__all__ = ["ended", "enqueue", "next_moment", "open_transfer", "start"]

TOGETHER_MS = 1e-6  # flows that would end closer than this end as one


@jit
def open_transfer(state: State, leg: int, tokens: float) -> int:
    """A transfer of this many tokens of a leg; returns its row."""
    world = state.world[0]
    t = world.spare_transfer
    if t == NOBODY:
        t = world.transfers
        world.transfers += 1
    else:
        world.spare_transfer = state.transfers[t].after
    transfer = state.transfers[t]
    transfer.leg, transfer.after, transfer.left, transfer.right = leg, NOBODY, NOBODY, NOBODY
    transfer.bytes = tokens * state.hops[leg % world.stages].bytes
    return t


@jit
def enqueue(state: State, hop: Any, t: int) -> None:
    """Transfer t is ready: it stands in its source's queue."""
    transfer = state.transfers[t]
    transfer.order = hop.order
    hop.order += 1
    hop.queued = 1
    end = state.ends[hop.first_end + transfer.source]
    if put_last(state.transfers, end.tail, t):
        end.head = t
    end.tail = t


@jit
def start(state: State, hop: Any, now: float) -> None:
    """Start what the bounds on transfers under way allow: heads of queues only, the one that became ready first (D3)."""
    hop.queued = 0
    while True:
        first = NOBODY
        for source in range(hop.sources):
            t = state.ends[hop.first_end + source].head
            earlier = first == NOBODY or state.transfers[t].order < state.transfers[first].order
            if t != NOBODY and earlier and allowed(state, hop, t):
                first = t
        if first == NOBODY:
            return
        transfer = state.transfers[first]
        end = state.ends[hop.first_end + transfer.source]
        end.head = transfer.after
        if end.head == NOBODY:
            end.tail = NOBODY
        end.under_way += 1
        state.ends[hop.first_end + hop.sources + transfer.sink].under_way += 1
        hand = hand_of(state, 1 * transfer.leg)
        if hand.start_ms < 0.0:
            hand.start_ms = now
        transfer.flows_ms = now + hop.latency_ms
        if put_last(state.transfers, hop.latent_tail, first):
            hop.latent_head = first
        hop.latent_tail = first


@jit
def allowed(state: State, hop: Any, t: int) -> bool:
    """Whether both ends of transfer t may have one more under way."""
    transfer = state.transfers[t]
    here, there = state.ends[hop.first_end + transfer.source], state.ends[hop.first_end + hop.sources + transfer.sink]
    return hop.most == 0 or (here.under_way < hop.most and there.under_way < hop.most)


@jit
def ended(state: State, hop: Any, now: float) -> int:
    """Move the fabric of a hop to this instant; returns the list of transfers that end now, in the order in which they became ready."""
    done, changed = NOBODY, False
    due = hop.next_ms <= now
    if hop.flows > 0:
        serve(state, hop, now)
    hop.clock_ms = now
    if due:
        for p in range(hop.first_pair, hop.first_pair + hop.sources * hop.sinks):
            pair = state.pairs[p]
            while pair.flows > 0 and (state.transfers[pair.top].mark - pair.served) < TOGETHER_MS * pair.rate:
                t: int = 1 * pair.top
                pair.top = merge(state, state.transfers[t].left, state.transfers[t].right)
                count_flow(state, hop, pair, t, -1)
                done, changed = put_in_order(state, done, t), True
    while hop.latent_head != NOBODY and state.transfers[hop.latent_head].flows_ms <= now:
        t = 1 * hop.latent_head
        hop.latent_head = state.transfers[t].after
        if hop.latent_head == NOBODY:
            hop.latent_tail = NOBODY
        if state.transfers[t].bytes <= 0.0 or hop.capacity == NEVER:
            done = put_in_order(state, done, t)
        else:
            begin_flow(state, hop, t)
            changed = True
    if changed:
        share_out(state, hop)
    t = done
    while t != NOBODY:
        transfer = state.transfers[t]
        state.ends[hop.first_end + transfer.source].under_way -= 1
        state.ends[hop.first_end + hop.sources + transfer.sink].under_way -= 1
        hop.queued = 1  # there may be room for who waits
        t = transfer.after
    return done


@jit
def serve(state: State, hop: Any, now: float) -> None:
    """What flowed since the clock stood last."""
    for p in range(hop.first_pair, hop.first_pair + hop.sources * hop.sinks):
        pair = state.pairs[p]
        if pair.flows > 0:
            pair.served += pair.rate * (now - hop.clock_ms)


@jit
def begin_flow(state: State, hop: Any, t: int) -> None:
    """Transfer t has its latency behind it, and takes bandwidth."""
    transfer = state.transfers[t]
    pair = state.pairs[hop.first_pair + transfer.source * hop.sinks + transfer.sink]
    if pair.flows == 0:
        pair.served, pair.top = 0.0, NOBODY
    transfer.mark = pair.served + transfer.bytes
    transfer.left = transfer.right = NOBODY
    pair.top = merge(state, pair.top, t)
    count_flow(state, hop, pair, t, 1)


@jit
def count_flow(state: State, hop: Any, pair: Any, t: int, by: int) -> None:
    """One flow more or less, at its pair and its ends."""
    transfer = state.transfers[t]
    pair.flows += by
    hop.flows += by
    state.ends[hop.first_end + transfer.source].flows += by
    state.ends[hop.first_end + hop.sources + transfer.sink].flows += by


@jit
def put_in_order(state: State, first: int, t: int) -> int:
    """Put transfer t into a list by readiness; returns its head."""
    order, at = state.transfers[t].order, first
    if first == NOBODY or order < state.transfers[first].order:
        state.transfers[t].after = first
        return t
    while state.transfers[at].after != NOBODY and state.transfers[state.transfers[at].after].order < order:
        at = state.transfers[at].after
    state.transfers[t].after = state.transfers[at].after
    state.transfers[at].after = t
    return first


@jit
def merge(state: State, a: int, b: int) -> int:
    """One skew heap of two, the least mark on top; ties by readiness."""
    top, above = NOBODY, NOBODY
    while a != NOBODY and b != NOBODY:
        one, other = state.transfers[a], state.transfers[b]
        if other.mark < one.mark or (other.mark == one.mark and other.order < one.order):
            a, b = b, a
        if above == NOBODY:
            top = a
        else:
            state.transfers[above].left = a
        above = a
        right = 1 * state.transfers[a].right
        state.transfers[a].right = state.transfers[a].left
        a = right
    rest = b if a == NOBODY else a
    if above == NOBODY:
        return rest
    state.transfers[above].left = rest
    return top


@jit
def share_out(state: State, hop: Any) -> None:
    """Max-min fair rates: the end with the least for each of its flows fixes theirs, and so on with what is left (D3); then when the next one ends."""
    first, last, pairs = hop.first_end, hop.first_end + hop.sources + hop.sinks, hop.sources * hop.sinks
    for e in range(first, last):
        state.ends[e].open, state.ends[e].spare = state.ends[e].flows, hop.capacity
    for p in range(hop.first_pair, hop.first_pair + pairs):
        state.pairs[p].fixed = state.pairs[p].flows == 0
    hop.next_ms = NEVER
    while True:
        tightest, least = NOBODY, NEVER
        for e in range(first, last):
            end = state.ends[e]
            if end.open > 0 and end.spare / end.open < least:
                tightest, least = e, end.spare / end.open
        if tightest == NOBODY:
            return
        for n in range(pairs):
            source, sink = first + n // hop.sinks, first + hop.sources + n % hop.sinks
            pair = state.pairs[hop.first_pair + n]
            if pair.fixed or (source != tightest and sink != tightest):
                continue
            pair.fixed, pair.rate = 1, least
            hop.next_ms = min(hop.next_ms, hop.clock_ms + (state.transfers[pair.top].mark - pair.served) / least)
            for e in (source, sink):
                state.ends[e].open -= pair.flows
                state.ends[e].spare = max(0.0, state.ends[e].spare - pair.flows * least)


@jit
def next_moment(state: State, hop: Any) -> float:
    """When something on this hop happens next: a flow ends, or a latency, or at once."""
    when = state.world[0].now if hop.queued else hop.next_ms
    if hop.latent_head != NOBODY:
        when = min(when, state.transfers[hop.latent_head].flows_ms)
    return when
