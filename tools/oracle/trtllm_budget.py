"""How TensorRT-LLM deals its token budget: T4, T6, T7, T9 and T10, one method a rule."""

from tools.oracle.requests import Request
from tools.oracle.trtllm_options import Options

Shares = list[tuple[Request, int]]


class TrtllmBudget:
    """Where a seated request stands, and how many tokens of a pass it gets."""

    def __init__(self, engine: object) -> None:
        self.options = Options.read(engine)
        self.waited = 0
        self.waited_for_ranks = 0
        self.batched = 0

    # Where a seated request stands.

    def prompt(self, request: Request) -> int:
        """T12: the tokens to compute before its next output; after a pause, outputs so far too."""
        return request.lengths.isl + request.absorbed

    def remaining(self, request: Request) -> int:
        """T9: what of the prompt is not computed yet; 0 for rows and leavers."""
        return max(0, self.prompt(request) - self.computed(request))

    def computed(self, request: Request) -> int:
        """Stored tokens; a fresh request has its scenario's constant `prefix` for nothing, unless it was paused."""
        if request.blocks or request.absorbed or request.preemptions:
            return request.computed
        return min(request.lengths.prefix, request.lengths.isl - 1)

    def is_leaver(self, request: Request) -> bool:
        """T5: a length end is foreseen: no row for a request whose last output is in flight; a stop is not."""
        return request.promised >= request.lengths.limit

    # T4, T6, T9, T10: the token budget.

    def budget(self) -> int:
        """T4: what the rows of a pass share."""
        return self.options.max_num_tokens

    def micro_batch(self, kept: list[Request]) -> tuple[Shares, list[Request]]:
        """T4: rows cost a token each, prompts share the rest; leavers are skipped."""
        rows = [request for request in kept if not self.remaining(request) and not self.is_leaver(request)]
        prompts = [request for request in kept if self.remaining(request)]
        left = self.budget() - len(rows)
        return (self.chunks(prompts, left) if self.options.enable_chunked_prefill else self.whole(prompts, left)), rows

    def whole(self, prompts: list[Request], left: int) -> Shares:
        """T10: with chunking off, whole prompts up to the first that does not fit."""
        shares: Shares = []
        for request in prompts:
            tokens = self.remaining(request)
            if tokens > left:
                break
            shares.append((request, tokens))
            left -= tokens
        return shares

    def chunks(self, prompts: list[Request], left: int) -> Shares:
        """T9: all of everything if that fits, else what the policy deals; who gets nothing drops out."""
        wanted = [self.remaining(request) for request in prompts]
        if sum(wanted) <= left:
            dealt = wanted
        elif self.options.chunk_policy == "FCFS":
            dealt = self.deal_in_order(wanted, left)
        else:
            dealt = self.deal_equally(wanted, left)
        return [(request, tokens) for request, tokens in zip(prompts, dealt, strict=True) if tokens]

    def deal_in_order(self, wanted: list[int], left: int) -> list[int]:
        """T9, FCFS: a remainder that fits goes whole, else what is left goes in units; the deal goes on behind."""
        dealt = []
        for tokens in wanted:
            dealt.append(tokens if tokens <= left else self.floor(left))
            left -= dealt[-1]
        return dealt

    def deal_equally(self, wanted: list[int], left: int) -> list[int]:
        """T9, EQUAL_PROGRESS: a unit each, round by round; who cannot have all of his piece is passed over."""
        dealt, given = [0] * len(wanted), True
        while left and given:
            given = False
            for i, tokens in enumerate(wanted):
                piece = min(self.unit(), tokens - dealt[i])
                if 0 < piece <= left:
                    dealt[i] += piece
                    left -= piece
                    given = True
        return dealt

    def unit(self) -> int:
        """T9: the block, unless told otherwise."""
        return self.options.chunk_unit

    def floor(self, tokens: int) -> int:
        """T9: whole units."""
        return tokens - tokens % self.unit()

    def waits(self, prompts: Shares, rows: list[Request]) -> bool:
        """T6: hold the prompts of a small mixed pass, some passes long; other passes leave the counter alone."""
        if not prompts or not rows:
            return False
        tokens = sum(new for _, new in prompts) + len(rows)
        small = tokens < self.options.batch_wait_max_tokens_ratio * self.budget()
        if small and self.waited < self.options.batch_wait_timeout_iters:
            self.waited += 1
            return True
        self.waited = 0
        return False

    # T7: the balance of the ranks.

    def holds(self, ranks: list[tuple[bool, bool]]) -> bool:
        """T7: whether the prompts of all ranks wait; each rank has said whether it has prompts, and rows."""
        prompts, rows = [prompt for prompt, _ in ranks], all(row for _, row in ranks)
        if self.options.attention_dp_balance is None or not any(prompts):
            return False
        return self.waits_for_more(rows) if all(prompts) else self.waits_for_ranks(rows)

    def waits_for_ranks(self, all_decode: bool) -> bool:
        """T7: some rank has no prompt: wait for it, some turns long, while every rank decodes."""
        self.waited_for_ranks += 1
        if all_decode and self.waited_for_ranks < self.options.attention_dp_balance.timeout_iters:
            return True
        self.waited_for_ranks = 0
        return False

    def waits_for_more(self, all_decode: bool) -> bool:
        """T7: every rank has a prompt: wait for more of them, some turns long, while every rank decodes."""
        self.waited_for_ranks = 0
        if not all_decode:
            return False
        if self.batched < self.options.attention_dp_balance.batching_wait_iters:
            self.batched += 1
            return True
        self.batched = 0
        return False
