"""The sections `engine`, `deployment` and `timing` of a configuration: the engines, and what their passes cost.

With prefill and decode apart, `engine` and `timing` say what both sides share. A side's own `engine` goes over it option by option, or stands alone if
it names another backend; a side's own `timing` takes its place. An `encoder` in front has an engine of its own.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from passcal.errors import SpecError, Unsupported
from passcal.fitting_stages import Timings
from passcal.sections import checked, chosen, made, shown
from passcal.spec.deployment import Aggregated, Deployment, Disaggregated, Encoder, Link
from passcal.spec.engine import ENGINES, EngineSpec, engine
from passcal.timing.base import TimingModel
from passcal.timing.linear import LinearTiming
from passcal.timing.roofline import Roofline

__all__ = ["aggregated_only", "read_aggregated", "read_deployment", "read_timing"]

KINDS = ("aggregated", "disaggregated")
SIDES = ("prefill", "decode")
TIMINGS: Mapping[str, type[LinearTiming] | type[Roofline]] = {"linear": LinearTiming, "roofline": Roofline}


def read_deployment(config: Mapping[str, Any]) -> tuple[Deployment, Timings]:
    """What is deployed, and the price of its passes.

    Raises:
        SpecError, Unsupported: with the key's path.
    """
    given = config.get("deployment", {})
    kind, around = kind_of(given)
    if kind == "disaggregated":
        return read_disaggregated(config, around)
    for name in ("engine", "timing"):
        if config.get(name) is None:
            raise SpecError(f"{name} is missing: add this section")
    price = read_timing(config["timing"])
    encoder, own = read_encoder(around, price)
    deployed = around if encoder is None else {**around, "encoder": encoder}
    return read_aggregated(config["engine"], deployed), {"encoder": own, "engine": price} if own else price


def kind_of(given: Any) -> tuple[str, Any]:
    """`kind:` of a deployment, aggregated where nothing is said, and the other keys."""
    if not isinstance(given, Mapping) or "kind" not in given:
        return KINDS[0], given
    return chosen(given, "deployment", "kind", KINDS)


def aggregated_only(given: Any) -> Any:
    """The keys of an aggregated deployment beside `kind`, for tables of candidates.

    Raises:
        Unsupported: an encoder.
        SpecError: no such kind.
    """
    _, around = kind_of(given)
    if isinstance(around, Mapping) and around.get("encoder") is not None:
        raise Unsupported("deployment.encoder: is not screened or swept; ask passcal evaluate, replay or capacity")
    return around


def read_aggregated(section: Any, around: Any) -> Aggregated:
    """`backend:` and the engine's own options; how many workers there are and how requests are routed to them."""
    checked(around, "deployment", [name for name in Aggregated.model_fields if name != "engine"])
    worker = read_engine(section, "engine")
    return made("deployment", ("Aggregated",), lambda: Aggregated(worker, **around))


def read_engine(section: Any, path: str) -> EngineSpec:
    """`backend:` and the engine's own options."""
    backend, rest = chosen(section, path, "backend", tuple(ENGINES))
    model = ENGINES[backend]
    checked(rest, path, [name for name in model.model_fields if name != "backend"])
    return made(path, (model.__name__,), lambda: engine(backend, **rest))


def read_disaggregated(config: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Disaggregated, Timings]:
    """`prefill:` and `decode:`, each with what its `engine` and `timing` have of their own; the link; and the arguments of `Disaggregated`."""
    checked(given, "deployment", ("kind", *Disaggregated.model_fields))
    around = {name: value for name, value in given.items() if name not in (*SIDES, "link", "encoder")}
    sides = {side: {} if given.get(side) is None else given[side] for side in SIDES}
    for side in SIDES:
        checked(sides[side], f"deployment.{side}", ("engine", "timing"))
    check_shared(config, sides)
    prefill, decode = (side_engine(config.get("engine"), sides[side].get("engine"), side) for side in SIDES)
    timing = {side: side_timing(config.get("timing"), sides[side].get("timing"), side) for side in SIDES}
    encoder, price = read_encoder(given, timing["prefill"])
    owner, parts = ("Disaggregated",), {"prefill": prefill, "decode": decode, "encoder": encoder, **around}
    link = read_link(given.get("link"), "deployment.link")
    deployment = made("deployment", owner, lambda: Disaggregated(link=link, **parts))
    return deployment, {"encoder": price, **timing} if price else timing


