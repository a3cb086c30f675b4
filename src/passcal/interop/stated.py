"""Whether the installed package says of an aggregated row what the row says: then the database prices what the summary was made with (A5)."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from passcal.errors import SpecError
from passcal.timing.aiconfigurator import KEPT, AiconfiguratorTiming

__all__ = ["check_stated"]

ROUNDED_MS = 1e-3  # summaries are rounded to three decimals
SHARE = 1e-3


def check_stated(timing: AiconfiguratorTiming, row: Mapping[str, Any]) -> None:
    """Refuse a row whose own `ttft` and `tpot` the package does not give again at its operating point.

    Drafts, corrections, how experts talk over many nodes, or another version's data change what passes cost, and no column says so.

    Raises:
        SpecError: such a row.
    """
    isl, osl, prefix, bs, chunks = (int(row[name]) for name in ("isl", "osl", "prefix", "bs", "ctx_tokens"))
    try:
        told = mean_field(timing, (isl, osl, prefix, bs, chunks))
    except Exception as error:  # whatever the package raises where it has no data
        why = " ".join(str(error).split())[:80]
        raise SpecError(f"the installed database has no answer ({why}); give timing=, or drop the row") from error
    for name in ("ttft", "tpot"):
        stated, found = float(row[name]), float(told[name])
        if abs(stated - found) > ROUNDED_MS + SHARE * abs(found):
            rule = "the summary was made with something that it does not carry"
            raise SpecError(
                f"{name}={stated:g}: the installed database says {found:g}; {rule}; give timing=, or drop it"
            )


def mean_field(timing: AiconfiguratorTiming, asked: tuple[int, int, int, int, int]) -> Mapping[str, Any]:
    """The package's own row for `(isl, osl, prefix, bs, ctx_tokens)`."""
    from aiconfigurator_core.sdk.backends.factory import get_backend
    from aiconfigurator_core.sdk.config import RuntimeConfig

    isl, osl, prefix, bs, chunks = asked
    model, database = simulated(timing)
    runtime = RuntimeConfig(batch_size=bs, isl=isl, osl=osl, prefix=prefix)
    backend = get_backend(timing.backend)  # a new one: it would answer again for another prefix or model
    found: Mapping[str, Any] = backend.run_agg(model, database, runtime, ctx_tokens=chunks).get_result_dict()
    return found


@lru_cache(maxsize=KEPT)
def simulated(timing: AiconfiguratorTiming) -> tuple[Any, Any]:
    """The package's model and database for such a timing."""
    from aiconfigurator_core.sdk.config_builders import build_model_config
    from aiconfigurator_core.sdk.models import get_model
    from aiconfigurator_core.sdk.perf_database import get_database

    split = build_model_config(
        timing.tensor_parallel,
        timing.pipeline_parallel,
        timing.attention_data_parallel,
        timing.moe_tensor_parallel,
        timing.moe_expert_parallel,
        gemm_quant_mode=timing.gemm,
        kvcache_quant_mode=timing.kvcache,
        fmha_quant_mode=timing.fmha,
        moe_quant_mode=timing.moe,
        comm_quant_mode=timing.comm,
    )
    model = get_model(timing.model, split, timing.backend)
    return model, get_database(timing.system, timing.backend, timing.version)
