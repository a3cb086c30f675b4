"""YAML to an evaluation: sections (`workload`, `engine`, `deployment`, `timing`, `evaluate`, `sla`, `grid`), with the names of the Python arguments.

Nothing is ignored: an unknown key, a key given twice and a value out of range are refused with the key's path, the value and the rule.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from inspect import signature
from pathlib import Path
from typing import Any

import yaml

from passcal.deployment_config import read_deployment
from passcal.errors import SpecError
from passcal.fitting_stages import Timings
from passcal.sections import checked, chosen, made, shown
from passcal.sources.prefix import PrefixOracle
from passcal.spec.deployment import Deployment
from passcal.spec.lengths import Lengths
from passcal.spec.sla import Target
from passcal.spec.workload import Workload
from passcal.stopping import Drained, LimitCycle, Stop, Window
from passcal.targets import read_targets

__all__ = ["Asked", "load_config", "read_config", "read_workload", "with_trace"]

SECTIONS = ("workload", "engine", "deployment", "timing", "evaluate", "sla", "grid")
STOPS: Mapping[str, type[LimitCycle] | type[Window] | type[Drained]] = {
    "limit_cycle": LimitCycle,
    "window": Window,
    "drained": Drained,
}
TRACE = ("trace", "format", "spread", "prefix_oracle")  # of a replay, beside the arguments of `Workload.replay`
TRAFFIC: Mapping[str, tuple[str, Callable[..., Workload]]] = {
    "closed": ("ClosedLoop", Workload.closed_loop),
    "open": ("OpenLoop", Workload.open_loop),
    "replay": ("Replay", Workload.replay),
    "sessions": ("Sessions", Workload.sessions),
}
LAWS: Mapping[str, Callable[..., Lengths]] = {
    law.__name__: law
    for law in (Lengths.samples, Lengths.strata, Lengths.lognormal, Lengths.gamma, Lengths.uniform, Lengths.joint)
}


@dataclass(frozen=True)
class Asked:
    """What `passcal.evaluate` and `passcal.capacity` take."""

    workload: Workload
    deployment: Deployment
    timing: Timings
    stop: Stop | None
    start: Any
    phases: Any
    sla: tuple[Target, ...]


class Loader(yaml.SafeLoader):
    """YAML whose numbers are those of YAML 1.2 (`1e-6` is one), and whose keys are given once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if str(key.value) in seen:
                raise SpecError(f"line {key.start_mark.line + 1}: {key.value!r:.40} is given twice; keep one")
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)[eE][-+]?[0-9]+$"), list("-+.0123456789")
)


def load_config(path: str | Path, settings: Iterable[str] = ()) -> dict[str, Any]:
    """The sections of a YAML file, with `path=value` settings put in.

    Raises:
        SpecError: no such file, no YAML, an unknown section, or a setting that is not `path=value`.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise SpecError(f"{path}: {reason}; give a YAML file"[:199]) from None
    try:
        config: dict[str, Any] = parsed(text, str(path))
    except SpecError as error:
        raise SpecError(f"{path}: {error}"[:199]) from None
    checked(config, "", SECTIONS, str(path))
    for setting in settings:
        put(config, setting)
    return config


def parsed(text: str, where: str) -> Any:
    """A YAML document."""
    try:
        return yaml.load(text, Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        raise SpecError(f"{line}{getattr(error, 'problem', None) or 'no YAML'}; mend {where}"[:160]) from None


def put(config: dict[str, Any], setting: str) -> None:
    """Put one `path=value` in; whether the last name is known is seen when its section is read."""
    path, equals, text = setting.partition("=")
    names = path.strip().split(".")
    if not equals or names[0] not in SECTIONS or not all(names):
        raise SpecError(
            f"--set {setting}: must be path=value, the path starting with one of {', '.join(SECTIONS)}"[:199]
        )
    place: Any = config
    for depth, name in enumerate(names[:-1]):
        if place.get(name) is None:
            place[name] = {}
        place = place[name]
        if not isinstance(place, dict):
            raise SpecError(f"--set {setting}: {'.'.join(names[: depth + 1])}={shown(place)} has no keys; set it whole")
    place[names[-1]] = parsed(text, f"--set {setting}")


def with_trace(config: Mapping[str, Any], trace: str | Path, **options: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The sections with a replay of this file as their workload, and notes on what that put aside.

    The plane of a closed loop (turnaround, ingest) holds for the replay too; `options` are further keys of a replay, None: not given.
    """
    given, notes = config.get("workload") or {}, []
    workload = dict(given) if isinstance(given, Mapping) else {"mode": given}
    if workload.get("mode", "replay") != "replay":
        dropped = [name for name in workload if name not in ("mode", "turnaround_ms", "ingest_us_per_token")]
        workload = {name: value for name, value in workload.items() if name not in dropped}
        notes.append(f"the trace replaces the configured workload: {', '.join(dropped)} put aside")
    workload.pop("rows", None)
    chosen = {name: value for name, value in options.items() if value is not None}
    return {**config, "workload": {**workload, "mode": "replay", "trace": str(trace), **chosen}}, tuple(notes)


