"""The gate: passcal and the oracle answer the same scenarios, and every token must come at the same time.

The oracle (`tools/oracle` of the checkout) shares no code with this package and is asked through a process of its own.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

from passcal.errors import SpecError, Stalled, Unsupported
from passcal.scenario import answer

__all__ = ["Outcome", "ask_oracle", "checkout_root", "compare", "run", "scenario_files"]

RTOL = 1e-9
EVENTS = ("arrival_ms", "dispatch_ms", "visible_ms", "admitted_ms")
HAND_OFF = ("prefill_done_ms", "transfer_start_ms", "transfer_done_ms", "attach_ms", "decode_engine")
LENGTHS = ("isl", "prefix", "osl", "cached", "preemptions", "engine")
PASS_TIMES = ("start_ms", "end_ms")
PASS_COUNTS = (
    "engine",
    "prefill_tokens",
    "prefill_requests",
    "prefill_kv_tokens",
    "decode_requests",
    "decode_kv_tokens",
)


@dataclass(frozen=True)
class Outcome:
    """What came of one scenario.

    Attributes:
        name: of the file, without its suffix.
        verdict: `agreed`, `differs`, `refused` (by both sides) or `unsupported` (passcal does not model it).
        details: the disagreements, the first in time first, or the refusal.
    """

    name: str
    verdict: str
    details: tuple[str, ...] = ()


def compare(ours: Mapping[str, Any], theirs: Mapping[str, Any], rtol: float = RTOL) -> list[str]:
    """Where two answers differ, one line each, requests first and then passes; requests are joined on their number.

    Args:
        ours: passcal's answer.
        theirs: the oracle's.
        rtol: relative tolerance of times.
    """
    return [*request_differences(ours, theirs, rtol), *pass_differences(ours["passes"], theirs["passes"], rtol)]


def request_differences(ours: Mapping[str, Any], theirs: Mapping[str, Any], rtol: float) -> list[str]:
    """Differences between requests, ordered by when they happen."""
    mine, other = ({request["request"]: request for request in side["requests"]} for side in (ours, theirs))
    if mine.keys() != other.keys():
        odd = min(mine.keys() ^ other.keys())
        return [
            f"request {odd}: is only in {'ours' if odd in mine else 'the oracle'} ({len(mine)} against {len(other)})"
        ]
    found = [difference for i in mine for difference in differences_of(i, mine[i], other[i], rtol)]
    return [text for _, text in sorted(found, key=lambda pair: pair[0])]


def differences_of(
    i: int, ours: Mapping[str, Any], theirs: Mapping[str, Any], rtol: float
) -> Iterator[tuple[float, str]]:
    """Of one request: when, and what."""
    for name in EVENTS:
        mine, other = ours.get(name, 0.0), theirs.get(name, 0.0)  # arrivals are told where clients keep requests back
        if not close(mine, other, rtol):
            yield min(mine or 0.0, other or 0.0), told(f"request {i}", name, mine, other)
    for name in LENGTHS:
        if ours.get(name, 0) != theirs.get(name, 0):
            yield theirs["admitted_ms"], told(f"request {i}", name, ours.get(name, 0), theirs.get(name, 0))
    for name in HAND_OFF:
        mine, other = ours.get(name), theirs.get(name)
        if not close(mine, other, rtol):
            yield theirs["admitted_ms"], told(f"request {i}", name, mine, other)
    mine, other = ours["token_ms"], theirs["token_ms"]
    if len(mine) != len(other):
        yield theirs["admitted_ms"], told(f"request {i}", "tokens", len(mine), len(other))
    for k, (a, b) in enumerate(zip(mine, other, strict=False)):
        if not close(a, b, rtol):
            wrong = sum(not close(x, y, rtol) for x, y in zip(mine, other, strict=False))
            yield min(a, b), told(f"request {i}, token {k} ({wrong} of {len(other)} differ)", "token_ms", a, b)
            return


def pass_differences(ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]], rtol: float) -> list[str]:
    """The first pass that differs, engine by engine, all its differences; then a different number of passes."""
    found: list[str] = []
    ours, theirs = (sorted(side, key=lambda one: (one.get("engine", 0), one["start_ms"])) for side in (ours, theirs))
    for k, (mine, other) in enumerate(zip(ours, theirs, strict=False)):
        wrong = [name for name in PASS_TIMES if not close(mine[name], other[name], rtol)]
        wrong += [name for name in PASS_COUNTS if mine.get(name, 0) != other.get(name, 0)]
        if wrong:
            when = f"pass {k} from {other['start_ms']:.10g} ms"
            found = [told(when, name, mine.get(name, 0), other.get(name, 0)) for name in wrong]
            break
    if len(ours) != len(theirs):
        found.append(told("run", "passes", len(ours), len(theirs)))
    return found


def close(a: float | None, b: float | None, rtol: float) -> bool:
    """Equal within the tolerance; a time of zero must be zero, and one that is not told is told by neither."""
    return a == b or (a is not None and b is not None and math.isclose(a, b, rel_tol=rtol, abs_tol=0.0))


def told(where: str, name: str, ours: Any, theirs: Any) -> str:
    """One disagreement in one line."""
    return f"{where}: {name} is {ours!r} here, {theirs!r} in the oracle"


def checkout_root(start: Path) -> Path:
    """The folder with `tools/oracle` at or above `start`.

    Raises:
        SpecError: there is none.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / "tools" / "oracle" / "__main__.py").is_file():
            return folder
    raise SpecError(f"gate: no tools/oracle at or above {start}; run it inside a checkout of passcal, or give --root")


