"""What moves: a request with its life at an engine, and the row that carries it through one pass."""

from dataclasses import dataclass, field
from enum import Enum, auto

from tools.oracle.kv import Block


class State(Enum):
    """Where a request stands."""

    DISPATCHED = auto()  # sent, the scheduler cannot see it yet
    WAITING = auto()  # visible, never admitted
    RUNNING = auto()  # holds a seat
    PREEMPTED = auto()  # waits again, after losing seat and blocks
    DONE = auto()


class Hold(Enum):
    """D5: what a request that goes over to another stage keeps at its source until it is there."""

    NONE = "none"
    BLOCKS = "blocks"
    BLOCKS_AND_SEAT = "blocks_and_seat"


@dataclass(frozen=True, slots=True)
class Lengths:
    """What a client asks for, in tokens, and the rank that it insists on; `osl` outputs are what it gets."""

    isl: int
    prefix: int
    osl: int
    prefix_group: int | None = None
    prefix_len: int = 0
    data_parallel_rank: int | None = None
    max_tokens: int | None = None

    @property
    def limit(self) -> int:
        """The outputs after which the engine ends the request, all that it can foresee; a stop token may end it before."""
        return self.osl if self.max_tokens is None else self.max_tokens


@dataclass(slots=True, eq=False)
class Request:
    """A request; its `computed` tokens count from planning, its outputs from the end of the pass that made them."""

    number: int
    lengths: Lengths
    dispatch_ms: float
    visible_ms: float
    arrival_ms: float | None = None  # when it came to its client, where that makes requests wait
    state: State = State.DISPATCHED
    computed: int = 0
    in_flight: int = 0  # outputs of passes that are planned and not over
    token_ms: list[float] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    registered: int = 0  # leading blocks that the prefix cache knows
    absorbed: int = 0  # outputs that became part of the prompt, by a pause or a retraction
    admitted_ms: float | None = None
    cached: int | None = None
    preemptions: int = 0
    worker: int = 0
    rank: int = 0
    decoding: bool = False  # its last row emitted, so decode rows are all that is left
    decode_rows: int = 0  # such rows so far
    hold: Hold = Hold.NONE
    handed_over: bool = False  # it comes with its KV, from another stage

    @property
    def known(self) -> int:
        """Tokens whose values the scheduler has seen: prompt and finished outputs."""
        return self.lengths.isl + len(self.token_ms)

    @property
    def todo(self) -> int:
        """Tokens to compute before the next output, counting outputs in flight as tokens."""
        return self.known + self.in_flight - self.computed

    @property
    def promised(self) -> int:
        """Outputs made or under way."""
        return len(self.token_ms) + self.in_flight


@dataclass(slots=True, eq=False)
class Row:
    """One request's share of a pass: `new` tokens, drafts among them, after `past` computed ones; `emits` outputs."""

    request: Request
    new: int
    past: int
    emits: int
    drafts: int = 0

    @property
    def is_decode(self) -> bool:
        """One token, and drafts for the next, behind a whole prompt; everything else is a prompt chunk."""
        return self.new - self.drafts == 1 and self.past >= self.request.lengths.isl


class PromptRow(Row):
    """A prompt chunk whatever its length, for engines that keep prompts and rows apart (T13, S3)."""

    __slots__ = ()
    is_decode = False


class OutputRow(Row):
    """A decode row of such an engine."""

    __slots__ = ()
    is_decode = True
