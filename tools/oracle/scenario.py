"""The scenario language, parsed. What it means is written beside the scenarios; what is unknown is refused by name."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tools.oracle.disaggregated import Disaggregated, read_disaggregated
from tools.oracle.errors import ScenarioError
from tools.oracle.fields import Fields
from tools.oracle.requests import Lengths
from tools.oracle.routing import ROUTERS
from tools.oracle.timing import Timing, read_timing


@dataclass(frozen=True, slots=True)
class Plane:
    """The way from client to scheduler: what delays the sight of a request."""

    turnaround_ms: float
    ingest_us_per_token: float

    def visible_ms(self, dispatch_ms: float, isl: int) -> float:
        """When the scheduler sees a prompt of `isl` tokens sent at `dispatch_ms`."""
        return dispatch_ms + self.turnaround_ms + isl * self.ingest_us_per_token / 1000


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Clients that send their next request when the last one is done."""

    plane: Plane
    concurrency: int
    requests: int
    shapes: tuple[Lengths, ...]
    stagger_ms: float

    def lengths(self) -> Iterable[Lengths]:
        """Every shape that some request will have."""
        return self.shapes[: self.requests]


@dataclass(frozen=True, slots=True)
class Replay:
    """Requests that come at given times, whatever became of the others; so many at most are out, if there is a limit."""

    plane: Plane
    requests: tuple[tuple[float, Lengths], ...]
    max_concurrency: int | None

    def lengths(self) -> Iterable[Lengths]:
        """Every shape that some request will have."""
        return (lengths for _, lengths in self.requests)


@dataclass(frozen=True, slots=True)
class Turn:
    """A turn of a session: what is sent together when it has been thought about, its own request first."""

    think_ms: float
    requests: tuple[Lengths, ...]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Lanes of turns; each waits for the one before."""

    plane: Plane
    lanes: tuple[tuple[Turn, ...], ...]
    stagger_ms: float

    def lengths(self) -> Iterable[Lengths]:
        """Every shape that some request will have."""
        return (lengths for lane in self.lanes for turn in lane for lengths in turn.requests)


Workload = ClosedLoop | Replay | Sessions


@dataclass(frozen=True, slots=True)
class Scenario:
    """One question; `engine` stays raw, since only the backend's scheduler knows its options."""

    name: str
    backend: str
    engine: dict
    workload: Workload
    timing: Timing
    replicas: int = 1
    routing: str = "round_robin"
    disaggregated: Disaggregated | None = None


def read_scenario(value: object) -> Scenario:
    """Parse a decoded JSON scenario, or refuse it in one line."""
    fields = Fields(value, "scenario")
    name, backend, engine = fields.take("name"), fields.take("backend"), fields.take("engine")
    if not isinstance(name, str) or not name:
        raise ScenarioError(f"scenario: name must be a text, not {name!r}")
    workload, timing = read_workload(fields.take("workload")), read_timing(fields.take("timing"))
    deployment = fields.take("deployment", {})
    fields.close()
    return Scenario(name, backend, engine, workload, timing, *read_deployment(deployment))


def read_deployment(value: object) -> tuple[int, str, Disaggregated | None]:
    """Parse how many workers there are, and how requests are placed; or the two stages."""
    fields, replicas, routing, apart = Fields(value, "deployment"), 1, "round_robin", None
    if fields.choice("kind", ("aggregated", "disaggregated"), "aggregated") == "disaggregated":
        apart = read_disaggregated(fields)
    else:
        replicas, routing = fields.whole("replicas", 1, low=1), fields.choice("routing", tuple(ROUTERS), "round_robin")
    fields.close()
    return replicas, routing, apart


def read_workload(value: object) -> Workload:
    """Parse the traffic."""
    fields = Fields(value, "workload")
    read = READERS[fields.choice("mode", tuple(READERS))]
    workload = read(fields, Plane(fields.number("turnaround_ms", 0.0), fields.number("ingest_us_per_token", 0.0)))
    fields.close()
    return workload


def read_closed(fields: Fields, plane: Plane) -> ClosedLoop:
    """Parse what only a closed loop has."""
    shapes = tuple(read_shape(row, f"shape {i}") for i, row in enumerate(fields.rows("shapes")))
    concurrency, requests = fields.whole("concurrency", low=1), fields.whole("requests", low=1)
    return ClosedLoop(plane, concurrency, requests, shapes, fields.number("stagger_ms", 0.0))


def read_replay(fields: Fields, plane: Plane) -> Replay:
    """Parse what only a replay has."""
    sent = [read_sent(row, f"request {i}") for i, row in enumerate(fields.rows("requests"))]
    limit = fields.whole("max_concurrency", None, low=1, null=None)
    return Replay(plane, tuple(sorted(sent, key=lambda pair: pair[0])), limit)


def read_sessions(fields: Fields, plane: Plane) -> Sessions:
    """Parse what only sessions have."""
    lanes = [read_lane(row, f"lane {k}") for k, row in enumerate(fields.rows("lanes"))]
    return Sessions(plane, tuple(lanes), fields.number("stagger_ms", 0.0))


READERS: dict[str, Callable[[Fields, Plane], Workload]] = {
    "closed": read_closed,
    "replay": read_replay,
    "sessions": read_sessions,
}


def read_lane(value: object, where: str) -> tuple[Turn, ...]:
    """Parse the turns of a lane."""
    if not isinstance(value, list) or not value:
        raise ScenarioError(f"{where} must be a list with at least one turn, not {value!r:.60}")
    return tuple(read_turn(row, f"{where}, turn {j}") for j, row in enumerate(value))


def read_turn(value: object, where: str) -> Turn:
    """Parse a turn: a shape with its think time, and the calls beside it."""
    fields = Fields(value, where)
    think_ms, calls = fields.number("think_ms"), fields.take("calls", [])
    if not isinstance(calls, list):
        raise ScenarioError(f"{where}: calls must be a list, not {calls!r:.60}")
    beside = [read_shape(row, f"{where}, call {i}") for i, row in enumerate(calls)]
    return Turn(think_ms, (read_lengths(fields), *beside))


def read_sent(value: object, where: str) -> tuple[float, Lengths]:
    """Parse one replayed request: its dispatch time and lengths."""
    fields = Fields(value, where)
    return fields.number("dispatch_ms"), read_lengths(fields)


def read_shape(value: object, where: str) -> Lengths:
    """Parse a shape of a closed loop: a triple, or an object where prefixes are shared."""
    if isinstance(value, list):
        if len(value) != 3:
            raise ScenarioError(f"{where} must be [isl, prefix, osl] or an object, not {value!r:.60}")
        value = dict(zip(("isl", "prefix", "osl"), value, strict=True))
    return read_lengths(Fields(value, where))


def read_lengths(fields: Fields) -> Lengths:
    """Parse the lengths of a request and close the object that holds them."""
    isl, osl, prefix = fields.whole("isl", low=1), fields.whole("osl", low=1), fields.whole("prefix", 0)
    group = fields.whole("prefix_group", None, null=None)
    rank = fields.whole("data_parallel_rank", None, null=None)
    limit = fields.whole("max_tokens", None, low=osl, null=None)
    lengths = Lengths(isl, prefix, osl, group, fields.whole("prefix_len", 0), rank, limit)
    fields.close()
    return lengths
