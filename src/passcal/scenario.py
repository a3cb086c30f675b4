"""The gate's question and answer: reads a scenario and answers with the time of every token.

The language is written beside the scenarios (`tests/agreement/scenarios/README.md`); what it does not know is refused by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from passcal.errors import SpecError, Unsupported
from passcal.evaluate import measure
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import ENGINES, engine
from passcal.spec.workload import Workload
from passcal.stopping import Drained, Measured
from passcal.timing.base import TimingModel
from passcal.timing.linear import LinearTiming
from passcal.timing.phase import PhaseTiming
from passcal.tokens import pass_table, token_times

__all__ = ["Question", "answer", "read_scenario"]

PLANNED = ("sglang", "trtllm")  # backends that the language has and this version has not
PLANE = {"turnaround_ms": 0.0, "ingest_us_per_token": 0.0}
LENGTHS = {"isl": ..., "prefix": 0, "osl": ..., "prefix_group": None, "prefix_len": 0}


@dataclass(frozen=True)
class Question:
    """A scenario as passcal takes it. `prefixes` are as written, dealt like the lengths: the language lets them reach isl."""

    name: str
    workload: Workload
    deployment: Aggregated
    timing: TimingModel
    prefixes: tuple[int, ...]


def answer(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a scenario, given and answered as decoded JSON.

    Raises:
        SpecError: it cannot be read, or holds a request that can never run.
        Unsupported: a wish that is not modelled.
        Stalled: the run can never end.
    """
    asked = read_scenario(scenario)
    measured = measure(asked.workload, asked.deployment, asked.timing, Drained())
    refuse_resumed_hits(asked, measured)
    columns = {name: column.tolist() for name, column in pass_table(measured).items()}
    passes = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {"name": asked.name, "requests": request_answers(asked, measured), "passes": passes}


def refuse_resumed_hits(asked: Question, measured: Measured) -> None:
    """A preempted sequence of a caching engine finds its own blocks again (V9), which this version does not model."""
    preempted = measured.state.requests["preemptions"][measured.rows]
    if asked.deployment.engine.enable_prefix_caching and preempted.any():
        raise Unsupported(
            f"{int(preempted.sum())} preemptions with enable_prefix_caching=True: cache hits of a resumed sequence "
            "are not modelled yet; turn it off or give more blocks"
        )


def request_answers(asked: Question, measured: Measured) -> list[dict[str, Any]]:
    """What the language wants to know of each request, in dispatch order."""
    table, answers = measured.state.requests[measured.rows], []
    copied = ("dispatch_ms", "visible_ms", "admitted_ms", "isl", "osl", "preemptions")
    columns = {name: table[name].tolist() for name in copied}
    cached, times = table["prefix"].tolist(), token_times(measured)
    for i in range(len(table)):
        given = {name: column[i] for name, column in columns.items()}
        prefix = asked.prefixes[i % len(asked.prefixes)]
        answers.append({"request": i, **given, "prefix": prefix, "cached": cached[i], "token_ms": times[i].tolist()})
    return answers


def read_scenario(scenario: Mapping[str, Any]) -> Question:
    """Parse a scenario.

    Raises:
        SpecError: an unknown or missing key, or a value out of range.
        Unsupported: a wish that is not modelled.
    """
    parts = taken(scenario, "scenario", dict.fromkeys(("name", "backend", "engine", "workload", "timing"), ...))
    if not isinstance(parts["name"], str) or not parts["name"]:
        raise SpecError(f"scenario.name={shown(parts['name'])}: must be a text; give it one")
    deployment = read_engine(parts["backend"], parts["engine"])
    workload, prefixes = read_workload(parts["workload"], deployment.engine.enable_prefix_caching)
    return Question(parts["name"], workload, deployment, read_timing(parts["timing"]), prefixes)


def read_engine(backend: Any, options: Any) -> Aggregated:
    """One worker with the engine's own options."""
    if backend in PLANNED and backend not in ENGINES:
        raise Unsupported(f"backend={backend!r} is not modelled yet; use one of {', '.join(ENGINES)}")
    if not isinstance(backend, str) or not isinstance(options, Mapping) or "backend" in options:
        raise SpecError(f"scenario: backend={shown(backend)}, engine={shown(options)}: must be a name and its options")
    return Aggregated(engine(backend, **options))


def read_workload(given: Any, caching: bool) -> tuple[Workload, tuple[int, ...]]:
    """The traffic, and the prefixes as they are written."""
    mode = given.get("mode") if isinstance(given, Mapping) else None
    if mode == "closed":
        keys = {"concurrency": ..., "requests": ..., "shapes": ..., "stagger_ms": 0.0}
        parts = taken(given, "workload", {"mode": ..., **keys, **PLANE})
        rows = [read_shape(row, f"workload.shapes.{i}", caching) for i, row in enumerate(listed(parts, "shapes"))]
        shapes = [(isl, min(prefix, isl - 1), osl) for isl, prefix, osl in rows]
        options = {name: parts[name] for name in ("concurrency", "requests", "stagger_ms", *PLANE)}
        return Workload.closed_loop(shapes=shapes, **options), tuple(prefix for _, prefix, _ in rows)
    if mode == "replay":
        parts = taken(given, "workload", {"mode": ..., "requests": ..., **PLANE})
        sent = [read_sent(row, f"workload.requests.{i}", caching) for i, row in enumerate(listed(parts, "requests"))]
        sent.sort(key=lambda row: row[0])
        arrivals = [(dispatch, isl, min(prefix, isl - 1), osl) for dispatch, (isl, prefix, osl) in sent]
        plane = {name: parts[name] for name in PLANE}
        return Workload.replay(arrivals, **plane), tuple(prefix for _, (_, prefix, _) in sent)
    raise SpecError(f"workload.mode={shown(mode)}: must be 'closed' or 'replay'; name one of them")


