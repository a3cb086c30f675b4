"""How SGLang forms a prefill batch: gates and budgets (S5-S7), admission (S8, S9), the prompt between chunks (S10), the queue's order (S16)."""

from typing import Any

from passcal.calendar.sglang_batch import CLIP, HEADER, LISTED, add_row, ceil, reserved
from passcal.core import radix
from passcal.core.compiled import jit
from passcal.core.rank import HELD_BLOCKS, HELD_BUDGET, HELD_NOT, HELD_SEATS, free_seats, pop
from passcal.core.tables import NOBODY, State

__all__ = ["prefill"]

GO, NO_TOKEN, OTHER = 0, 1, 2
LEFT, HELD = 2, 3  # lists of ends to come (S9): outputs left, tokens held
SORTED = 128  # the longest queue that is sorted, and how much of one is touched
SMALL = 32  # a hit that is as good as none
TOUCHED = 32  # attempts


@jit
def prefill(state: State, rank: Any, s: Any, k: int, starts: float) -> None:
    """Try to form a prefill batch, which would start at this time (S5)."""
    if rank.running == 0:
        s.full = 0
    if s.partial == NOBODY:
        if s.full or rank.waiting == 0:
            return
        if free_seats(rank) <= 0:
            s.full, rank.held_by = 1, HELD_SEATS
            return
    if s.tree:
        order_queue(state, rank, s)
    if not s.full:  # else the prompt between chunks runs alone, and the reason stands (S5)
        rank.held_by = HELD_NOT
    open_budgets(state, rank, s, k)
    if s.partial != NOBODY:
        go_on(state, rank, s, k)
    scan(state, rank, s, k, starts)


@jit
def open_budgets(state: State, rank: Any, s: Any, k: int) -> None:
    """What the plan may still give: prompt tokens by two limits, and KV against what running requests are promised (S6)."""
    debit = rank.running if s.mixed else 0
    s.input_left, s.chunk_left = s.most_prefill - debit, s.chunk - debit
    outputs = 0
    for n in range(rank.running):
        outputs += reserved(state, state.running[k, n])
    s.taken, s.promised = debit, debit + outputs * (1.0 if s.ignore_eos else s.ratio)
    s.ends = -1


@jit
def charge(state: State, rank: Any, s: Any, i: int, whole: bool) -> None:
    """A batched prompt takes its pages and one more, and is promised its whole output with its last chunk (S6)."""
    pages = ceil(state.sequences[i].given, s.page)
    s.promised += pages + s.page + (min(state.sglang_lives[i].limit, CLIP) if whole else 0)
    s.taken += pages + s.page
    s.input_left -= pages
    s.chunk_left -= pages


@jit
def go_on(state: State, rank: Any, s: Any, k: int) -> None:
    """The prompt between chunks takes what is left of itself, of the chunk and of KV; it is never refused (S10)."""
    i = s.partial
    sequence = state.sequences[i]
    room = min(s.chunk_left, int(rank.free - s.promised))
    if room <= 0:
        room = s.chunk_left
    left = state.legs[i].isl + sequence.generated - sequence.computed
    sequence.given = min(left, room)
    charge(state, rank, s, i, left <= room)
    if left <= room:
        s.partial = NOBODY
    add_row(state, rank, s, k, i)


@jit
def spent(s: Any) -> bool:
    """Whether prompt tokens have run out."""
    return s.input_left <= 0 or (s.chunk > 0 and s.chunk_left <= 0)


@jit
def scan(state: State, rank: Any, s: Any, k: int, starts: float) -> None:
    """Admit from the queue until something runs out; nothing is skipped (S7)."""
    while rank.waiting > 0:
        rest = min(rank.free - s.promised, 1.0 * (rank.free - s.taken))
        if rest > 0 and spent(s):
            rank.held_by = HELD_BUDGET
            return
        if s.rows >= free_seats(rank):
            s.full, rank.held_by = 1, HELD_SEATS
        if s.full:
            return
        verdict = consider(state, rank, s, k, starts)
        if verdict == GO:
            if min(rank.free - s.promised, 1.0 * (rank.free - s.taken)) <= 0:
                verdict = NO_TOKEN
            elif spent(s):
                verdict = OTHER
        if verdict == NO_TOKEN:
            s.full = s.rows > 0 or rank.running > 0
            rank.held_by = HELD_BLOCKS
            return
        if verdict == OTHER:
            rank.held_by = HELD_BUDGET
            return


