"""The start-up of the fused calendars: all clients send at once, and the k-th prompt waits for those before it."""

from math import ceil, exp, floor, log1p
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.fused import CROWDED, FULL
from passcal.screening.price import attention_ms, chunks_of, cut_attention_ms
from passcal.screening.tables import TRTLLM

__all__ = ["startup"]

FEW = 16  # prompts that are gone through one by one


@jit
def startup(c: Any, w: Any) -> tuple[float, float]:
    """Mean and maximum of the first TTFT of all clients.

    While no request is done, prompts completed are rows that take from the budget: after p passes `B (1 - (1 - 1/L)^p)` of them. From then on
    the engine is full; what finds no seat waits for turns.
    """
    n = min(c.clients, c.seats)
    mean, end, early = climb(c, w, n)
    if early < n:
        rest = (n - early) / w.full_rate
        mean = (early * mean + (n - early) * (end + rest * 0.5)) / n
        end += rest
    if n < c.clients and (w.regime == FULL or w.regime == CROWDED or not w.queued):
        rest = (c.clients - n) / w.rate
        mean = (n * mean + (c.clients - n) * (end + rest * 0.5)) / c.clients
        end += rest
    elif n < c.clients:
        turns = floor((c.clients - 1.0) / n)
        last = c.clients - turns * n
        waits = n * turns * (turns - 1.0) * 0.5 + last * turns
        mean = (n * turns * mean + last * mean * last / n + waits * w.cycle_ms) / c.clients
        end = turns * w.cycle_ms + end * last / n
    return mean + c.think_ms, end + c.think_ms


@jit
def climb(c: Any, w: Any, n: float) -> tuple[float, float, float]:
    """Until the first request is done, or no prompt is left: mean and end of the prompts completed, and how many they are."""
    budget = c.budget
    if c.calendar == TRTLLM and c.new > 1.0:
        budget -= (c.unit - 1.0) * 0.5
    if c.new * n <= c.budget:
        alone = c.a0 + n * (c.a1 * c.new + attention_ms(c, c.new, 1.0))
        return alone, alone, n
    if n <= FEW:
        return one_by_one(c, w, n)
    early, passes, shrink = n, n * c.new / budget, log1p(-1.0 / max(c.new, 2.0))
    if w.more > 0.0:
        early = min(n, budget * (1.0 - exp(c.osl * shrink)))
        passes = c.osl
        if early < budget * (1.0 - 1e-6):
            passes = log1p(-early / budget) / shrink
    ratio = c.new / budget
    chunk = min(max(1.0, budget - w.more / w.per_request), c.new)
    end = passes * c.a0 + early * (c.a1 * c.new + cut_attention_ms(c, chunk))
    if w.more > 0.0:
        beside = max(passes - max(ratio, 1.0), 0.0)  # passes after the first prompt is completed
        rows_ms = beside * c.d0 + early * passes * 0.5 * (c.d1 + c.d2 * (c.isl + passes / 3.0))
        end = max(end, rows_ms) if c.overlaps > 0.0 else end + rows_ms - beside * c.saved_ms
    each = end / max(passes, 1.0)
    if passes <= 1.0:
        return end, end, early
    if ratio < 1.0:
        return 0.5 * (end + each), end, early
    return 0.5 * (end + end / early + each), end, early


@jit
def one_by_one(c: Any, w: Any, n: float) -> tuple[float, float, float]:
    """Few prompts: each fills what the pass of the one before leaves, and then passes of its own."""
    token_ms = (c.a1 * c.new + cut_attention_ms(c, c.budget)) / c.new
    now, left, total = 0.0, 0.0, 0.0
    for k in range(int(n)):
        rows = min(1.0 * k, w.more * max(c.budget / c.new, 1.0))
        if left < c.new:
            room = max(c.budget - rows, 1.0)
            passes = ceil((c.new - left) / room - 1e-9)
            if left == 0.0:
                _, passes = chunks_of(c, room)
            left += passes * room - c.new
            used = room * passes - (left if k == n - 1.0 else 0.0)
            chunks_ms, beside = passes * c.a0 + used * token_ms, min(passes, w.more) if k > 0 else 0.0
            rows_ms = beside * (c.d0 + rows * (c.d1 + c.d2 * (c.isl + 1.0)))
            if c.overlaps > 0.0:
                now += max(chunks_ms, rows_ms)
            else:
                now += chunks_ms + rows_ms - beside * c.saved_ms
        else:
            left -= c.new
        total += now
    return total / n, now, n