def read_sent(given: Any, where: str, caching: bool) -> tuple[float, tuple[int, int, int]]:
    """A replayed request: when it is dispatched, and its lengths."""
    parts = taken(given, where, {"dispatch_ms": ..., **LENGTHS})
    dispatch = parts.pop("dispatch_ms")
    if isinstance(dispatch, bool) or not isinstance(dispatch, int | float):
        raise SpecError(f"{where}.dispatch_ms={shown(dispatch)}: must be a number of milliseconds; correct this value")
    return float(dispatch), read_shape(parts, where, caching)


def read_shape(given: Any, where: str, caching: bool) -> tuple[int, int, int]:
    """Lengths (isl, prefix, osl). A group says nothing to an engine that shares no prefixes."""
    if isinstance(given, list):
        if len(given) != 3:
            raise SpecError(f"{where}={shown(given)}: must be [isl, prefix, osl]; correct this row")
        given = dict(zip(("isl", "prefix", "osl"), given, strict=True))
    parts = taken(given, where, LENGTHS)
    if parts["prefix_group"] is not None and caching:
        raise Unsupported(f"{where}.prefix_group={shown(parts['prefix_group'])}: shared prefixes are not modelled yet")
    lengths = tuple(parts[name] for name in ("isl", "prefix", "osl"))
    for name, value in zip(("isl", "prefix", "osl"), lengths, strict=True):
        if isinstance(value, bool) or not isinstance(value, int) or value < (name != "prefix"):
            least = int(name != "prefix")
            raise SpecError(
                f"{where}.{name}={shown(value)}: must be a whole number, at least {least}; correct this row"
            )
    return lengths


def read_timing(given: Any) -> TimingModel:
    """The price of a pass."""
    kind = given.get("kind") if isinstance(given, Mapping) else None
    if kind == "linear":
        parts = taken(given, "timing", {"kind": ..., "prefill": ..., "decode": ..., "combine": "sum"})
        prefill, decode = numbers(parts, "prefill", 4), numbers(parts, "decode", 3)
        return LinearTiming(prefill=prefill, decode=decode, combine=parts["combine"])
    if kind == "phase":
        parts = taken(given, "timing", {"kind": ..., "prefill": ..., "decode": ..., "floor": ...})
        floor = numbers({"floor": [parts["floor"]]}, "floor", 1)[0]
        return phase_timing(numbers(parts, "prefill", 3), numbers(parts, "decode", 3), floor)
    raise SpecError(f"timing.kind={shown(kind)}: must be 'linear' or 'phase'; name one of them")


def phase_timing(prefill: Sequence[float], decode: Sequence[float], floor: float) -> PhaseTiming:
    """The language's phase formulas as callbacks."""
    (c0, c1, c2), (d0, d1, d2) = prefill, decode

    def prefill_ms(batch: int, mean_isl: float, mean_prefix: float) -> float:
        new = round(batch * (mean_isl - mean_prefix))  # a whole number but for what the means lost
        return c0 + c1 * new + c2 * new * new

    def decode_ms(batch: int, mean_context: float) -> float:
        return max(floor, d0 + d1 * batch + d2 * mean_context)

    return PhaseTiming(prefill_ms=prefill_ms, decode_ms=decode_ms)


def taken(given: Any, where: str, keys: Mapping[str, Any]) -> dict[str, Any]:
    """The values of all known keys, defaults filled in (`...`: there is none); an unknown key is refused."""
    if not isinstance(given, Mapping):
        raise SpecError(f"{where}={shown(given)}: must be an object; give it the keys {', '.join(keys)}"[:199])
    for name in given:
        if name not in keys:
            raise SpecError(f"{where}.{name}={shown(given[name])}: unknown key; known are {', '.join(keys)}"[:199])
    for name, default in keys.items():
        if default is ... and name not in given:
            raise SpecError(f"{where}.{name} is missing; give it a value")
    return {name: given.get(name, default) for name, default in keys.items()}


def listed(parts: Mapping[str, Any], name: str) -> list[Any]:
    """A list with something in it."""
    value = parts[name]
    if not isinstance(value, list) or not value:
        raise SpecError(f"workload.{name}={shown(value)}: must be a list with at least one entry; give it one")
    return value


def numbers(parts: Mapping[str, Any], name: str, count: int) -> tuple[float, ...]:
    """A list of exactly so many numbers."""
    value = parts[name]
    right = isinstance(value, list) and len(value) == count
    if not right or any(isinstance(v, bool) or not isinstance(v, int | float) for v in value):
        raise SpecError(f"timing.{name}={shown(value)}: must be {count} numbers; correct this value")
    return tuple(float(v) for v in value)


def shown(value: Any) -> str:
    """A value as a message quotes it."""
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
