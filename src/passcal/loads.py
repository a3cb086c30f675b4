"""The loads that a search for capacity may try: numbers of clients, or rates a step apart; and a workload that takes them."""

import math
from typing import Any, Literal

from passcal.errors import SpecError
from passcal.spec.open_loop import OpenLoop
from passcal.spec.workload import ClosedLoop, Workload
from passcal.stopping import require_whole

__all__ = ["LOADS", "Unit", "clients_at_most", "in_unit", "rates_up_to"]

Unit = Literal["clients", "rate"]
LOADS = {"clients": "concurrency", "rate": "rate_per_s"}  # the field of a workload that is searched
CLIENTS = 1024
TOLERANCE, LEAST = 0.01, 1000  # of rates: the step between two, and how far below the largest the search begins


def in_unit(workload: Workload, unit: Unit | None) -> tuple[Unit, Any]:
    """The unit, and the workload as a loop of that unit."""
    if not isinstance(workload, ClosedLoop | OpenLoop):
        raise SpecError(
            f"workload={type(workload).__name__}: must be a closed or an open loop, whose load can be searched"
        )
    own: Unit = "clients" if isinstance(workload, ClosedLoop) else "rate"
    unit = own if unit is None else unit
    if unit not in LOADS:
        raise SpecError(f"unit={unit!r:.40}: must be 'clients' or 'rate'; choose one")
    if getattr(workload, "horizon_requests", None) is not None:
        raise SpecError("horizon_requests: a capacity is of the steady state; leave the horizon out")
    if unit == own:
        return unit, workload
    other: type[Workload] = OpenLoop if unit == "rate" else ClosedLoop
    for name, field in type(workload).model_fields.items():
        if name != LOADS[own] and name not in other.model_fields and getattr(workload, name) != field.default:
            raise SpecError(f"unit={unit!r}: {name} has no meaning for it; leave {name} out, or ask in the other unit")
    shared = {name: getattr(workload, name) for name in type(workload).model_fields if name in other.model_fields}
    return unit, other(**{**shared, LOADS[unit]: 1})


def clients_at_most(most: float | None, tolerance: float | None) -> int:
    """Where a search of clients ends."""
    if tolerance is not None:
        raise SpecError(f"tolerance={tolerance}: is of rates, and clients are whole; leave it out")
    if most is None:
        return CLIENTS
    clients = int(most) if isinstance(most, float) and most.is_integer() else most
    require_whole("most", clients, 1)
    return int(clients)


def rates_up_to(limit: float, most: float | None, tolerance: float | None) -> list[float]:
    """Rates a relative step apart, from a thousandth of the largest; below what can be served, or up to `most`."""
    step = TOLERANCE if tolerance is None else tolerance
    if isinstance(step, bool) or not isinstance(step, int | float) or not 1e-4 <= step <= 1:
        raise SpecError(f"tolerance={step!r:.40}: must lie between 0.0001 and 1; 1% is 0.01")
    if most is not None and (isinstance(most, bool) or not isinstance(most, int | float) or not 0 < most < math.inf):
        raise SpecError(f"most={most!r:.40}: must be a finite number of requests a second, above 0; correct it")
    if math.isinf(limit) and most is None:
        raise SpecError("most: passes cost nothing, so every rate can be served; give the largest that you ask about")
    count = math.ceil(math.log(LEAST) / math.log1p(step))
    if most is not None and most < limit:
        return [most / (1 + step) ** k for k in range(count, -1, -1)]
    return [limit / (1 + step) ** k for k in range(count, 0, -1)]
