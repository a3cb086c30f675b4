"""A configuration, and a file of candidates if there is one, to what `passcal.screen` and `passcal.sweep` take."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from passcal.config import read_workload
from passcal.deployment_config import aggregated_only, read_aggregated, read_timing
from passcal.errors import SpecError
from passcal.grid import grid_rows
from passcal.points import Timings
from passcal.sections import checked
from passcal.sources.readers.candidates import read_candidates
from passcal.spec.sla import Target
from passcal.spec.workload import Workload
from passcal.targets import read_targets

if TYPE_CHECKING:
    import pandas as pd

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
    for name in ("workload", "timing"):
        if config.get(name) is None:
            raise SpecError(f"{name} is missing: add this section")
    if config.get("evaluate"):
        raise SpecError("evaluate: candidates are evaluated from a burst to their limit cycle; remove this section")
    if (file is None) == (config.get("grid") is None):
        raise SpecError("candidates: give either the section grid or --candidates FILE")
    rows = grid_rows(config["grid"]) if file is None else read_candidates(file)
    if file is None and not rows:
        raise SpecError("grid.constraints: no candidate meets them; loosen one")
    sla = () if config.get("sla") is None else read_targets(config["sla"])
    workload = read_workload(config["workload"], folder)
    return Many(completed(rows, sections(config)), workload, read_timings(config["timing"]), sla)


def sections(config: Mapping[str, Any]) -> dict[str, Any]:
    """What the sections say of the engine and its deployment, by column."""
    engine, around = config.get("engine"), aggregated_only(config.get("deployment") or {})
    if engine is None:
        return dict(around)
    deployment = read_aggregated(engine, around)
    return {name: getattr(deployment.engine, name) for name in engine} | {n: getattr(deployment, n) for n in around}


def completed(rows: Any, fixed: Mapping[str, Any]) -> "pd.DataFrame":
    """Rows as a frame with what they all share; the backend comes first."""
    from passcal.screening.screen import as_frame

    frame = as_frame(rows)
    missing = {name: [value] * len(frame) for name, value in fixed.items() if name not in frame.columns}
    frame = frame.assign(**missing)
    return frame[[*(n for n in ("backend",) if n in frame), *(n for n in frame if n != "backend")]]


def read_timings(section: Any) -> Timings:
    """One model, or models by name for a column `timing`."""
    if not isinstance(section, Mapping) or "models" not in section:
        return read_timing(section)
    checked(section, "timing", ("models",))
    models = section["models"]
    if not isinstance(models, Mapping) or not models:
        raise SpecError("timing.models: must have a model by name; write name: {kind: linear, ...}")
    return {name: read_timing(model) for name, model in models.items()}
