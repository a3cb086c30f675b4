"""Few prompts that do not fit one pass: pass by pass where a prompt is in them, until clients stand to each other as they did before.

How two to four long prompts overlap has no formula: which of them is cut, and where, decides for turns to come. But there is little to go through: a turn has
as many passes as its prompts take, and passes with rows only are summed.
"""

from math import ceil, floor, inf, sqrt
from typing import Any

from passcal.core.compiled import jit
from passcal.screening.price import pass_ms, put
from passcal.screening.tables import SGLANG_MIXED, TRTLLM

__all__ = ["ATOMS", "FEW", "few"]

FEW = 4  # clients
EVENTS = 32  # passes that end requests, at most
ATOMS = 24  # different TTFT that are told apart


@jit
def few(c: Any, w: Any, atoms: Any, clients: Any) -> None:
    """Rate, and mean and mixture of TTFT; `clients` has a `CLIENT` row for each."""
    n = int(w.n)
    for i in range(n):
        clients[i].todo, clients[i].made, clients[i].visible, clients[i].ended = c.new, 0.0, 0.0, -1.0
        clients[i].kept_todo = -1.0
    now, plan, since, done, events, renewal = 0.0, 0.0, 0.0, 0.0, 0, 1
    w.atoms = 0.0
    while events < EVENTS:
        if nothing_planned(clients, n, plan):
            now = plan = max(now, next_visible(clients, n, -1.0))
        last, end = next_passes(c, clients, n, now, plan)
        plan = last if c.ahead > 0.0 else end
        now, before = end, done
        for i in range(n):
            done += land(c, w, atoms, clients[i], now)
        if done == before:
            continue
        events += 1
        newest = last_done(clients, n, now)
        if repeats(clients, n, newest, now):
            break
        if events == renewal and events < EVENTS:
            renewal *= 2
            keep(clients, n, newest, now)
            since, done, w.atoms = now, 0.0, 0.0
    w.rate = done / (now - since)
    total, weight = 0.0, 0.0
    for a in range(int(w.atoms)):
        total, weight = total + atoms[a, 0] * atoms[a, 1], weight + atoms[a, 0]
    w.mean_ms = total / weight
    w.span_ms = max(c.clients / w.rate - w.mean_ms, 0.0)


@jit
def nothing_planned(clients: Any, n: int, plan: float) -> bool:
    """Whether a pass planned then is empty."""
    for i in range(n):
        if clients[i].made > 0.0 or clients[i].visible <= plan:
            return False
    return True


@jit
def next_visible(clients: Any, n: int, plan: float) -> float:
    """When the next prompt is seen, of those that a plan does not know."""
    soonest = inf
    for i in range(n):
        if clients[i].made == 0.0 and clients[i].visible > plan:
            soonest = min(soonest, clients[i].visible)
    return soonest


@jit
def next_passes(c: Any, clients: Any, n: int, now: float, plan: float) -> tuple[float, float]:
    """Plan a pass, and all that are alike until something else can happen: when the last one starts, and ends."""
    rows, context, left, unseen = 0.0, 0.0, inf, 0.0
    for i in range(n):
        clients[i].given, clients[i].passes = 0.0, 0.0
        if clients[i].made > 0.0:
            rows, context = rows + 1.0, context + c.isl + clients[i].made
            left = min(left, c.osl - clients[i].made)
        elif clients[i].ended == now and c.calendar == SGLANG_MIXED:
            unseen += c.ahead
    first, step = c.d0 + c.d1 * rows + c.d2 * context, c.d2 * rows
    room = c.budget - rows - unseen
    chunks_ms, at = give_chunks(c, clients, n, plan, room)
    if chunks_ms == 0.0:
        passes = min(left, passes_until(first, step, next_visible(clients, n, plan) - now))
        before = (passes - 1.0) * (first + step * (passes - 2.0) * 0.5)
        last, end = now + before, now + before + first + step * (passes - 1.0)
    else:
        passes, given, last = 1.0, 0.0, now
        if at >= 0 and unseen == 0.0:
            given = clients[at].given
            passes = max(min(left, ceil((clients[at].todo - room) / given)), 1.0)
            clients[at].given *= passes
        end = now + pass_ms(c, chunks_ms, first if rows > 0.0 else 0.0)
        for _ in range(int(passes) - 1):
            first, chunks_ms = first + step, chunks_ms + given * c.a2 * given
            last, end = end, end + pass_ms(c, chunks_ms, first if rows > 0.0 else 0.0)
    for i in range(n):
        if clients[i].made > 0.0:
            clients[i].passes = passes
    return last, end


