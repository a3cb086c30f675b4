"""What the sections of a configuration say of all candidates, by column; each candidate has of it what its kind of deployment has a column for.

With prefill and decode apart, `engine` says what both sides share, and a side's own `engine` goes over it or, if it names another backend, stands alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from passcal.deployment_config import aggregated_only, read_aggregated
from passcal.deployments import COLUMNS_OF, OPTIONS, PARTS, POOLS
from passcal.errors import SpecError, Unsupported
from passcal.sections import checked
from passcal.spec.deployment import Aggregated, Disaggregated, Link

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["completed", "own_section"]


class Fixed(NamedTuple):
    """Columns of all candidates: those that some candidate must have, and those of the engine, which may be any one's."""

    told: dict[str, Any]
    shared: dict[str, Any]


def completed(rows: Any, config: Mapping[str, Any]) -> "pd.DataFrame":
    """Rows as a frame with what the sections `engine` and `deployment` say; the backend comes first.

    Raises:
        SpecError, Unsupported: with the key's path; a column that no candidate has stays in the frame, to be refused by name.
    """
    from passcal.screening.screen import as_frame

    frame = as_frame(rows)
    around = config.get("deployment") or {}
    apart = isinstance(around, Mapping) and (around.get("kind") == "disaggregated" or any(n in around for n in PARTS))
    fixed = sections_apart(config, around) if apart or "kind" in frame.columns else sections(config)
    kinds = [*frame["kind"]] if "kind" in frame.columns else [fixed.told.get("kind")] * len(frame)
    known = [COLUMNS_OF.get(kind if isinstance(kind, str) and kind else "aggregated", frozenset()) for kind in kinds]
    filled = {name: column for name, value in fixed.told.items() if (column := filling(name, value, known)) is not None}
    alone = [pool for pool in POOLS if f"{pool}.backend" in frame.columns or f"{pool}.backend" in filled]
    if len(alone) == len(POOLS):
        known = [columns - {"backend"} if columns == COLUMNS_OF["disaggregated"] else columns for columns in known]
    for name, value in fixed.shared.items():
        if name.partition(".")[0] not in alone and any(name in columns for columns in known):
            filled.setdefault(name, filling(name, value, known))
    if fixed.shared and not any(name in fixed.shared for name in filled) and not set(fixed.shared) & set(frame.columns):
        raise SpecError("engine: no candidate takes anything from it; remove this section")
    frame = frame.assign(**{name: column for name, column in filled.items() if name not in frame.columns})
    return frame[[*(n for n in ("backend",) if n in frame), *(n for n in frame if n != "backend")]]


def filling(name: str, value: Any, known: list[frozenset[str]]) -> Any:
    """A value in every row that has such a column; in all where none has."""
    has = [name in columns for columns in known]
    return [value if here or not any(has) else None for here in has]


def sections(config: Mapping[str, Any]) -> Fixed:
    """Of aggregated candidates."""
    engine, around = config.get("engine"), aggregated_only(config.get("deployment") or {})
    if engine is None:
        return Fixed(dict(around), {})
    deployment = read_aggregated(engine, around)
    options = {name: getattr(deployment.engine, name) for name in engine}
    return Fixed(options | {name: getattr(deployment, name) for name in around}, {})


def sections_apart(config: Mapping[str, Any], around: Any) -> Fixed:
    """Of candidates of which some may have prefill and decode apart."""
    fields = {name for model in (Aggregated, Disaggregated) for name in model.model_fields} - {"engine"}
    checked(around, "deployment", ("kind", *sorted(fields)))
    if around.get("encoder") is not None:
        raise Unsupported("deployment.encoder: is not screened or swept; ask passcal evaluate, replay or capacity")
    engine, link = config.get("engine") or {}, around.get("link") or {}
    checked(engine, "engine", sorted(OPTIONS))
    checked(link, "deployment.link", Link.model_fields)
    told = {name: value for name, value in around.items() if name not in PARTS}
    told |= {f"link.{name}": value for name, value in link.items()}
    shared = dict(engine)
    for pool in POOLS:
        own = own_section(around, pool).get("engine") or {}
        checked(own, f"deployment.{pool}.engine", sorted(OPTIONS))
        same = own.get("backend", engine.get("backend")) == engine.get("backend")
        told |= {f"{pool}.{name}": value for name, value in own.items() if not (same and name == "backend")}
        shared |= {f"{pool}.{name}": value for name, value in engine.items() if same and name != "backend"}
    return Fixed(told, shared)


def own_section(around: Any, pool: str) -> Mapping[str, Any]:
    """What a deployment says of one pool alone."""
    own = (around.get(pool) if isinstance(around, Mapping) else None) or {}
    checked(own, f"deployment.{pool}", ("engine", "timing"))
    return dict(own)
