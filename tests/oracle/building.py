"""Small scenarios, and a scheduler that tells what it planned."""

from pathlib import Path

from tools.oracle import simulate
from tools.oracle.requests import Row
from tools.oracle.vllm import VllmScheduler

ROOT = Path(__file__).parents[2]

TEN_MS = {"kind": "linear", "prefill": [10, 0, 0, 0], "decode": [10, 0, 0], "combine": "max"}


def sent(
    isl: int, osl: int, dispatch_ms: float = 0, prefix: int = 0, group: int | None = None, shared: int = 0
) -> dict:
    """A replayed request."""
    lengths = {"isl": isl, "prefix": prefix, "osl": osl, "prefix_group": group, "prefix_len": shared}
    return {"dispatch_ms": dispatch_ms, **lengths}


def replay(*requests: dict, timing: dict = TEN_MS, plane: dict | None = None, **engine: object) -> dict:
    """A replay at a synchronous engine, unless told otherwise; every pass takes 10 ms, unless told otherwise."""
    workload = {"mode": "replay", "requests": list(requests), **(plane or {})}
    return scenario(workload, timing, engine)


def closed(concurrency: int, requests: int, *shapes: object, plane: dict | None = None, **engine: object) -> dict:
    """A closed loop at such an engine."""
    sizes = {"concurrency": concurrency, "requests": requests, "shapes": list(shapes)}
    return scenario({"mode": "closed", **sizes, **(plane or {})}, TEN_MS, engine)


def scenario(workload: dict, timing: dict, engine: dict) -> dict:
    """The whole object."""
    engine = {"async_scheduling": False, **engine}
    return {"name": "built", "backend": "vllm", "engine": engine, "workload": workload, "timing": timing}


def asked_of(backend: str, *requests: dict, timing: dict = TEN_MS, plane: dict | None = None, **engine: object) -> dict:
    """A replay at another backend, its engine as given."""
    workload = {"mode": "replay", "requests": list(requests), **(plane or {})}
    return {"name": "built", "backend": backend, "engine": engine, "workload": workload, "timing": timing}


def deployed(asked: dict, replicas: int, routing: str = "round_robin") -> dict:
    """The scenario on several workers."""
    return {**asked, "deployment": {"replicas": replicas, "routing": routing}}


def plans(asked: dict) -> list[dict[int, int]]:
    """The tokens that each planned pass gives, by request, in row order."""
    seen: list[dict[int, int]] = []

    class Telling(VllmScheduler):
        def plan(self) -> list[Row]:
            rows = super().plan()
            if rows:
                seen.append({row.request.number: row.new for row in rows})
            return rows

    simulate(asked, scheduler=Telling)
    return seen


def shapes(asked: dict, engine: int = 0) -> list[tuple[int, int, int]]:
    """(prompt tokens, chunks, rows) of each pass of one engine."""
    keys = ("prefill_tokens", "prefill_requests", "decode_requests")
    return [tuple(each[key] for key in keys) for each in simulate(asked)["passes"] if each["engine"] == engine]


def column(asked: dict, key: str) -> list:
    """One property of all requests of the answer."""
    return [request[key] for request in simulate(asked)["requests"]]
