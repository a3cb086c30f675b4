"""Prefix oracle: what a cache of pages would have held of each prompt of a trace, by the trace's own token identity.

A trace names the pages of a prompt by ids. A page is known by its id and by the pages before it, so ids that repeat under another beginning
are other pages. Requests are taken in order; each finds the leading pages that are resident, then its own pages become resident and the most
recent, then the cache is cut to its capacity. Recency is one list:

    lru    pages are touched from the first on, so of what one request left, its first page goes first
    leaf   pages are touched from the last on, so a page goes before every page that it continues: only leaves are evicted, oldest first

What an oracle leaves out: a page is there for the next request, however soon; outputs leave no pages; there is one cache, not one a worker.
"""

from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from passcal.core.compiled import entry, jit, table
from passcal.errors import SpecError

__all__ = ["Pages", "PrefixOracle"]

NOBODY = -1
SPREAD = np.uint64(0x9E3779B97F4A7C15)
"""2^64 over the golden ratio: ids that count up land far from each other."""
PAGE = np.dtype([("id", "i8"), ("parent", "i4"), ("held", "i4"), ("newer", "i4"), ("older", "i4")])
"""A page seen: what it continues (a page, or -1 - root), how many of its tokens are resident, its neighbours by recency if any are."""
CACHE = np.dtype(
    [
        (name, "i8")
        for name in (
            "page_size",
            "block_size",
            "capacity",
            "partial",
            "head_first",
            "pages",
            "resident",
            "newest",
            "oldest",
        )
    ]
)
ROW = np.dtype([(name, "i8") for name in ("first", "stop", "isl", "root", "hit")])
"""A request: where its page ids begin and end, its prompt tokens, what separates its pages from others', its hit."""
Eviction = Literal["lru", "leaf"]
Sharing = Literal["global", "session"]


@dataclass(frozen=True, eq=False)
class Pages:
    """The pages of every prompt of a trace, as ragged arrays; row r has `ids[offsets[r] : offsets[r + 1]]`.

    Attributes:
        ids: int64, shape (pages of all rows,).
        offsets: int64, shape (rows + 1,).
        page_size: tokens of a full page.
        sessions: int64, shape (rows,): the session of each row; None where a trace has none.
        roots: int64, shape (rows,), not negative: rows of different roots share no pages, whatever their ids; None: all may share.

    It is not changed after it is made, so copies are the object itself and a pandas frame can carry it in `attrs`.
    """

    ids: Any
    offsets: Any
    page_size: int
    sessions: Any = None
    roots: Any = None

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __deepcopy__(self, memo: dict[int, Any]) -> "Pages":
        return self

    @property
    def counts(self) -> Any:
        """Pages of each row."""
        return np.diff(self.offsets)

    def take(self, rows: Any) -> "Pages":
        """The same of these rows, in this order."""
        rows = np.asarray(rows, np.int64)
        counts = self.counts[rows]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)
        ids = self.ids[np.repeat(self.offsets[rows], counts) + within]
        sessions, roots = (None if part is None else part[rows] for part in (self.sessions, self.roots))
        return Pages(ids, offsets, self.page_size, sessions, roots)


@dataclass(frozen=True)
class PrefixOracle:
    """A cache of pages that a trace's prompts go through in order.

    Attributes:
        capacity_pages: pages that it holds; None: all.
        eviction: `"leaf"` (only pages that no resident page continues, oldest first: vLLM's free list and SGLang's tree) or `"lru"` (the
            page touched longest ago, wherever it stands).
        partial_tail: whether the last page of a prompt counts although its prompt does not fill it.
        block_size: hits are rounded down to whole blocks of the engine; 1: not rounded.
        sharing: `"global"`, or `"session"`: pages are shared within a session only.

    Raises:
        SpecError: a value out of range.
    """

    capacity_pages: int | None = None
    eviction: Eviction = "leaf"
    partial_tail: bool = False
    block_size: int = 1
    sharing: Sharing = "global"

    def __post_init__(self) -> None:
        for name, least in (("capacity_pages", 0), ("block_size", 1)):
            value = getattr(self, name)
            whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
            if not (name == "capacity_pages" and value is None) and not (whole and least <= value < 2**31):
                raise SpecError(
                    f"PrefixOracle.{name}={value!r:.40}: must be a whole number, at least {least}; correct it"
                )
        for name, known in (("eviction", get_args(Eviction)), ("sharing", get_args(Sharing))):
            if getattr(self, name) not in known:
                raise SpecError(
                    f"PrefixOracle.{name}={getattr(self, name)!r:.40}: must be {' or '.join(known)}; choose one"
                )
        if not isinstance(self.partial_tail, bool):
            raise SpecError(f"PrefixOracle.partial_tail={self.partial_tail!r:.40}: must be true or false; correct it")

    def hits(self, pages: Pages, isl: Any) -> Any:
        """Prompt tokens that are cached when each request comes: below its isl, whole blocks; int64, shape (rows,).

        Args:
            pages: the pages of each row, in order of dispatch.
            isl: prompt tokens of each row.

        Raises:
            SpecError: rows that do not fit, more pages than a prompt has, or sharing by session where the trace has no sessions.
        """
        lengths = checked(pages, isl)
        roots = pages.roots
        if self.sharing == "session":
            if pages.sessions is None:
                raise SpecError("PrefixOracle.sharing='session': this trace has no sessions; choose global")
            roots = pages.sessions
        rows = np.zeros(len(pages), ROW)
        rows["first"], rows["stop"], rows["isl"] = pages.offsets[:-1], pages.offsets[1:], lengths
        rows["root"] = 0 if roots is None else roots
        if len(pages.ids) and self.capacity_pages != 0:
            cache, seen, slots = self._tables(pages)
            mixed = (pages.ids.astype(np.uint64) * SPREAD >> np.uint64(33)).astype(np.int64)
            walk(table(rows), pages.ids, mixed, slots, seen, cache, np.empty(int(pages.counts.max()), np.int64))
        return rows["hit"].copy()

    def _tables(self, pages: Pages) -> tuple[Any, Any, Any]:
        """The cache, empty; room for every page; and where to find them, at most half full."""
        cache = np.zeros(1, CACHE)
        cache["page_size"], cache["block_size"] = pages.page_size, self.block_size
        cache["capacity"] = len(pages.ids) if self.capacity_pages is None else self.capacity_pages
        cache["partial"], cache["head_first"] = self.partial_tail, self.eviction == "lru"
        cache["newest"] = cache["oldest"] = NOBODY
        slots = np.full(1 << int(2 * len(pages.ids)).bit_length(), NOBODY, np.int32)
        return table(cache), table(np.zeros(len(pages.ids), PAGE)), slots


