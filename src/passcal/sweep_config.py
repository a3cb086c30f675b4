"""A configuration, and a file of candidates if there is one, to what `passcal.screen` and `passcal.sweep` take."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from passcal.config import read_workload
from passcal.deployment_config import read_timing
from passcal.deployments import POOLS
from passcal.errors import SpecError
from passcal.grid import grid_rows
from passcal.points import Priced, Timings
from passcal.sections import checked
from passcal.sources.readers.candidates import read_candidates
from passcal.spec.sla import Target
from passcal.spec.workload import Workload
from passcal.sweep_sections import completed, own_section
from passcal.targets import read_targets

__all__ = ["Many", "read_many"]


@dataclass(frozen=True)
class Many:
    """What they take."""

    candidates: Any
    workload: Workload
    timing: Timings
    sla: tuple[Target, ...]


def read_many(config: Mapping[str, Any], folder: Path, file: Path | None) -> Many:
    """Candidates have the columns of the grid or the file, and the sections' values in all others.

    Args:
        config: what `load_config` answers.
        folder: where a relative path in it starts.
        file: CSV or Parquet, instead of a grid.

    Raises:
        SpecError, Unsupported: with the key's path.
    """
    if config.get("workload") is None:
        raise SpecError("workload is missing: add this section")
    if config.get("evaluate"):
        raise SpecError("evaluate: candidates are evaluated from a burst to their limit cycle; remove this section")
    if (file is None) == (config.get("grid") is None):
        raise SpecError("candidates: give either the section grid or --candidates FILE")
    rows = grid_rows(config["grid"]) if file is None else read_candidates(file)
    if file is None and not rows:
        raise SpecError("grid.constraints: no candidate meets them; loosen one")
    sla = () if config.get("sla") is None else read_targets(config["sla"])
    workload = read_workload(config["workload"], folder)
    return Many(completed(rows, config), workload, read_timings(config), sla)


def read_timings(config: Mapping[str, Any]) -> Timings:
    """One model, models by name for a column `timing`, or those that pools have of their own.

    Raises:
        SpecError: with the key's path.
    """
    section: Any = config.get("timing")
    around = config.get("deployment")
    own = {pool: given for pool in POOLS if (given := own_section(around, pool).get("timing")) is not None}
    if section is None and len(own) < len(POOLS):
        raise SpecError("timing is missing: add this section")
    named = isinstance(section, Mapping) and "models" in section
    if own:
        if named or (section is not None and len(own) == len(POOLS)):
            raise SpecError(
                f"deployment.{next(iter(own))}.timing: the section timing says otherwise; remove one of them"
            )
        return {
            pool: read_timing(own[pool], f"deployment.{pool}.timing") if pool in own else read_timing(section)
            for pool in POOLS
        }
    if not named:
        return read_priced(section, "timing")
    checked(section, "timing", ("models",))
    models = section["models"]
    if not isinstance(models, Mapping) or not models:
        raise SpecError("timing.models: must have a model by name; write name: {kind: linear, ...}")
    return {name: read_priced(model, f"timing.models.{name}") for name, model in models.items()}


def read_priced(section: Any, path: str) -> Priced:
    """One model, or one for `prefill` and one for `decode`."""
    if isinstance(section, Mapping) and set(section) == set(POOLS):
        return {pool: read_timing(model, f"{path}.{pool}") for pool, model in section.items()}
    return read_timing(section, path)
