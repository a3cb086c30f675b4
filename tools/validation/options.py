"""Which engine explains a log best: the one that its `meta.json` states, or one with an option changed."""

from typing import Any

from tools.validation.fit import fit
from tools.validation.held_out import Half, as_predicted
from tools.validation.lives import replay
from tools.validation.tables import figures, markdown

__all__ = ["changed"]


STATED: dict[str, Any] = {}
CHANGES = (STATED, {"async_scheduling": False}, {"max_num_batched_tokens": 8192})
MEMORY_CHANGES: tuple[dict[str, Any], ...] = (
    {"enable_prefix_caching": False},
    {"scheduler_reserve_full_isl": False},
    {"watermark": 0.01},
    {"num_gpu_blocks": None},
)
HEAD = ("run", "engine", "error of the fit on the first half", "evictions", "TTFT p50", "TTFT p90", "TPOT p50")


def changed(halves: list[Half]) -> str:
    """Fit on the first half and predict the second, anew for each change; what is about memory only where the log has a KV size."""
    rows = []
    for one in halves:
        changes = CHANGES + (MEMORY_CHANGES if one.log.engine.num_gpu_blocks is not None else ())
        rows += [[one.log.name if k == 0 else "", *outcome(one, change)] for k, change in enumerate(changes)]
    return markdown(HEAD, rows)


def outcome(one: Half, change: dict[str, Any]) -> list[str]:
    """Error of the fit, evictions, and errors of the second half's figures."""
    log, second = one.log, ~one.log.fitted
    engine = log.engine.model_copy(update=change)
    found = fit(log.requests, engine, log.fitted)
    calendar = replay(log.requests, engine, found.timing)
    told = as_predicted(calendar)
    name = ", ".join(f"`{option}={value}`" for option, value in change.items()) or "as stated"
    off = {
        metric: figures(told[metric][second]) / figures(one.measured[metric][second]) - 1 for metric in ("ttft", "tpot")
    }
    errors = (off["ttft"][1], off["ttft"][2], off["tpot"][1])
    return [name, f"{100 * found.error:.1f}%", str(calendar.report.preemptions), *(f"{100 * e:+.1f}%" for e in errors)]