def read_config(config: Mapping[str, Any], folder: Path) -> Asked:
    """Sections to specs.

    Args:
        config: what `load_config` answers.
        folder: where a relative `workload.trace` starts.

    Raises:
        SpecError, Unsupported: with the key's path.
    """
    if config.get("workload") is None:
        raise SpecError("workload is missing: add this section")
    if config.get("grid") is not None:
        raise SpecError("grid: is for passcal screen and sweep, and this asks about one candidate; remove this section")
    deployment, timing = read_deployment(config)
    stop, start, phases = read_evaluate(config.get("evaluate"))
    sla = () if config.get("sla") is None else read_targets(config["sla"])
    return Asked(read_workload(config["workload"], folder), deployment, timing, stop, start, phases, sla)


def read_workload(section: Any, folder: Path) -> Workload:
    """`mode: closed`, `open`, `replay` or `sessions`, with the constructor's arguments; lengths may be laws."""
    mode, rest = chosen(section, "workload", "mode", tuple(TRAFFIC))
    owner, make = TRAFFIC[mode]
    checked(rest, "workload", [*signature(make).parameters, *(TRACE if mode == "replay" else ())])
    if mode == "sessions" and "lanes" not in rest:
        raise SpecError("workload.lanes is missing: give a list of sessions, each a list of turns")
    if mode == "replay":
        if ("trace" in rest) == ("rows" in rest):
            raise SpecError("workload: a replay needs either trace (a file) or rows; give one of them")
        if "trace" in rest:
            rest["rows"] = read_trace_file(rest, folder)
    for name in ("isl", "osl", "shapes"):
        if isinstance(rest.get(name), Mapping):
            rest[name] = read_law(rest[name], f"workload.{name}")
    return made("workload", (owner, make.__name__), lambda: make(**rest))


def read_law(section: Mapping[str, Any], path: str) -> Lengths:
    """`law: lognormal` or another constructor of `Lengths`, with its arguments."""
    law, rest = chosen(section, path, "law", tuple(LAWS))
    known = tuple(signature(LAWS[law]).parameters)
    checked(rest, path, known)
    for name in known:
        if name not in rest:
            raise SpecError(f"{path}.{name} is missing: a {law} law needs {', '.join(known)}; add it")
    return made(path, (law.capitalize(), f"Lengths.{law}"), lambda: LAWS[law](**rest))


def read_trace_file(rest: dict[str, Any], folder: Path) -> Any:
    """The frame of the trace; takes its keys out of `rest`."""
    from passcal.sources.readers import read_trace, with_prefix

    trace, format, spread = rest.pop("trace"), rest.pop("format", "auto"), rest.pop("spread", "none")
    cache = rest.pop("prefix_oracle", None)
    if cache is not None:
        checked(cache, "workload.prefix_oracle", [field.name for field in fields(PrefixOracle)])
        cache = made("workload.prefix_oracle", ("PrefixOracle",), lambda: PrefixOracle(**cache))
    for name, value in (("trace", trace), ("format", format), ("spread", spread)):
        if not isinstance(value, str):
            raise SpecError(f"workload.{name}={shown(value)}: must be a text; correct this value")
    frame = read_trace(folder / trace, format, spread=spread)
    return frame if cache is None else with_prefix(frame, cache)


def read_evaluate(section: Any) -> tuple[Stop | None, Any, Any]:
    """`start`, `phases` and `stop`, all of which may be left out."""
    section = {} if section is None else section
    checked(section, "evaluate", ("start", "phases", "stop"))
    start, phases = section.get("start", "burst"), section.get("phases", 1)
    if start not in ("burst", "spread"):
        raise SpecError(f"evaluate.start={shown(start)}: must be burst or spread; choose one")
    if isinstance(phases, bool) or not isinstance(phases, int) or phases < 1:
        raise SpecError(f"evaluate.phases={shown(phases)}: must be a whole number, at least 1; correct this value")
    if section.get("stop") is None:
        return None, start, phases
    kind, rest = chosen(section["stop"], "evaluate.stop", "kind", tuple(STOPS))
    checked(rest, "evaluate.stop", [field.name for field in fields(STOPS[kind])])
    return made("evaluate.stop", (STOPS[kind].__name__,), lambda: STOPS[kind](**rest)), start, phases