def check_shared(config: Mapping[str, Any], sides: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a shared section that neither side takes anything from."""
    shared, own = config.get("engine"), [sides[side].get("engine") for side in SIDES]
    if isinstance(shared, Mapping) and all(other_backend(shared, section) for section in own):
        raise SpecError("engine: both sides have another backend, so nothing of it is taken; remove this section")
    if config.get("timing") is not None and all(sides[side].get("timing") is not None for side in SIDES):
        raise SpecError("timing: both sides have their own, so nothing of it is taken; remove this section")


def other_backend(shared: Mapping[str, Any], own: Any) -> bool:
    """Whether a side's own engine names another backend than the shared one."""
    return isinstance(own, Mapping) and own.get("backend", shared.get("backend")) != shared.get("backend")


def side_engine(shared: Any, own: Any, side: str) -> EngineSpec:
    """A side's options over those that both share; a complaint is told where the value was written."""
    path = f"deployment.{side}.engine"
    if own is None:
        if shared is None:
            raise SpecError(f"{path} is missing: add it, or a section engine for both sides")
        return read_engine(shared, "engine")
    if not isinstance(shared, Mapping) or not isinstance(own, Mapping) or other_backend(shared, own):
        return read_engine(own, path)
    try:
        return read_engine({**shared, **own}, path)
    except (SpecError, Unsupported) as error:
        told = str(error).removeprefix(f"{path}.")
        name = told.partition("=")[0].partition(" ")[0].partition(".")[0]
        if name in own or name not in shared:
            raise
        raise type(error)(f"engine.{told}") from None


def side_timing(shared: Any, own: Any, side: str) -> TimingModel:
    """A side's own model, or the one that both share."""
    if own is None and shared is None:
        raise SpecError(f"deployment.{side}.timing is missing: add it, or a section timing for both sides")
    return read_timing(shared) if own is None else read_timing(own, f"deployment.{side}.timing")


def read_encoder(given: Any, timing: TimingModel) -> tuple[Encoder | None, TimingModel | None]:
    """`encoder:` of a deployment, if it has one, and what its passes cost: its own `timing`, or that of the engine behind it."""
    section = given.get("encoder") if isinstance(given, Mapping) else None
    if section is None:
        return None, None
    path = "deployment.encoder"
    checked(section, path, (*Encoder.model_fields, "timing"))
    parts = {name: value for name, value in section.items() if name not in ("engine", "link", "timing")}
    if section.get("engine") is None and section.get("timing") is not None:
        raise SpecError(f"{path}.timing: prices passes, and there is no {path}.engine; add that, or remove this")
    runs = None if section.get("engine") is None else read_engine(section["engine"], f"{path}.engine")
    link = read_link(section.get("link"), f"{path}.link")
    encoder = made(path, ("Encoder",), lambda: Encoder(engine=runs, link=link, **parts))
    if runs is None:
        return encoder, None
    return encoder, timing if section.get("timing") is None else read_timing(section["timing"], f"{path}.timing")


def read_link(section: Any, path: str) -> Link | None:
    """What moves over it; left out or null: it is there at once."""
    if section is None:
        return None
    checked(section, path, Link.model_fields)
    return made(path, ("Link",), lambda: Link(**section))


def read_timing(section: Any, path: str = "timing") -> TimingModel:
    """`kind: linear` or `kind: roofline`, with the model's fields."""
    kind, rest = chosen(section, path, "kind", tuple(TIMINGS))
    model = TIMINGS[kind]
    checked(rest, path, [field.name for field in fields(model)])
    for name in ("prefill", "decode", "capture_sizes"):
        if name in rest and not isinstance(rest[name], list):
            raise SpecError(f"{path}.{name}={shown(rest[name])}: must be a list of numbers; write [a, b, ...]")
    priced = made(path, (model.__name__,), lambda: model(**rest))
    return made(path, (model.__name__,), priced.timing) if isinstance(priced, Roofline) else priced
