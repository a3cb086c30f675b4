"""Two stages broken one rule at a time, all of the rules."""

from .wrong_memory import MEMORY
from .wrong_seats import SEATS
from .wrong_stages import STAGES
from .wrong_way import WAY

TANDEM = {**STAGES, **WAY, **MEMORY, **SEATS}
