"""Which limit binds, from the log: what kept the queue's head out, and what the passes spend their time on."""

from collections.abc import Sequence

from passcal.calendar.backends import BACKENDS
from passcal.core.plan import PassShape
from passcal.passes import Usage
from passcal.timing.base import TimingModel
from passcal.window import Measured

__all__ = ["BUSY", "OFTEN", "Binding", "binding", "spending", "thrash"]

OFTEN = 0.25  # of the time that the queue's head waits: with less, one more client still adds most of its share
BUSY = 0.95  # of the time: with less, the engine waits for work
WASTED = 0.5  # of all prompt tokens, computed again: evictions feed on themselves
REMEDIES = {backend.code: backend.remedy for backend in BACKENDS.values()}


class Binding(str):
    """The limit that binds: `clients`, `seats`, `budget`, `kv`, `prefill` or `decode`; `why` says what was seen."""

    why: str

    def __new__(cls, limit: str, why: str) -> "Binding":
        binding = super().__new__(cls, limit)
        binding.why = why
        return binding


def thrash(parts: Sequence[Measured], usages: Sequence[Usage]) -> str:
    """What a reader must know where evictions feed on themselves, with figures and the remedy; empty where they do not.

    They do if more than half of all prompt tokens are computed again, or if requests are evicted once each on average.
    """
    evicted = sum(int(part.state.requests["preemptions"][part.rows].sum()) for part in parts)
    if not evicted:
        return ""
    each = evicted / sum(part.window.requests for part in parts)
    again = sum(used.recomputed for used in usages)
    share = again / (sum(used.prefill_tokens for used in usages) or 1.0)
    if share <= WASTED and each < 1.0:
        return ""
    return (
        f"thrash: {share:.0%} of prompt tokens are computed again, {each:.2g} evictions a request; {remedy(parts[0])}"
    )


def remedy(part: Measured) -> str:
    """What ends thrash, in the engine's own option names."""
    rank = part.state.ranks[-1]
    if rank["backend"] == BACKENDS["vllm"].code and not rank["reserve_full"]:
        return "set scheduler_reserve_full_isl, so that no prompt starts that does not fit (V6)"
    return REMEDIES[int(rank["backend"])]


def binding(part: Measured, used: Usage, timing: TimingModel, closed: bool) -> Binding:
    """What keeps the queue's head out for a good part of the time; if nothing does, what the passes spend their time on."""
    if thrash((part,), (used,)):
        again = used.recomputed / (used.prefill_tokens or 1.0)
        return Binding("kv", f"sequences are evicted and computed again: {again:.0%} of prompt tokens")
    total = part.window.length_ms * int(part.state.stages["ranks"][-1])
    held_ms, limit = max((used.kv_ms, "kv"), (used.seats_ms, "seats"), (used.budget_ms, "budget"))
    if held_ms > OFTEN * total:
        return Binding(limit, f"{limit} keep requests waiting {held_ms / total:.0%} of the time")
    if not used.busy_ms:
        return Binding("clients", "passes cost nothing")
    if used.busy_ms < BUSY * total:
        return Binding(
            "clients", f"requests seldom wait, and the engine idles {1 - used.busy_ms / total:.0%} of the time"
        )
    return spending(used, timing, closed)


def spending(used: Usage, timing: TimingModel, closed: bool) -> Binding:
    """Of an engine that never idles and leaves few waiting: prompts, rows, or what a decode pass costs however few it carries.

    One more client adds prompts and rows, but shares the fixed cost; where that is less than half, the larger of the other two binds.
    """
    if not used.decode_passes:
        return Binding("prefill", "every pass carries prompt tokens only")
    rows = max(1, round(used.decode_rows / used.decode_passes))
    context = int(used.decode_context / used.decode_passes)
    many = timing.pass_ms(PassShape(decode_requests=rows, decode_kv_tokens=context))
    one = timing.pass_ms(PassShape(decode_requests=1, decode_kv_tokens=context // rows))
    prefill = max(0.0, 1.0 - many * used.decode_passes / used.busy_ms)
    fixed = (1.0 - prefill) * (min(1.0, one / many) if many else 1.0)
    if fixed >= 0.5:
        who = "one more client" if closed else "one more request"
        return Binding("clients", f"requests seldom wait, and {who} shares passes that are {fixed:.0%} fixed cost")
    if prefill >= 1.0 - prefill - fixed:
        return Binding("prefill", f"{prefill:.0%} of the time goes into prompts")
    return Binding("decode", f"a pass of {rows} rows takes {many / one:.1f} times one of a lone row")
