"""TensorRT-LLM's calendar: a turn takes in, keeps, packs and launches; results and states follow (T1-T13).

Under overlap a pass is planned when the one before it starts, so its plan knows outputs up to the last pass but one, though prompt progress
and blocks exactly, since these move at launch. The lists of the newest plan stay until `settle` has moved its states.
"""

from typing import Any

from passcal.calendar.packing import add_chunk, clear_shape
from passcal.calendar.trtllm_batch import PROMPTS, ROWS, balance, pack
from passcal.calendar.trtllm_capacity import DONE, LEAVER, MAX_UTILIZATION, PAUSED, PROMPT, ROW, keep
from passcal.core import cycle
from passcal.core.compiled import jit
from passcal.core.hand import kept_back
from passcal.core.rank import HELD_NOT, HELD_SEATS, attach, emit, forget, free_seats, intake, leave, pop, send_chunk
from passcal.core.tables import NOBODY, State

__all__ = ["land", "let_go", "plan", "reserve", "write"]

FLIGHT = 4  # and 5: who gets a token of the pass with an even or odd number; NOBODY ends the list
CHUNKS, UPTO = 6, 8  # and 7, 9: likewise whose chunks it computes, and up to which token


@jit
def plan(state: State, k: int, now: float) -> int:
    """Form the next pass of rank k at this instant; returns how many rows it has.

    What the ranks of a group are to compute is settled by all of them before the first one launches (T7). A turn on an idle engine that only
    paused somebody is taken again at once.
    """
    rank, own = state.ranks[k], state.trtllm[k]
    if rank.index == rank.leader:
        for j in range(k, k + rank.width):
            form(state, state.ranks[j], state.trtllm[j], j, now)
        if own.balance:
            balance(state, own, k)
    for list_ in (FLIGHT, CHUNKS):
        state.lists[k, list_ + (rank.number + 1) % 2, 0] = NOBODY
    rank.again = own.prompts + own.rows == 0 and own.paused > 0 and rank.flying == 0
    if own.prompts + own.rows > 0:
        clear_shape(state, 0, 0)
        finishing = load_prompts(state, rank, own, k, now)
        load_rows(state, rank, own, k, now, finishing)
    return own.prompts + own.rows


@jit
def form(state: State, rank: Any, own: Any, k: int, now: float) -> None:
    """Take in, move what the last turn changed, keep and pack: the lists of rank k say what it would compute now."""
    take_in(state, rank, k, now)
    settle(state, rank, own, k)
    rank.held_by = HELD_SEATS if rank.waiting + rank.handed > 0 else HELD_NOT
    keep(state, rank, own, k)
    pack(state, rank, own, k)


@jit
def take_in(state: State, rank: Any, k: int, now: float) -> None:
    """Arrivals take free seats, first come first served, before any block or token (T8)."""
    intake(state, rank, now)
    while rank.handed > 0 and free_seats(rank) > 0:
        take_hand_off(state, rank, attach(state, rank, k))
    while rank.waiting > 0 and free_seats(rank) > 0:
        i = pop(state, rank)
        request, s, life = state.legs[i], state.sequences[i], state.trtllm_lives[i]
        s.computed, s.held = 0, 0
        life.prompt, life.state, life.wasted = request.isl, PROMPT, 0
        life.reserve = (request.isl + request.most + rank.block_size - 1) // rank.block_size
        state.running[k, rank.running] = i
        rank.running += 1


@jit
def take_hand_off(state: State, rank: Any, i: int) -> None:
    """A request that came with its KV is a row, or a prompt of which one token is left (D10)."""
    request, life = state.legs[i], state.trtllm_lives[i]
    life.prompt, life.wasted = request.isl, 0
    life.state = ROW if state.sequences[i].generated > 0 else PROMPT
    life.reserve = (request.isl + request.most + rank.block_size - 1) // rank.block_size


@jit
def load_prompts(state: State, rank: Any, own: Any, k: int, now: float) -> int:
    """Chunks go: the first of a prompt takes its whole prompt's blocks (T11), the last brings a token (T13); returns how many are last."""
    begins = max(now, rank.end_ms) if rank.flying > 0 else now
    finishing, chunks, odd = 0, 0, (rank.number + 1) % 2
    for last in range(2):
        for j in range(own.prompts):
            i = state.lists[k, PROMPTS, j]
            request, s, life = state.legs[i], state.sequences[i], state.trtllm_lives[i]
            if (s.computed + s.given == life.prompt) != (last == 1):
                continue
            if s.held == 0:
                rank.resuming -= request.preemptions > 0
                s.held = (life.prompt + rank.block_size - 1) // rank.block_size
                rank.free -= s.held
            if request.admitted_ms < 0.0:
                request.admitted_ms = begins
            add_chunk(state, i, s.given, s.computed, s.given == request.isl and life.prompt == request.isl)
            s.computed += s.given
            s.given = 0
            life.rode = rank.number + 1
            if rank.sending:
                state.lists[k, CHUNKS + odd, chunks], state.lists[k, UPTO + odd, chunks] = i, s.computed
                chunks += 1
            if last == 1:
                state.lists[k, FLIGHT + odd, finishing] = i
                finishing += 1
    state.lists[k, CHUNKS + odd, chunks] = NOBODY
    return finishing


