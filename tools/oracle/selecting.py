"""A worker whose host takes time to select what passes next, and so may keep the device waiting (S19)."""

from tools.oracle.engine import HostLoop
from tools.oracle.host import HostWorker
from tools.oracle.requests import Row


class SelectingWorker(HostWorker):
    """An iteration selects, launches, and sees the outputs of the pass before; then the next one begins."""

    costs: HostLoop

    def launch_next(self, rows: list[list[Row]]) -> float:
        """S19: the pass starts once it is selected and the device is free."""
        selected_ms = self.clock.now_ms + self.select_ms(rows[0])
        self.book(rows, max(selected_ms, self.flying_end_ms))
        return selected_ms

    def select_ms(self, rows: list[Row]) -> float:
        """S19: by the kind of the pass; one with prefill counts as such, mixed too."""
        return self.costs.decode_select_ms if all(row.is_decode for row in rows) else self.costs.prefill_select_ms