def scenario_files(root: Path) -> list[Path]:
    """All scenarios of a checkout.

    Raises:
        SpecError: there are none.
    """
    folder = root / "tests" / "agreement" / "scenarios"
    files = sorted(folder.glob("*.json"))
    if not files:
        raise SpecError(f"gate: no *.json in {folder}; name scenario files")
    return files


def ask_oracle(file: Path, root: Path) -> dict[str, Any]:
    """The oracle's answer.

    Raises:
        SpecError: it refuses the scenario or cannot end it.
        RuntimeError: it broke.
    """
    command = [sys.executable, "-m", "tools.oracle", str(file.resolve())]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode == 2:
        raise SpecError(done.stderr.strip().removeprefix(f"{file.resolve()}: "))
    if done.returncode:
        raise RuntimeError(f"the oracle broke on {file.name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"[:199])
    decoded: dict[str, Any] = json.loads(done.stdout)
    return decoded


def judge(file: Path, ask: Callable[[Path], Mapping[str, Any]]) -> Outcome:
    """Both sides answer one scenario file."""
    try:
        asked = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise SpecError(f"{file}: {error}; give a JSON file with one scenario"[:199]) from None
    try:
        ours = answer(asked)
    except Unsupported as error:
        return Outcome(file.stem, "unsupported", (str(error),))
    except (SpecError, Stalled) as error:
        refusal = str(error)
        try:
            ask(file)
        except SpecError as other:
            return Outcome(file.stem, "refused", (refusal, str(other)))
        return Outcome(file.stem, "differs", (f"refused here, answered by the oracle: {refusal}",))
    try:
        found = compare(ours, ask(file))
    except SpecError as error:
        return Outcome(file.stem, "differs", (f"answered here, refused by the oracle: {error}",))
    return Outcome(file.stem, "differs" if found else "agreed", tuple(found))


def run(files: Sequence[Path], root: Path, *, workers: int | None = None) -> Iterator[Outcome]:
    """Both sides on every file, in the order given; the oracle's processes run side by side.

    Args:
        files: scenarios.
        root: the checkout that holds `tools/oracle`.
        workers: scenarios at a time; None: one a processor.

    Raises:
        SpecError: a file that cannot be read.
        RuntimeError: the oracle broke.
    """
    with ThreadPoolExecutor(workers or cpu_count() or 1) as pool:
        yield from pool.map(lambda file: judge(file, lambda f: ask_oracle(f, root)), files)