@jit
def load_rows(state: State, rank: Any, own: Any, k: int, now: float, finishing: int) -> None:
    """Rows go: each stores a token, in a new block if its blocks are full (T11), and stands in flight behind the finishing prompts."""
    flight, context = FLIGHT + (rank.number + 1) % 2, 0
    begins = max(now, rank.end_ms) if rank.flying > 0 else now
    for j in range(own.rows):
        i = state.lists[k, ROWS, j]
        s = state.sequences[i]
        if s.computed == s.held * rank.block_size:
            s.held += 1
            rank.free -= 1
        s.computed += 1
        context += s.computed
        if state.legs[i].admitted_ms < 0.0:
            state.legs[i].admitted_ms = begins
        state.trtllm_lives[i].rode = rank.number + 1
        state.lists[k, flight, finishing + j] = i
    state.lists[k, flight, finishing + own.rows] = NOBODY
    sums = state.shape[0]
    sums.decode_requests, sums.decode_kv_tokens = own.rows, context


@jit
def land(state: State, k: int) -> None:
    """The oldest pass in flight on rank k ends: tokens appear, then the newest plan's states move, then seats are given back (T5, T8)."""
    rank, own = state.ranks[k], state.trtllm[k]
    number, left, gaps, j = rank.number - rank.flying + 1, 0, 0, 0
    if rank.sending:
        send_chunks(state, k, number)
    flight = FLIGHT + number % 2
    i = state.lists[k, flight, 0]
    while i != NOBODY:
        s, life = state.sequences[i], state.trtllm_lives[i]
        if life.wasted:
            life.wasted = 0
            forget(state, i)
        else:
            gaps += emit(state, rank, i, number)
            if s.generated == state.legs[i].osl:
                leave(state, rank, i)
                left += 1
                rank.resuming -= s.held == 0  # it was paused with its last token in flight (T12)
                life.state, life.wasted = DONE, life.rode > number
                if not kept_back(state, rank, i):
                    let_go(state, k, i)
        j += 1
        i = state.lists[k, flight, j]
    state.runs[rank.land_row].gaps = gaps
    settle(state, rank, own, k)
    if left > 0:
        vacate(state, rank, k)


@jit
def send_chunks(state: State, k: int, number: int) -> None:
    """The chunks of the pass that lands are there to be sent (D4)."""
    n = 0
    i = state.lists[k, CHUNKS + number % 2, 0]
    while i != NOBODY:
        send_chunk(state, i, 1 * state.lists[k, UPTO + number % 2, n])
        n += 1
        i = state.lists[k, CHUNKS + number % 2, n]


@jit
def let_go(state: State, k: int, i: int) -> None:
    """Request i, which is done here, needs its blocks no more."""
    rank, s = state.ranks[k], state.sequences[i]
    rank.free += s.held
    rank.freed, s.held = 1, 0


@jit
def reserve(state: State, k: int, i: int) -> bool:
    """Give hand-off i the blocks of its prompt and full output, or, where outputs are not reserved, of one more token, if they are free (D6)."""
    rank, leg = state.ranks[k], state.legs[i]
    outputs = 1 if state.trtllm[k].policy == MAX_UTILIZATION else leg.most
    need = (leg.isl + outputs + rank.block_size - 1) // rank.block_size
    if need > rank.free or rank.resuming > 0:
        return False
    rank.free -= need
    state.sequences[i].held = need
    return True


@jit
def settle(state: State, rank: Any, own: Any, k: int) -> None:
    """States move after the newest plan: pauses become fresh prompts, finished prompts rows; length ends are foreseen (T5, T12)."""
    overlap = rank.most_flying > 1
    for j in range(own.paused):
        i = state.lists[k, PAUSED, j]
        life = state.trtllm_lives[i]
        if life.state != DONE:  # else its last token was in flight
            life.prompt, life.state = state.legs[i].isl + state.sequences[i].generated, PROMPT
    for j in range(own.prompts):
        i = state.lists[k, PROMPTS, j]
        s, life = state.sequences[i], state.trtllm_lives[i]
        if s.computed == life.prompt and life.state != DONE:
            life.state = LEAVER if overlap and s.generated + 1 == state.legs[i].most else ROW
    if overlap:
        for j in range(own.rows):
            i = state.lists[k, ROWS, j]
            life = state.trtllm_lives[i]
            if life.state != DONE and state.sequences[i].generated + 1 == state.legs[i].most:
                life.state = LEAVER
    own.paused, own.prompts, own.rows = 0, 0, 0


@jit
def vacate(state: State, rank: Any, k: int) -> None:
    """Seats of those that are done are free; the others keep their order (T8)."""
    kept = 0
    for j in range(rank.running):
        i = state.running[k, j]
        life = state.trtllm_lives[i]
        if life.state != DONE:
            state.running[k, kept] = i
            kept += 1
        elif not life.wasted:
            forget(state, i)
    rank.running = kept


@jit
def write(state: State, k: int, out: Any, n: int) -> int:
    """Write what rank k will do next as numbers, from position n on; returns the next position. At most one pass is in flight."""
    rank, own = state.ranks[k], state.trtllm[k]
    out[n], out[n + 1] = own.waited, rank.end_ms - state.world[0].now if rank.flying > 0 else 0.0
    out[n + 2], out[n + 3] = own.batched, rank.tokens
    n += 4
    for j in range(rank.running):
        i = state.running[k, j]
        n = cycle.write_sequence(state, i, out, n)
        out[n], out[n + 1] = state.trtllm_lives[i].prompt, state.trtllm_lives[i].state
        n += 2
        state.sequences[i].serial = j
    j = 0
    while rank.flying > 0 and state.lists[k, FLIGHT + rank.number % 2, j] != NOBODY:
        out[n] = state.sequences[state.lists[k, FLIGHT + rank.number % 2, j]].serial
        n += 1
        j += 1
    return n