def checked(pages: Pages, isl: Any) -> Any:
    """Prompt lengths as int64, if they fit the pages."""
    lengths = np.asarray(isl).astype(np.int64)
    if lengths.shape != (len(pages),):
        raise SpecError(
            f"isl has shape {lengths.shape}: must be ({len(pages)},), a prompt length for each row of pages"
        )
    broken = (pages.counts - 1) * pages.page_size >= lengths
    broken &= pages.counts > 0
    if broken.any():
        at = int(np.argmax(broken))
        raise SpecError(
            f"row {at}: {pages.counts[at]} pages of {pages.page_size} tokens for isl={lengths[at]}: too many; give the pages of this row"
        )
    return lengths


@entry
def walk(rows: Any, ids: Any, mixed: Any, slots: Any, seen: Any, caches: Any, path: Any) -> None:
    """Take the requests through the cache in order; `path` has room for the pages of one."""
    cache = caches[0]
    for r in range(len(rows)):
        row = rows[r]
        size, first = cache.page_size, row.first
        usable = min(row.stop - first, row.isl // size)
        if cache.partial and first + usable < row.stop and usable * size < row.isl:
            usable += 1
        parent, matched, leading = -1 - row.root, 0, True
        for j in range(usable):
            at = page_at(ids[first + j], mixed[first + j], parent, slots, seen, cache)
            own = min(size, row.isl - j * size)
            if leading:
                matched += min(own, seen[at].held)  # 0 if it is not resident
                leading = seen[at].held >= own
            path[j] = at
            parent = at
        row.hit = min(matched, row.isl - 1) // cache.block_size * cache.block_size
        for k in range(usable):
            j = k if cache.head_first else usable - 1 - k
            touch(path[j], min(size, row.isl - j * size), seen, cache)
        while cache.resident > cache.capacity:
            drop(cache.oldest, seen, cache)
            cache.resident -= 1


@jit
def page_at(page_id: Any, mixed: Any, parent: Any, slots: Any, seen: Any, cache: Any) -> Any:
    """The page with this id after this parent, entered if it is new."""
    mask = len(slots) - 1
    at = (mixed + (parent + 1) * 40503) & mask  # odd, so that parents spread over the slots
    while slots[at] != NOBODY:
        found = seen[slots[at]]
        if found.id == page_id and found.parent == parent:
            return slots[at]
        at = (at + 1) & mask
    new = cache.pages
    slots[at] = new
    seen[new].id = page_id
    seen[new].parent = parent
    cache.pages += 1
    return new


@jit
def touch(at: Any, tokens: Any, seen: Any, cache: Any) -> None:
    """Make a page the most recent one, and resident with at least so many tokens."""
    if seen[at].held > 0:
        tokens = max(tokens, seen[at].held)
        drop(at, seen, cache)
    else:
        cache.resident += 1
    page = seen[at]
    page.held = tokens
    page.newer = NOBODY
    page.older = cache.newest
    if cache.newest != NOBODY:
        seen[cache.newest].newer = at
    else:
        cache.oldest = at
    cache.newest = at


@jit
def drop(at: Any, seen: Any, cache: Any) -> None:
    """Take a page off the list of recency; it is resident no more."""
    page = seen[at]
    page.held = 0
    if page.newer != NOBODY:
        seen[page.newer].older = page.older
    else:
        cache.newest = page.older
    if page.older != NOBODY:
        seen[page.older].newer = page.newer
    else:
        cache.oldest = page.newer
