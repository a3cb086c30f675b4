"""A pool of KV blocks: by count, and by identity where prompts can hit cached blocks (V6-V9).

`rank.memory == 0`: KV never binds, nothing is counted and every wish fits. Where no two sequences share a block, counting is enough, what evicted
ones can hit included (see `remains`). `rank.identities == 1`: prompts share blocks, so besides the count every block is known by what it holds. A block's identity is its whole prefix, so it is either a block of a prefix group or one of a single sequence. The free
queue runs from FRONT to BACK through `BLOCK.after`; what a free block holds can be hit until the block is taken again.
"""

from typing import Any

from passcal.core import remains
from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["close_slot", "cover", "give_back", "hold", "lookup", "missing", "open_slot", "register", "take"]

NOTHING, DEAD = -1, -2  # contents of a block: never registered; registered, but by a sequence that is gone
FRONT, BACK = 0, 1  # rows of BLOCK that end the free queue; row 1 is not vLLM's null block, which is simply left out


@jit
def cover(tokens: int, block_size: int) -> int:
    """Blocks that hold this many tokens."""
    return (tokens + block_size - 1) // block_size


@jit
def missing(rank: Any, s: Any, tokens: int) -> int:
    """Blocks that sequence s lacks to hold this many tokens; those of rejected drafts stay held (V16)."""
    return max(cover(tokens, rank.block_size) - s.held, 0) if rank.memory else 0


@jit
def take(state: State, rank: Any, i: int, count: int) -> None:
    """Give sequence i this many more blocks; the caller has seen that they are free."""
    if not rank.memory:
        return
    s = state.sequences[i]
    if rank.identities:
        for j in range(count):
            state.tables[rank.index, s.slot, s.held + j] = pop_front(state, rank)
        rank.free -= count
    else:
        remains.take_front(state, rank, count)
    s.held += count


@jit
def give_back(state: State, rank: Any, i: int, evicted: bool) -> None:
    """Sequence i lets go of its blocks, the last one first (V9); an evicted one will come again."""
    if not rank.memory:
        return
    s = state.sequences[i]
    if not rank.identities:
        remains.leave_behind(state, rank, i, evicted and rank.caching > 0)
        return
    at = FRONT
    for j in range(s.held - 1, -1, -1):
        b = state.tables[rank.index, s.slot, j]
        state.blocks[rank.index, b].refs -= 1
        if state.blocks[rank.index, b].refs == 0:
            rank.free += 1
            if state.blocks[rank.index, b].content == NOTHING:
                link(state, rank, b, at)
                at = b
            else:
                link(state, rank, b, state.blocks[rank.index, BACK].before)
    s.held, s.registered = 0, 0


@jit
def link(state: State, rank: Any, b: int, at: int) -> None:
    """Put block b into the free queue behind block `at`."""
    after = state.blocks[rank.index, at].after
    state.blocks[rank.index, b].before, state.blocks[rank.index, b].after = at, after
    state.blocks[rank.index, at].after = b
    state.blocks[rank.index, after].before = b


@jit
def unlink(state: State, rank: Any, b: int) -> None:
    """Take block b out of the free queue."""
    block = state.blocks[rank.index, b]
    state.blocks[rank.index, block.before].after = block.after
    state.blocks[rank.index, block.after].before = block.before


@jit
def pop_front(state: State, rank: Any) -> int:
    """The block at the front of the free queue, in use from now on; what it held is forgotten."""
    b = state.blocks[rank.index, FRONT].after
    block = state.blocks[rank.index, b]
    unlink(state, rank, b)
    if block.content >= 0:
        forget_copy(state, rank, b, block.content)
    block.content, block.refs = NOTHING, 1
    return b


@jit
def forget_copy(state: State, rank: Any, b: int, content: int) -> None:
    """Block b no longer holds this content; other blocks may."""
    twin = state.blocks[rank.index, b].twin
    at = state.contents[rank.index, content]
    if at == b:
        state.contents[rank.index, content] = twin
        return
    while state.blocks[rank.index, at].twin != b:
        at = state.blocks[rank.index, at].twin
    state.blocks[rank.index, at].twin = twin


