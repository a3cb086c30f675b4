"""The gate's question and answer: reads a scenario and answers with the time of every token.

The language is written beside the scenarios (`tests/agreement/scenarios/README.md`); what it does not know is refused by name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from passcal.errors import SpecError
from passcal.evaluate import due_ms, measure
from passcal.fitting_stages import Timings
from passcal.spec.deployment import Aggregated, Deployment, Disaggregated, Link
from passcal.spec.engine import EngineSpec, engine
from passcal.spec.workload import Workload
from passcal.stopping import Drained
from passcal.timing.base import TimingModel
from passcal.timing.linear import LinearTiming
from passcal.timing.phase import PhaseTiming
from passcal.tokens import pass_table, token_times
from passcal.window import Measured

__all__ = ["Question", "answer", "read_scenario"]

PLANE = {"turnaround_ms": 0.0, "ingest_us_per_token": 0.0}
LENGTHS = {"isl": ..., "prefix": 0, "osl": ..., "prefix_group": None, "prefix_len": 0}
LENGTHS |= {"data_parallel_rank": None, "max_tokens": None}
LEAST = {"isl": 1, "prefix": 0, "osl": 1, "prefix_len": 0}
APART = {
    name: field.default
    for name, field in Disaggregated.model_fields.items()
    if name not in ("prefill", "decode", "link")
}
LINK = {name: field.default for name, field in Link.model_fields.items() if not field.is_required()}
TURN = {**LENGTHS, "think_ms": ..., "calls": ()}


@dataclass(frozen=True)
class Question:
    """A scenario as passcal takes it. `rows` are the lengths as written, in the order in which they are dealt, or lane by lane."""

    name: str
    workload: Workload
    deployment: Deployment
    timing: Timings
    rows: Sequence[Mapping[str, Any]]


def answer(scenario: Mapping[str, Any]) -> dict[str, Any]:
    """Answer a scenario, given and answered as decoded JSON.

    Raises:
        SpecError: it cannot be read, or holds a request that can never run.
        Unsupported: a wish that is not modelled.
        Stalled: the run can never end.
    """
    asked = read_scenario(scenario)
    measured = measure(asked.workload, asked.deployment, asked.timing, Drained())
    columns = {name: column.tolist() for name, column in pass_table(measured).items()}
    passes = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {"name": asked.name, "requests": request_answers(asked, measured), "passes": passes}


def request_answers(asked: Question, measured: Measured) -> list[dict[str, Any]]:
    """What the language wants to know of each request, in dispatch order."""
    table, answers = measured.state.requests[measured.rows], []
    copied = ("dispatch_ms", "visible_ms", "admitted_ms", "isl", "cached", "preemptions", "engine")
    columns = {name: table[name].tolist() for name in copied}
    times, world, due = token_times(measured), measured.state.world[0], due_ms(asked.workload)
    if due is not None:
        columns["arrival_ms"] = due.tolist()
    for i in range(len(table)):
        given = {name: column[i] for name, column in columns.items()}
        row = int(measured.state.origins[i]) if world["lanes"] else i % len(asked.rows)
        wished = asked.rows[row]  # an engine may clip the output, and a prefix may reach isl
        wish = {name: wished[name] for name in ("prefix", "osl")}
        handed = hand_off(measured, i) if world["stages"] > 1 else {}
        answers.append({"request": i, **given, **wish, **handed, "token_ms": times[i].tolist()})
    return answers


def hand_off(measured: Measured, i: int) -> dict[str, Any]:
    """What the language wants to know of how request i went over, if it did."""
    state = measured.state
    prefill, decode, hand = state.legs[2 * i], state.legs[2 * i + 1], state.hands[i]
    told = {"prefill_done_ms": float(prefill["done_ms"])}
    if hand["end_ms"] < 0.0:
        return told
    times = {
        "transfer_start_ms": hand["start_ms"],
        "transfer_done_ms": hand["end_ms"],
        "attach_ms": decode["admitted_ms"],
    }
    return {"decode_engine": int(decode["engine"]), **told, **{name: float(value) for name, value in times.items()}}


def read_scenario(scenario: Mapping[str, Any]) -> Question:
    """Parse a scenario.

    Raises:
        SpecError: an unknown or missing key, or a value out of range.
        Unsupported: a wish that is not modelled.
    """
    needed = dict.fromkeys(("name", "backend", "engine", "workload", "timing"), ...)
    parts = taken(scenario, "scenario", {**needed, "deployment": {}})
    if not isinstance(parts["name"], str) or not parts["name"]:
        raise SpecError(f"scenario.name={shown(parts['name'])}: must be a text; give it one")
    deployment, timing = read_deployment(parts)
    workload, rows = read_workload(parts["workload"])
    return Question(parts["name"], workload, deployment, timing, rows)


def read_deployment(parts: Mapping[str, Any]) -> tuple[Deployment, Timings]:
    """The engines, and what their passes cost; the scenario's own engine is the prefill side's, where there is one."""
    engine, timing = read_engine(parts["backend"], parts["engine"]), read_timing(parts["timing"])
    given = parts["deployment"]
    kind = given.get("kind", "aggregated") if isinstance(given, Mapping) else "aggregated"
    if kind == "aggregated":
        deployed = taken(given, "deployment", {"kind": kind, "replicas": 1, "routing": "round_robin"})
        return Aggregated(engine, replicas=deployed["replicas"], routing=deployed["routing"]), timing
    if kind != "disaggregated":
        raise SpecError(f"deployment.kind={shown(kind)}: must be 'aggregated' or 'disaggregated'; name one of them")
    apart = taken(given, "deployment", {"kind": ..., "decode": ..., "link": ..., **APART})
    decode = taken(apart["decode"], "deployment.decode", dict.fromkeys(("backend", "engine", "timing"), ...))
    link = Link(**taken(apart["link"], "deployment.link", {"gb_per_s": ..., "kv_bytes_per_token": ..., **LINK}))
    options = {name: apart[name] for name in APART}
    deployment = Disaggregated(
        prefill=engine, decode=read_engine(decode["backend"], decode["engine"]), link=link, **options
    )
    return deployment, {"prefill": timing, "decode": read_timing(decode["timing"])}


def read_engine(backend: Any, options: Any) -> EngineSpec:
    """A worker with the engine's own options."""
    if not isinstance(backend, str) or not isinstance(options, Mapping) or "backend" in options:
        raise SpecError(f"scenario: backend={shown(backend)}, engine={shown(options)}: must be a name and its options")
    return engine(backend, **options)


