"""What two stages ask of a scheduler: to keep what a transfer reads, and to make room for what one brings (D5, D6)."""

from math import inf

from tools.oracle.errors import ScenarioError
from tools.oracle.requests import Hold, Lengths, Request


class Staged:
    """A scheduler of one of two stages; in an aggregated deployment nobody asks."""

    seat_cap: float = inf  # D7: seats of a prefill worker, whatever its options say
    seats_held = 0  # by requests that are done here, and not through

    # D5: the source.

    def part(self, request: Request) -> None:
        """D5: a request that is done gives back its memory; one that is being read keeps it, and its seat if told so."""
        if request.hold is Hold.NONE:
            self.give_back(request)
        self.seats_held += request.hold is Hold.BLOCKS_AND_SEAT

    def let_go(self, request: Request) -> None:
        """D5: it has been read."""
        self.give_back(request)
        self.seats_held -= request.hold is Hold.BLOCKS_AND_SEAT

    def give_back(self, request: Request) -> None:
        """All memory of a request returns."""
        raise NotImplementedError

    # D6: the destination.

    def grant(self, request: Request) -> bool:
        """D6: take the memory for a hand-off if it is free, and nobody waits to resume; say whether."""
        if self.somebody_resumes() or not self.has_room(request):
            return False
        self.take_in(request)
        return True

    def somebody_resumes(self) -> bool:
        """D10: a preempted request goes before hand-offs."""
        raise NotImplementedError

    def has_room(self, request: Request) -> bool:
        """D6: whether what a hand-off takes is free."""
        raise NotImplementedError

    def take_in(self, request: Request) -> None:
        """D6: it is taken from now on, though nothing is stored in it."""
        raise NotImplementedError

    def refuse_hand_off(self, lengths: Lengths) -> None:
        """D6: refuse what would wait for ever."""
        need, most = self.staged(lengths), self.most()
        if need > most:
            raise ScenarioError(f"isl {lengths.isl}: a hand-off takes {need} of the decode side's memory of {most}")

    def staged(self, lengths: Lengths) -> int:
        """D6: what a hand-off takes, in the unit of the engine's memory."""
        raise NotImplementedError

    def most(self) -> float:
        """All there is, in the same unit."""
        raise NotImplementedError
