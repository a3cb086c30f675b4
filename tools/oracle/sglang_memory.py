"""SGLang's KV memory, one method a rule: who holds what, and what the prefix tree keeps (S15, S17)."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from tools.oracle.errors import ScenarioError
from tools.oracle.radix import Node, RadixTree
from tools.oracle.requests import Lengths, Request
from tools.oracle.sglang_options import Options

OWN_TOKENS = 1 << 40  # identities of the tokens of one request or group


@dataclass(slots=True)
class Holding:
    """KV of a running request: `shared` tokens of its path in the tree, down to `node`, and `own` ones beside it."""

    node: Node
    shared: int
    own: int = 0
    published: bool = False  # its prompt's result was processed
    reserved: int = 0  # tokens that it holds at least (D6)

    @property
    def total(self) -> int:
        """Tokens of all its pages."""
        return self.shared + self.own


class SglangMemory:
    """A pool of pages, of which requests hold some, the tree some, and the rest is free."""

    def __init__(self, engine: object) -> None:
        self.options = Options.read(engine)
        self.tree = RadixTree(self.options.page_size)
        self.holdings: dict[Request, Holding] = {}
        self.own = 0

    def refuse_impossible(self, lengths: Iterable[Lengths]) -> None:
        """S17: a prompt that leaves no room for an output could never run."""
        for each in lengths:
            if each.prefix:
                raise ScenarioError("a constant prefix is not modelled for sglang; use prefix_group")
            if self.max_new_of(each) < 1:
                raise ScenarioError(f"isl {each.isl} leaves no output room in max_total_tokens; raise it")

    # Sizes.

    def ceil(self, tokens: int) -> int:
        """Tokens of the pages that hold so many."""
        return -(-tokens // self.options.page_size) * self.options.page_size

    def floor(self, tokens: int) -> int:
        """Tokens in whole pages."""
        return tokens - tokens % self.options.page_size

    def pool(self) -> float:
        """S17: whole pages of the memory; no limit, if the scenario has none."""
        tokens = self.options.max_total_tokens
        return inf if tokens is None else self.floor(tokens)

    def free(self) -> float:
        """Tokens that neither a request nor the tree holds."""
        return self.pool() - self.own - self.tree.size

    def capacity(self) -> float:
        """S15: what the tree keeps and nobody locks counts as free."""
        return self.free() + self.tree.evictable

    def max_new_of(self, lengths: Lengths) -> float:
        """S17: outputs are cut to what the pool can hold with the prompt."""
        return min(lengths.limit, self.pool() - self.ceil(lengths.isl) - self.options.page_size - 1)

    def max_new(self, request: Request) -> int:
        """S17: the outputs that a request may have."""
        return int(self.max_new_of(request.lengths))

    def outputs(self, request: Request) -> int:
        """S17: the outputs that a request will have: a stop token may end it before."""
        return min(request.lengths.osl, self.max_new(request))

    # Identities and lookups.

    def tokens(self, request: Request, length: int) -> Sequence[int]:
        """Identities of the first tokens: the group's as far as the shared prefix goes, then its own."""
        lengths, shared = request.lengths, 0
        if lengths.prefix_group is not None:
            shared = min(lengths.prefix_len, lengths.isl, length)
        group, own = -1 - (lengths.prefix_group or 0), request.number
        return [
            *range(group * OWN_TOKENS, group * OWN_TOKENS + shared),
            *range(own * OWN_TOKENS + shared, own * OWN_TOKENS + length),
        ]

    def length(self, request: Request) -> int:
        """S8: prompt and seen outputs."""
        return request.known

    def lookup(self, request: Request) -> tuple[Node, int]:
        """S15: the longest known prefix that leaves a token to compute, in whole pages."""
        if self.options.disable_radix_cache:
            return self.tree.root, 0
        return self.tree.match(self.tokens(request, self.hit_limit(request)))

    def hit_limit(self, request: Request) -> int:
        """S15: a hit leaves a token to compute."""
        return self.floor(self.length(request) - 1)

    # Holding, publishing, returning.

    def hold(self, request: Request, node: Node, hit: int) -> None:
        """S15: a running request locks its path."""
        self.tree.lock(node)
        self.holdings[request] = Holding(node, hit)

    def store(self, request: Request) -> None:
        """S15: at planning, hold whole pages for all stored tokens."""
        holding = self.holdings[request]
        self.set_own(request, max(self.ceil(request.computed), holding.reserved) - holding.shared)

    def set_own(self, request: Request, own: int) -> None:
        """Change what a request holds beside the tree."""
        holding = self.holdings[request]
        self.own += own - holding.own
        holding.own = own

    def publish(self, request: Request, length: int) -> None:
        """S15: whole pages go to the tree, copies of what it has are dropped, and the lock moves to the new end."""
        if self.options.disable_radix_cache:
            return
        holding, length = self.holdings[request], self.floor(length)
        node = self.tree.insert(self.tokens(request, length))
        self.tree.lock(node)
        self.tree.unlock(holding.node)
        holding.node, holding.shared = node, length
        self.store(request)

    def release(self, request: Request) -> None:
        """S15: a request's own KV returns; the tree keeps its share, unlocked."""
        self.set_own(request, 0)
        self.tree.unlock(self.holdings.pop(request).node)

    def reserve(self, tokens: int) -> None:
        """S15: evict from the tree until so many tokens are free, or nothing is left to evict."""
        short = tokens - self.free()
        if short > 0:
            self.tree.evict(short)

    def reserve_prefill(self, shares: Iterable[tuple[Request, int]]) -> None:
        """S15: for new tokens; paged, one page more a prompt."""
        page = self.options.page_size
        self.reserve(sum(new + (page if page > 1 else 0) for _, new in shares))

    def decode_need(self, rows: list[Request]) -> int:
        """S12: a page for each row whose last one is full; D6: what was reserved is there."""
        lacking = sum(self.ceil(request.computed + 1) > self.holdings[request].total for request in rows)
        return self.options.page_size * lacking

    def decode_fits(self, rows: list[Request]) -> bool:
        """S12: whether the rows' next tokens fit, the tree evicted for them."""
        need = self.decode_need(rows)
        self.reserve(need)
        return need <= self.free()
