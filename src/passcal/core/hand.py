"""A request between two stages, as the engines see it: whether it goes on, and what is kept here until it has arrived there (D5)."""

from typing import Any

from passcal.core.compiled import jit
from passcal.core.tables import State
from passcal.core.tandem_tables import FIRST_PREFILL, HOLD_SEAT

__all__ = ["goes_on", "hand_of", "kept_back", "seat_is_free", "shifted"]


@jit
def goes_on(state: State, i: int) -> bool:
    """Whether leg i is not its request's last: one with nothing left to make ends where its only token is shown (D1)."""
    world = state.world[0]
    at = i % world.stages
    if at != world.stages - 2:
        return at < world.stages - 2
    return state.hops[at].first_token != FIRST_PREFILL or state.requests[i // world.stages].osl > 1


@jit
def hand_of(state: State, i: int) -> Any:
    """The hand-off that leg i leaves by."""
    stages = state.world[0].stages
    return state.hands[i // stages * (stages - 1) + i % stages]


@jit
def kept_back(state: State, rank: Any, i: int) -> bool:
    """Whether leg i, whose memory the engine would give back now, keeps it until it has arrived at the next stage; its seat too, if that is kept."""
    if not rank.holding or not goes_on(state, i):
        return False
    hand = hand_of(state, i)
    if hand.end_ms >= 0.0:
        return False
    hand.owed = 1
    rank.keeping += rank.holding == HOLD_SEAT
    return True


@jit
def shifted(rank: Any) -> bool:
    """Whether a plan that is formed already, but not yet here, must not see what happens to memory and seats now (V12)."""
    busy = rank.flying > 0 or rank.waited > 0  # a rank that sits out its group's pass has decided too (E1)
    return rank.ahead > 0 and busy


@jit
def seat_is_free(rank: Any) -> None:
    """The seat that was kept for a transfer is free again, for plans that are formed from now on."""
    if shifted(rank):
        rank.seats_shift += rank.holding == HOLD_SEAT
    else:
        rank.keeping -= rank.holding == HOLD_SEAT