@jit
def give_chunks(c: Any, clients: Any, n: int, plan: float, room: float) -> tuple[float, int]:
    """First come, first served: what the chunks cost, and whose is the only one, if it is."""
    chunks_ms, only, count = 0.0, -1, 0
    for _ in range(n):
        at = -1
        for i in range(n):
            here = clients[i].made == 0.0 and clients[i].visible <= plan and clients[i].given == 0.0
            if here and (at < 0 or clients[i].visible < clients[at].visible):
                at = i
        if at < 0 or room < 1.0:
            break
        given = min(clients[at].todo, room)
        if c.calendar == TRTLLM and given < clients[at].todo:
            given = floor(given / c.unit) * c.unit
        clients[at].given = -1.0
        if given >= 1.0:
            chunks_ms += given * (c.a1 + c.a2 * (c.past + c.new - clients[at].todo) + c.a3 * given)
            clients[at].given = given
            only, count = at, count + 1
        room -= given
    return chunks_ms + c.a0 if count > 0 else 0.0, only if count == 1 else -1


@jit
def passes_until(first: float, step: float, wait_ms: float) -> float:
    """Passes with rows only, each longer by a step, until one starts that late."""
    if wait_ms <= first or wait_ms == inf:
        return 1.0 if wait_ms <= first else inf
    if step * wait_ms < 1e-9 * first * first:
        return ceil(wait_ms / first - 1e-9)
    middle = first - step * 0.5
    return max(ceil((sqrt(middle * middle + 2.0 * step * wait_ms) - middle) / step - 1e-9), 1.0)


@jit
def land(c: Any, w: Any, atoms: Any, client: Any, now: float) -> float:
    """What a pass did for a client; 1 if its request is done."""
    if client.passes > 0.0:
        client.made += client.passes
    elif client.given > 0.0:
        client.todo -= client.given
        if client.todo > 0.0:
            return 0.0
        client.made = 1.0
        hear(w, atoms, now - client.visible + c.think_ms)
    if client.made < c.osl:
        return 0.0
    client.todo, client.made, client.visible, client.ended = c.new, 0.0, now + c.think_ms, now
    return 1.0


@jit
def hear(w: Any, atoms: Any, ttft: float) -> None:
    """One more request in the mixture: in the row of its TTFT, or of the nearest if there are many."""
    nearest, count = 0, int(w.atoms)
    for a in range(count):
        if abs(atoms[a, 1] - ttft) < abs(atoms[nearest, 1] - ttft):
            nearest = a
    if count == 0 or (abs(atoms[nearest, 1] - ttft) > 1e-9 * ttft and count < ATOMS):
        put(atoms, count, 1.0, ttft, ttft)
        w.atoms += 1.0
    else:
        atoms[nearest, 0] += 1.0


@jit
def last_done(clients: Any, n: int, now: float) -> int:
    """Who is done now; of several the last in the ring, which is who goes first next time."""
    newest = 0
    for i in range(n):
        if clients[i].ended == now:
            newest = i
            if clients[(i + 1) % n].ended != now:
                return i
    return newest


@jit
def keep(clients: Any, n: int, newest: int, now: float) -> None:
    """How all stand to who was done last; who is who does not matter, since all ask alike and in turn."""
    for i in range(n):
        here = (newest + i) % n
        clients[i].kept_todo, clients[i].kept_made = clients[here].todo, clients[here].made
        clients[i].kept_visible = clients[here].visible - now


@jit
def repeats(clients: Any, n: int, newest: int, now: float) -> bool:
    """Whether all stand as they stood when they were kept."""
    for i in range(n):
        here = (newest + i) % n
        if clients[here].todo != clients[i].kept_todo or clients[here].made != clients[i].kept_made:
            return False
        if clients[here].made == 0.0 and abs(clients[here].visible - now - clients[i].kept_visible) > 1e-9 * now:
            return False
    return True