@jit
def content_of(state: State, rank: Any, i: int, j: int) -> int:
    """Where block j of sequence i stands in `contents`: under its group while it lies in the shared prefix, else under its slot, if it has one."""
    request = state.legs[i]
    width = state.tables.shape[2]
    if request.group >= 0 and (j + 1) * rank.block_size <= min(request.shared, request.isl):
        return request.group * width + j
    slot = state.sequences[i].slot
    return (rank.groups + slot) * width + j if slot != NOBODY else NOBODY


@jit
def lookup(state: State, rank: Any, i: int, length: int) -> tuple[int, int]:
    """Leading registered blocks of sequence i, and how many of them nobody holds; at most all but the last token (V9)."""
    if rank.sharing:
        return resident_blocks(state, rank, i, length - 1), 0
    if not rank.identities:
        return 1 * state.sequences[i].registered, 1 * state.sequences[i].registered
    hits, free = 0, 0
    while hits < (length - 1) // rank.block_size:
        content = content_of(state, rank, i, hits)
        if content == NOBODY or state.contents[rank.index, content] == NOBODY:
            break
        b = state.contents[rank.index, content]
        if state.blocks[rank.index, b].refs == 0:
            free += 1
        hits += 1
    return hits, free


@jit
def resident_blocks(state: State, rank: Any, i: int, tokens: int) -> int:
    """Of the first tokens of sequence i, the whole blocks that prompts of its group have computed, where memory never binds."""
    request = state.legs[i]
    if request.group < 0:
        return 0
    return min(state.resident[rank.index, request.group], min(tokens, request.shared, request.isl) // rank.block_size)


@jit
def hold(state: State, rank: Any, i: int, hits: int) -> None:
    """Sequence i holds the first `hits` cached blocks."""
    if not rank.memory:
        return
    if not rank.identities:
        remains.reclaim(state, rank, i)
        return
    s = state.sequences[i]
    if s.slot == NOBODY:
        open_slot(state, rank, i)
    for j in range(hits):
        b = state.contents[rank.index, content_of(state, rank, i, j)]
        if state.blocks[rank.index, b].refs == 0:
            unlink(state, rank, b)
            rank.free -= 1
        state.blocks[rank.index, b].refs += 1
        state.tables[rank.index, s.slot, j] = b
    s.held, s.registered = hits, hits


@jit
def register(state: State, rank: Any, i: int, tokens: int) -> None:
    """The full blocks of sequence i up to this many tokens can be hit from now on; the oldest copy of a content is hit first."""
    s, group = state.sequences[i], state.legs[i].group
    if rank.sharing and group >= 0:
        most = min(tokens, state.legs[i].shared, state.legs[i].isl) // rank.block_size
        state.resident[rank.index, group] = max(state.resident[rank.index, group], most)
    if not rank.identities:
        s.registered = max(s.registered, tokens // rank.block_size)
        return
    while s.registered < tokens // rank.block_size:
        b, content = state.tables[rank.index, s.slot, s.registered], content_of(state, rank, i, s.registered)
        state.blocks[rank.index, b].content, state.blocks[rank.index, b].twin = content, NOBODY
        at = state.contents[rank.index, content]
        if at == NOBODY:
            state.contents[rank.index, content] = b
        else:
            while state.blocks[rank.index, at].twin != NOBODY:
                at = state.blocks[rank.index, at].twin
            state.blocks[rank.index, at].twin = b
        s.registered += 1
    s.known = max(s.known, s.registered)


@jit
def open_slot(state: State, rank: Any, i: int) -> None:
    """Sequence i, admitted for the first time, gets a row for its blocks and their contents."""
    rank.slots_free -= 1
    s = state.sequences[i]
    s.slot, s.known = state.slots[rank.index, rank.slots_free], 0


@jit
def close_slot(state: State, rank: Any, i: int) -> None:
    """Sequence i is gone: nobody can hit its own blocks any more."""
    s = state.sequences[i]
    for j in range(s.known):
        content = (rank.groups + s.slot) * state.tables.shape[2] + j
        b = state.contents[rank.index, content]
        while b != NOBODY:
            state.blocks[rank.index, b].content = DEAD
            b = state.blocks[rank.index, b].twin
        state.contents[rank.index, content] = NOBODY
    state.slots[rank.index, rank.slots_free] = s.slot
    rank.slots_free += 1
