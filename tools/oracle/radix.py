"""A prefix tree over token identities, as SGLang keeps finished and published KV (S15)."""

from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush


class Node:
    """An edge's tokens and what hangs below; `locks` counts the running requests whose path goes through."""

    __slots__ = ("children", "key", "locks", "number", "parent", "touched")

    def __init__(self, key: Sequence[int], parent: "Node | None", number: int) -> None:
        self.key, self.parent, self.number = key, parent, number
        self.children: dict[tuple[int, ...], Node] = {}
        self.locks = 0
        self.touched = 0


class RadixTree:
    """Whole pages only: a node's key is a multiple of the page long, children differ in their first page."""

    def __init__(self, page: int) -> None:
        self.page = page
        self.size = 0  # tokens of all nodes
        self.evictable = 0  # tokens of unlocked nodes
        self._made = 0
        self._now = 0
        self.root = self._node((), None)

    def match(self, tokens: Sequence[int]) -> tuple[Node, int]:
        """The node where the longest known prefix ends, split there if need be, and its length; touches the path."""
        self._tick()
        node, length = self.root, 0
        while child := node.children.get(self._first_page(tokens, length)):
            child.touched = self._now
            common = self._common(child.key, tokens, length)
            length += common
            if common < len(child.key):
                return self._split(child, common), length
            node = child
        return node, length

    def insert(self, tokens: Sequence[int]) -> Node:
        """Make tokens known, a multiple of the page; the node where they end."""
        node, length = self.match(tokens)
        if length < len(tokens):
            leaf = self._node(tokens[length:], node)
            node.children[self._first_page(tokens, length)] = leaf
            self.size += len(leaf.key)
            self.evictable += len(leaf.key)
            return leaf
        return node

    def lock(self, node: Node) -> None:
        """Keep a path."""
        for each in self._path(node):
            if each.locks == 0:
                self.evictable -= len(each.key)
            each.locks += 1

    def unlock(self, node: Node) -> None:
        """Let a path go, as far as nobody else keeps it."""
        for each in self._path(node):
            each.locks -= 1
            if each.locks == 0:
                self.evictable += len(each.key)

    def evict(self, count: int) -> None:
        """Remove whole unlocked leaves, least recently touched first, until `count` tokens are gone or none is left."""
        heap = [(node.touched, node.number, node) for node in self._leaves() if not node.locks]
        heapify(heap)
        while heap and count > 0:
            leaf = heappop(heap)[2]
            count -= len(leaf.key)
            self._remove(leaf)
            parent = leaf.parent
            if parent is not self.root and not parent.children and not parent.locks:
                heappush(heap, (parent.touched, parent.number, parent))

    def _tick(self) -> int:
        self._now += 1
        return self._now

    def _node(self, key: Sequence[int], parent: Node | None) -> Node:
        node = Node(key, parent, self._made)
        node.touched = self._tick()
        self._made += 1
        return node

    def _first_page(self, tokens: Sequence[int], start: int) -> tuple[int, ...]:
        """What distinguishes children; too short at the end of the tokens to be found."""
        return tuple(tokens[start : start + self.page])

    def _common(self, key: Sequence[int], tokens: Sequence[int], start: int) -> int:
        """Leading tokens in whole pages that a key shares with `tokens[start:]`."""
        there = tokens[start : start + len(key)]
        if len(there) == len(key) and there == key:
            return len(key)
        same = next((i for i, (a, b) in enumerate(zip(key, there, strict=False)) if a != b), min(len(key), len(there)))
        return same - same % self.page

    def _split(self, node: Node, length: int) -> Node:
        """Cut a node; the upper part is new, and as much touched and locked as the lower."""
        upper = self._node(node.key[:length], node.parent)
        upper.locks, upper.touched = node.locks, node.touched
        node.parent.children[self._first_page(node.key, 0)] = upper
        upper.children[self._first_page(node.key, length)] = node
        node.key, node.parent = node.key[length:], upper
        return upper

    def _remove(self, leaf: Node) -> None:
        del leaf.parent.children[self._first_page(leaf.key, 0)]
        self.size -= len(leaf.key)
        self.evictable -= len(leaf.key)

    def _path(self, node: Node) -> Iterator[Node]:
        while node is not self.root:
            yield node
            node = node.parent

    def _leaves(self) -> Iterator[Node]:
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack += node.children.values()
            else:
                yield node
