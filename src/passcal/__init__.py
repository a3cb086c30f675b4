"""passcal: latency distributions of LLM serving from the engine's own pass calendar.

The house, from the ground up: `spec` says what is asked, `core` how an engine advances, `calendar` how each engine forms a pass,
`timing` what a pass costs, `sources` who sends; `kernel` is the one loop, `assemble` turns spec into tables, `stopping` says when
a run has said enough, `evaluate` puts these together, `report` reads the log. `screening` is the closed form of the same calendars.
"""

from passcal.capacity import capacity
from passcal.core.plan import PassShape
from passcal.distribution import Distribution
from passcal.errors import Diverged, NotConverged, SpecError, Stalled, TimingError, TraceError, Unsupported
from passcal.evaluate import evaluate, evaluate_closed_loop, evaluate_open_loop, evaluate_replay, evaluate_sessions
from passcal.report import Report
from passcal.screening.screen import screen
from passcal.sources.prefix import PrefixOracle
from passcal.spec.deployment import Aggregated, Disaggregated, Encoder, Link
from passcal.spec.engine import (
    AttentionDpBalance,
    EngineSpec,
    HostLoop,
    Launch,
    Sglang,
    Speculation,
    Trtllm,
    Vllm,
    engine,
)
from passcal.spec.lengths import Lengths
from passcal.spec.sessions import Turn
from passcal.spec.sla import Floor, Sla
from passcal.spec.workload import Workload
from passcal.stopping import Drained, LimitCycle, Window
from passcal.sweep import pareto_front, sweep
from passcal.timing.linear import LinearTiming
from passcal.timing.phase import PhaseTiming
from passcal.timing.roofline import Roofline

__version__ = "0.1.0"

__all__ = [
    "Aggregated",
    "AttentionDpBalance",
    "Disaggregated",
    "Distribution",
    "Diverged",
    "Drained",
    "Encoder",
    "EngineSpec",
    "Floor",
    "HostLoop",
    "Launch",
    "Lengths",
    "LimitCycle",
    "LinearTiming",
    "Link",
    "NotConverged",
    "PassShape",
    "PhaseTiming",
    "PrefixOracle",
    "Report",
    "Roofline",
    "Sglang",
    "Sla",
    "SpecError",
    "Speculation",
    "Stalled",
    "TimingError",
    "TraceError",
    "Trtllm",
    "Turn",
    "Unsupported",
    "Vllm",
    "Window",
    "Workload",
    "capacity",
    "engine",
    "evaluate",
    "evaluate_closed_loop",
    "evaluate_open_loop",
    "evaluate_replay",
    "evaluate_sessions",
    "pareto_front",
    "screen",
    "sweep",
]
