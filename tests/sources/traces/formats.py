"""One trace in every format that is read, so that whatever can go wrong with a file is asked of every reader.

A writer takes rows (time in ms, isl, osl) and answers bytes. A cell that is a text stands in the file as it is, so a test can put NaN or thirty
digits there. `fields` says which columns or keys the file has, in order; one may be left out or given twice.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

Row = tuple[float | str, int | str, int | str]
Writer = Callable[[Sequence[Row], Sequence[str]], bytes]
FIELDS = ("t", "isl", "osl")
EPOCH = datetime(2023, 11, 16, 18, 17, 3)


def number(value: float | str, scale: float = 1.0) -> str:
    """A cell: numbers in the unit of the file, texts as they are."""
    return value if isinstance(value, str) else f"{value * scale:.10g}"


def delimited(header: dict[str, str], stamp: Callable[[float | str], str]) -> Writer:
    """A comma separated file."""

    def write(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
        lines = [",".join(header[name] for name in fields)]
        for t, isl, osl in rows:
            cells = {"t": stamp(t), "isl": number(isl), "osl": number(osl)}
            lines.append(",".join(cells[name] for name in fields))
        return ("\n".join(lines) + "\n").encode()

    return write


def joined(pairs: Sequence[tuple[str, str]]) -> str:
    """A JSON object with these keys, repeated ones too."""
    return "{" + ", ".join(f'"{key}": {text}' for key, text in pairs) + "}"


def mooncake(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
    keys = {"t": "timestamp", "isl": "input_length", "osl": "output_length"}
    lines = []
    for at, (t, isl, osl) in enumerate(rows):
        cells = {"t": number(t), "isl": number(isl), "osl": number(osl)}
        ids = list(range(at, at + (-(-isl // 512) if isinstance(isl, int) and isl > 0 else 0)))
        lines.append(joined([*((keys[name], cells[name]) for name in fields), ("hash_ids", json.dumps(ids))]))
    return ("\n".join(lines) + "\n").encode()


def agent(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
    """A session a row."""
    keys = {"t": "t", "isl": "in", "osl": "out"}
    lines = []
    for at, (t, isl, osl) in enumerate(rows):
        cells = {"t": number(t, 1e-3), "isl": number(isl), "osl": number(osl)}
        turn = joined([*((keys[name], cells[name]) for name in fields), ("api_time", "0.5")])
        lines.append(joined([("id", f'"s{at}"'), ("block_size", "64"), ("requests", f"[{turn}]")]))
    return ("\n".join(lines) + "\n").encode()


def vllm(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
    keys = {"t": "start_times", "isl": "input_lens", "osl": "output_lens"}
    columns = {
        "t": [number(t, 1e-3) for t, _, _ in rows],
        "isl": [number(isl) for _, isl, _ in rows],
        "osl": [number(osl) for _, _, osl in rows],
    }
    lists = [(keys[name], "[" + ", ".join(columns[name]) + "]") for name in fields]
    measured = [("ttfts", json.dumps([0.25] * len(rows))), ("latencies", json.dumps([0.75] * len(rows)))]
    return (joined([("request_throughput", "1.5"), *lists, *measured]) + "\n").encode()


def guidellm(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
    keys = {"t": "request_start_time", "isl": "prompt_tokens", "osl": "output_tokens"}
    requests = []
    for at, (t, isl, osl) in enumerate(rows):
        cells = {"t": number(t, 1e-3), "isl": number(isl), "osl": number(osl)}
        own = [("request_id", f'"r{at}"'), *((keys[name], cells[name]) for name in fields)]
        requests.append(joined([*own, ("time_to_first_token_ms", "250"), ("request_latency", "0.75")]))
    held = joined([("successful", "[" + ", ".join(requests) + "]"), ("errored", "[]"), ("incomplete", "[]")])
    return (joined([("benchmarks", f"[{joined([('requests', held)])}]")]) + "\n").encode()


def aiperf(rows: Sequence[Row], fields: Sequence[str] = FIELDS) -> bytes:
    lines = []
    for at, (t, isl, osl) in enumerate(rows):
        metadata = [("x_request_id", f'"r{at}"'), ("benchmark_phase", '"profiling"')]
        metadata += [("request_start_ns", number(t, 1e6)) for name in fields if name == "t"]
        keys = {"isl": ("input_sequence_length", number(isl)), "osl": ("output_sequence_length", number(osl))}
        metrics = [(keys[n][0], joined([("value", keys[n][1]), ("unit", '"tokens"')])) for n in fields if n != "t"]
        metrics += [
            (key, f'{{"value": {ms}, "unit": "ms"}}')
            for key, ms in (("time_to_first_token", 250), ("request_latency", 750))
        ]
        lines.append(joined([("metadata", joined(metadata)), ("metrics", joined(metrics)), ("error", "null")]))
    return ("\n".join(lines) + "\n").encode()


@dataclass(frozen=True)
class Format:
    """A format, and where its rows stand.

    Attributes:
        write: rows to bytes.
        unit: what a refusal counts.
        first: the number of the first row.
        osl: how the file calls it.
        whole: the file is one JSON text, so what breaks its syntax is found on line 1.
        ids: requests or sessions have names, which must differ.
        starts_at_0: the clock is absolute or the client's own, so the first request is put at 0.
    """

    write: Writer
    unit: str
    first: int
    osl: str
    whole: bool = False
    ids: bool = False
    starts_at_0: bool = False


def stamp(t: float | str) -> str:
    """An Azure timestamp."""
    return t if isinstance(t, str) else (EPOCH + timedelta(milliseconds=t)).isoformat(sep=" ", timespec="microseconds")


FORMATS = {
    "table": Format(delimited({"t": "dispatch_ms", "isl": "isl", "osl": "osl"}, number), "line", 2, "osl"),
    "azure": Format(
        delimited({"t": "TIMESTAMP", "isl": "ContextTokens", "osl": "GeneratedTokens"}, stamp),
        "line",
        2,
        "GeneratedTokens",
        starts_at_0=True,
    ),
    "mooncake": Format(mooncake, "line", 1, "output_length"),
    "agent": Format(agent, "line", 1, "out", ids=True),
    "vllm": Format(vllm, "request", 1, "output_lens", whole=True, starts_at_0=True),
    "guidellm": Format(guidellm, "request", 1, "output_tokens", whole=True, ids=True, starts_at_0=True),
    "aiperf": Format(aiperf, "line", 1, "output_sequence_length", ids=True, starts_at_0=True),
}
