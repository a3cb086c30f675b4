"""A prefix tree over whole pages of KV, as SGLang keeps it (S15).

Requests of one group share their first tokens: the group's trunk, which hangs from the group's own root. Beyond its `trunk` tokens a request
has a chain of its own. So a node has at most one child on the trunk or chain (`below`), and the first node of a request's own chain is
known by the request (`branch`); no table of children is needed. A node stays when its request is gone, and is known by the
request's serial then, since the row may be another request's.

Tokens of locked nodes count as taken in `rank.free`, those of unlocked ones as free: they are evicted when a page is needed.
"""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import NOBODY, State

__all__ = ["drop_chain", "grab", "make_room", "match", "publish", "unlocked_tokens"]

STEP = 0.00001  # between the touches of a node and its parent


@jit
def tick(s: Any) -> int:
    """The tree's clock."""
    s.clock += 1
    return s.clock


@jit
def new_node(state: State, s: Any, parent: int, start: int, end: int) -> int:
    """A node that holds tokens start to end of a path."""
    if s.spare == NOBODY:
        x = s.nodes
        s.nodes += 1
    else:
        x = s.spare
        s.spare = state.nodes[x].below
    node = state.nodes[x]
    node.parent, node.start, node.end = parent, start, end
    node.below, node.kids, node.lock = NOBODY, 0, 0
    node.access = tick(s)
    return x


@jit
def hang(state: State, up: int, node: Any, x: int) -> None:
    """What hangs from `up` where `node` is or was: x, or nobody."""
    if node.start != node.trunk:
        state.nodes[up].below = x
        return
    life = state.sglang_lives[node.owner]
    if life.serial == node.serial:
        life.branch = x


@jit
def child(state: State, x: int, life: Any) -> int:
    """The next node below x on the path of a request."""
    return life.branch if state.nodes[x].end == life.trunk else state.nodes[x].below


@jit
def common(state: State, c: int, life: Any, length: int) -> int:
    """How far node c agrees with the first `length` tokens of a request."""
    node = state.nodes[c]
    most = min(node.end, length)
    return most if node.serial == life.serial else min(most, node.trunk, life.trunk)


@jit
def split(state: State, s: Any, x: int, at: int) -> int:
    """Cut node x in two; returns the upper one, which is new."""
    node = state.nodes[x]
    u = new_node(state, s, node.parent, node.start, at)
    up = state.nodes[u]
    up.owner, up.serial, up.trunk, up.lock, up.kids = node.owner, node.serial, node.trunk, node.lock, 1
    hang(state, node.parent, up, u)
    node.parent, node.start, node.access = u, at, tick(s)
    hang(state, u, node, x)
    return u


@jit
def match(state: State, s: Any, i: int, length: int) -> int:
    """The deepest node of the cached prefix of request i, at most `length` tokens; splits and touches the path."""
    life = state.sglang_lives[i]
    length = length // s.page * s.page
    x = life.root
    if length == 0:
        return x
    while state.nodes[x].end < length:
        c = child(state, x, life)
        if c == NOBODY:
            break
        at = common(state, c, life, length)
        if at < state.nodes[c].end:
            x = split(state, s, c, at)
            break
        x = c
    y, when = x, 1.0 * tick(s)
    while y != NOBODY:
        state.nodes[y].access = when
        when -= STEP
        y = state.nodes[y].parent
    return x


@jit
def insert(state: State, s: Any, i: int, length: int) -> int:
    """Put the first `length` tokens of request i, whole pages, in the tree; returns the node that they end in."""
    life = state.sglang_lives[i]
    x = life.root
    while state.nodes[x].end < length:
        c = child(state, x, life)
        if c == NOBODY:
            c = new_node(state, s, x, state.nodes[x].end, length)
            node = state.nodes[c]
            node.owner, node.serial, node.trunk = i, life.serial, life.trunk
            hang(state, x, node, c)
            state.nodes[x].kids += 1
            s.unlocked += length - node.start
            return c
        state.nodes[c].access = tick(s)
        at = common(state, c, life, length)
        x = split(state, s, c, at) if at < state.nodes[c].end else c
    return x


@jit
def grab(state: State, rank: Any, s: Any, x: int, by: int) -> None:
    """Lock (by 1) or unlock (by -1) the path to x; tokens that nobody locked before are taken, or free again."""
    bare = 0 if by > 0 else 1
    while x != NOBODY:
        node = state.nodes[x]
        if node.lock == bare:
            rank.free -= by * (node.end - node.start)
            s.unlocked -= by * (node.end - node.start)
        node.lock += by
        x = node.parent


@jit
def unlocked_tokens(state: State, x: int) -> int:
    """Tokens of the path to x that nobody locks."""
    tokens = 0
    while x != NOBODY:
        node = state.nodes[x]
        if node.lock == 0:
            tokens += node.end - node.start
        x = node.parent
    return tokens


@jit
def publish(state: State, rank: Any, s: Any, i: int, length: int) -> None:
    """The first `length` tokens of request i become the tree's, cut at the prompt's end, and its lock moves to their end.

    What another request had published before is merged: the pages of the copy are free.
    """
    life = state.sglang_lives[i]
    length = length // s.page * s.page
    prompt = state.legs[i].isl // s.page * s.page
    x = insert(state, s, i, length)
    if 0 < prompt < length:
        insert(state, s, i, prompt)
    rank.free += length - state.nodes[life.leaf].end
    grab(state, rank, s, life.leaf, -1)
    grab(state, rank, s, x, 1)
    life.leaf = x


@jit
def drop_chain(state: State, s: Any, i: int) -> None:
    """Nodes of request i alone are used again: it is done, nobody else can hit them, and where memory never binds nothing would evict them."""
    life = state.sglang_lives[i]
    x = life.branch
    if x == NOBODY:
        return
    state.nodes[state.nodes[x].parent].kids -= 1
    while x != NOBODY:
        node = state.nodes[x]
        below = node.below
        s.unlocked -= node.end - node.start
        node.parent, node.below = NOBODY, s.spare
        s.spare = x
        x = below
    life.branch = NOBODY


@jit
def make_room(state: State, rank: Any, s: Any, want: int) -> None:
    """Evict the least recently touched unlocked leaves, whole nodes, until `want` tokens hold nothing or no leaf is left."""
    while rank.free - s.unlocked < want and s.unlocked > 0:
        best, oldest = NOBODY, 0.0
        for x in range(s.first_node, s.nodes):
            node = state.nodes[x]
            if node.parent != NOBODY and node.kids == 0 and node.lock == 0 and (best == NOBODY or node.access < oldest):
                best, oldest = x, node.access
        node = state.nodes[best]
        s.unlocked -= node.end - node.start
        state.nodes[node.parent].kids -= 1
        hang(state, node.parent, node, NOBODY)
        node.parent, node.below = NOBODY, s.spare
        s.spare = best