@jit
def consider(state: State, rank: Any, s: Any, k: int, starts: float) -> int:
    """Look up the queue's head in the prefix tree (S15) and admit it, cut to the chunk if need be, or say why not."""
    i = rank.waiting_head
    sequence, request, life = state.sequences[i], state.legs[i], state.sglang_lives[i]
    length = request.isl + sequence.generated
    leaf = life.root
    if s.tree:
        leaf = radix.match(state, s, i, length - 1)
    cached = state.nodes[leaf].end
    hit = max(cached, min(request.prefix, length - 1) // s.page * s.page)
    pinned = hit - cached + (radix.unlocked_tokens(state, leaf) if s.tree else 0)
    if s.foresee:
        given = foresees(state, rank, s, k, i, length - hit, pinned)
    else:
        given = fits(state, rank, s, i, length - hit, pinned)
    if given <= 0:
        return -given
    pop(state, rank)
    rank.resuming -= request.preemptions > 0
    sequence.computed, sequence.given, life.place = hit, given, LISTED
    if request.admitted_ms < 0.0:
        request.admitted_ms, request.cached = starts, hit
    if s.tree:
        radix.grab(state, rank, s, leaf, 1)
    rank.free -= hit - cached
    life.leaf = leaf
    whole = given == length - hit
    if not whole:
        s.partial = i
    charge(state, rank, s, i, whole)
    add_row(state, rank, s, k, i)
    return GO


@jit
def fits(state: State, rank: Any, s: Any, i: int, new: int, pinned: int) -> int:
    """Tokens that a candidate gets if its prompt and reserved output fit the rest, else minus the verdict (S8)."""
    if not new + max(reserved(state, i), 0) + s.page < rank.free - pinned - s.promised:
        return -NO_TOKEN
    pages = ceil(new, s.page)
    if s.chunk == 0:
        return -OTHER if s.rows > 0 and pages >= s.input_left else new
    if pages <= s.chunk_left:
        return new
    cut = s.chunk_left // s.page * s.page
    return cut if cut > 0 else -OTHER


@jit
def foresees(state: State, rank: Any, s: Any, k: int, i: int, new: int, pinned: int) -> int:
    """The same where every output is known to be as long as asked: at each end to come the rows left must have room (S9)."""
    need = ceil(new, s.page) + s.page
    free = rank.free - pinned
    if need > min(1.0 * (free - s.taken), free - s.promised):
        return -NO_TOKEN
    list_ends(state, rank, s, k, i)
    room, freed = free - s.taken - need, 0
    for n in range(s.ends):
        rows = s.ends - n
        if room + freed - state.lists[k, LEFT, n] * rows <= rows:
            return -NO_TOKEN
        freed += state.lists[k, HELD, n]
    if s.chunk == 0 or new <= s.chunk_left:
        return new
    return s.chunk_left if s.chunk_left > 0 else -OTHER


@jit
def list_ends(state: State, rank: Any, s: Any, k: int, i: int) -> None:
    """Make the list of ends to come, shortest first, at a plan's first candidate; put later ones in as the engine does (S9)."""
    if s.ends >= 0:
        left = state.sglang_lives[i].limit - state.sequences[i].generated
        at = 0
        while at < s.ends - 1 and left > state.lists[k, LEFT, at]:
            at += 1  # one longer than all ends up before the last
        put_end(state, s, k, i, at)
        return
    s.ends = 0
    for n in range(1 + rank.running + s.rows):
        j = i
        if n > rank.running:
            j = state.lists[k, s.slot, HEADER + n - 1 - rank.running]
        elif n > 0:
            j = state.running[k, n - 1]
        left = state.sglang_lives[j].limit - state.sequences[j].generated
        at = s.ends
        while at > 0 and state.lists[k, LEFT, at - 1] > left:
            at -= 1
        put_end(state, s, k, j, at)


@jit
def put_end(state: State, s: Any, k: int, i: int, at: int) -> None:
    """Put the end of request i, if it has outputs left, at a place of the list."""
    left = state.sglang_lives[i].limit - state.sequences[i].generated
    if left <= 0:
        return
    for n in range(s.ends, at, -1):
        state.lists[k, LEFT, n] = state.lists[k, LEFT, n - 1]
        state.lists[k, HELD, n] = state.lists[k, HELD, n - 1]
    state.lists[k, LEFT, at] = left
    state.lists[k, HELD, at] = state.legs[i].isl + state.sequences[i].generated
    s.ends += 1


@jit
def order_queue(state: State, rank: Any, s: Any) -> None:
    """Sort the queue by cached prefix, or touch the prefixes of its head now and then (S15, S16)."""
    count, i = 0, rank.waiting_head
    while i != NOBODY and count < SORTED:
        state.scratch[count] = i
        count += 1
        i = state.sequences[i].after
    if s.lpm and rank.waiting <= SORTED:
        for n in range(count):
            i = state.scratch[n]
            length = state.legs[i].isl + state.sequences[i].generated
            hit = state.nodes[radix.match(state, s, i, length)].end
            state.sglang_lives[i].key = min(hit, length - 1)
            if hit <= SMALL and shares_with_earlier(state, n):
                state.sglang_lives[i].key = -1
        sort_queue(state, rank, count)
        return
    if s.asked % TOUCHED == 0:
        for n in range(count - 1, -1, -1):
            i = state.scratch[n]
            radix.match(state, s, i, state.legs[i].isl + state.sequences[i].generated)
    s.asked += 1


@jit
def shares_with_earlier(state: State, n: int) -> bool:
    """Whether an earlier waiting request without a hit will compute a prefix that this one can then hit (S16)."""
    i = state.scratch[n]
    mine = state.sglang_lives[i]
    for m in range(n):
        j = state.scratch[m]
        other = state.sglang_lives[j]
        if other.key <= SMALL and other.root == mine.root and min(other.shared, mine.shared) >= SMALL:
            return True
    return False


@jit
def sort_queue(state: State, rank: Any, count: int) -> None:
    """Thread the queue anew, highest keys first, equal ones as they stood."""
    for a in range(1, count):
        i, b = state.scratch[a], a
        while b > 0 and state.sglang_lives[state.scratch[b - 1]].key < state.sglang_lives[i].key:
            state.scratch[b] = state.scratch[b - 1]
            b -= 1
        state.scratch[b] = i
    for n in range(count):
        state.sequences[state.scratch[n]].after = state.scratch[n + 1] if n + 1 < count else NOBODY
    if count > 0:
        rank.waiting_head, rank.waiting_tail = state.scratch[0], state.scratch[count - 1]
