"""`python -m tests.properties.answers`: a digest of a few answers, to be the same in every process and mode."""

import hashlib
import json
import sys
from typing import Any

import passcal as pc
from passcal.core.compiled import INTERPRETED
from tests.modes import MODES
from tests.worlds import CLOCK

ROWS = [(37 + 53 * k % 211, k % 5, 1 + 7 * k % 29) for k in range(60)]
LANES = [
    [pc.Turn(isl, osl, think_ms=k % 3 * 17.1, calls=ROWS[k : k + k % 3]) for isl, _, osl in ROWS[k : k + 3]]
    for k in range(9)
]
SENT = [(31.7 * (k // 3), *row) for k, row in enumerate(ROWS)]
TIGHT = {"num_gpu_blocks": 24, "max_num_seqs": 12, "max_num_batched_tokens": 128, "enable_prefix_caching": False}
PRESSED = {"max_total_tokens": 500, "ignore_eos": False, "schedule_conservativeness": 0.1, "chunked_prefill_size": 96}


def callbacks() -> pc.PhaseTiming:
    """Timing that the kernel has to ask for."""
    return pc.PhaseTiming(
        lambda n, isl, prefix: 3.0 + 0.02 * n * (isl - prefix), lambda n, context: 5.0 + 0.001 * n * context
    )


def questions() -> dict[str, tuple[Any, Any, Any]]:
    """Workload, engine and timing by name: every mode in a closed loop, vLLM's in other traffic too."""
    loop = pc.Workload.closed_loop(shapes=[(isl, osl) for isl, _, osl in ROWS], concurrency=9, requests=80)
    asked = {}
    for name, mode in MODES.items():
        asked[name] = loop, pc.engine(mode.backend, **mode.pressed(seats=6, budget=128, kv_tokens=480)), CLOCK
    for lookahead in (False, True):
        engine = pc.Vllm(async_scheduling=lookahead, **TIGHT)
        endless = pc.Workload.closed_loop(900, 12, 6, turnaround_ms=2.5)
        asked |= {
            f"closed {lookahead}": (pc.Workload.closed_loop(shapes=ROWS, concurrency=9, requests=80), engine, CLOCK),
            f"replay {lookahead}": (pc.Workload.replay(SENT, ingest_us_per_token=3.6), engine, CLOCK),
            f"sessions {lookahead}": (pc.Workload.sessions(LANES, stagger_ms=7.0), engine, CLOCK),
            f"limited {lookahead}": (pc.Workload.replay(SENT, max_concurrency=3), engine, CLOCK),
            f"asked {lookahead}": (pc.Workload.replay(SENT), engine, callbacks()),
            f"cycle {lookahead}": (endless, pc.Vllm(async_scheduling=lookahead, max_num_batched_tokens=1024), CLOCK),
        }
    return asked


def answers() -> dict[str, str]:
    """One digest a question, over every bit of requests, passes and columns."""
    found = {}
    for name, question in questions().items():
        report = pc.evaluate(*question)
        text = report.requests().to_json(double_precision=15) + report.passes().to_json(double_precision=15)
        text += "".join(v.hex() if isinstance(v, float) else str(v) for v in report.to_columns().values())
        found[name] = hashlib.sha256(text.encode()).hexdigest()
    return found


if __name__ == "__main__":
    json.dump({"interpreted": INTERPRETED, "answers": answers()}, sys.stdout)