def read_workload(given: Any) -> tuple[Workload, list[dict[str, Any]]]:
    """The traffic, and the lengths as they are written."""
    mode = given.get("mode") if isinstance(given, Mapping) else None
    if mode == "closed":
        keys = {"concurrency": ..., "requests": ..., "shapes": ..., "stagger_ms": 0.0}
        parts = taken(given, "workload", {"mode": ..., **keys, **PLANE})
        shapes = [read_shape(row, f"workload.shapes.{i}") for i, row in enumerate(listed(parts, "shapes"))]
        options = {name: parts[name] for name in ("concurrency", "requests", "stagger_ms", *PLANE)}
        return Workload.closed_loop(shapes=map(clipped, shapes), **options), shapes
    if mode == "replay":
        parts = taken(given, "workload", {"mode": ..., "requests": ..., "max_concurrency": None, **PLANE})
        sent = [read_sent(row, f"workload.requests.{i}") for i, row in enumerate(listed(parts, "requests"))]
        sent.sort(key=lambda row: row["dispatch_ms"])
        options = {name: parts[name] for name in ("max_concurrency", *PLANE)}
        return Workload.replay([clipped(row) for row in sent], **options), sent
    if mode == "sessions":
        parts = taken(given, "workload", {"mode": ..., "lanes": ..., "stagger_ms": 0.0, **PLANE})
        lanes = [read_lane(lane, f"workload.lanes.{k}") for k, lane in enumerate(listed(parts, "lanes"))]
        options = {name: parts[name] for name in ("stagger_ms", *PLANE)}
        rows = [row for lane in lanes for turn in lane for row in (turn, *turn["calls"])]
        return Workload.sessions([[asked_turn(turn) for turn in lane] for lane in lanes], **options), rows
    raise SpecError(f"workload.mode={shown(mode)}: must be 'closed', 'replay' or 'sessions'; name one of them")


def read_lane(given: Any, where: str) -> list[dict[str, Any]]:
    """The turns of a lane; the lengths of their calls are read too."""
    if not isinstance(given, list) or not given:
        raise SpecError(f"{where}={shown(given)}: must be a list with at least one turn; give it one")
    turns = []
    for j, turn in enumerate(given):
        here = f"{where}.{j}"
        parts = taken(turn, here, TURN)
        think, calls = read_ms(parts.pop("think_ms"), f"{here}.think_ms"), parts.pop("calls")
        if not isinstance(calls, list | tuple):
            raise SpecError(f"{here}.calls={shown(calls)}: must be rows as shapes are; correct this value")
        read = [read_shape(call, f"{here}.calls.{c}") for c, call in enumerate(calls)]
        turns.append({**read_shape(parts, here), "think_ms": think, "calls": read})
    return turns


def asked_turn(turn: Mapping[str, Any]) -> dict[str, Any]:
    """A turn as passcal takes it; without a group nothing is shared."""
    own, *calls = (
        {**clipped(row), "prefix_len": row["prefix_len"] if row["prefix_group"] is not None else 0}
        for row in (turn, *turn["calls"])
    )
    return {**own, "calls": calls}


def read_sent(given: Any, where: str) -> dict[str, Any]:
    """A replayed request: when it is dispatched, and its lengths."""
    parts = taken(given, where, {"dispatch_ms": ..., **LENGTHS})
    dispatch = read_ms(parts.pop("dispatch_ms"), f"{where}.dispatch_ms")
    return {"dispatch_ms": dispatch, **read_shape(parts, where)}


def read_ms(given: Any, where: str) -> float:
    """A time."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise SpecError(f"{where}={shown(given)}: must be a number of milliseconds; correct this value")
    return float(given)


def read_shape(given: Any, where: str) -> dict[str, Any]:
    """Lengths and prefix group, from a triple or an object."""
    if isinstance(given, list):
        if len(given) != 3:
            raise SpecError(f"{where}={shown(given)}: must be [isl, prefix, osl]; correct this row")
        given = dict(zip(("isl", "prefix", "osl"), given, strict=True))
    parts = taken(given, where, LENGTHS)
    for name, least in LEAST.items():
        value = parts[name]
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise SpecError(
                f"{where}.{name}={shown(value)}: must be a whole number, at least {least}; correct this row"
            )
    return parts


def clipped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The language lets a prefix reach isl; at least one token is computed all the same."""
    return {**row, "prefix": min(row["prefix"], row["isl"] - 1)}


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
