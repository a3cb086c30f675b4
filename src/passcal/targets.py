"""Service levels in words: `ttft:p99<=500`, `itl:mean<=20`, `throughput_rps>=8`; and lists of them, checked."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from passcal.errors import SpecError
from passcal.spec.sla import Floor, Sla, Target

__all__ = ["read_target", "read_targets", "targets_of", "written"]

FORM = re.compile(r"\s*(?:(\w+)\s*:\s*([\w.]+)\s*<=|(\w+)\s*>=)\s*(\S+)\s*")
LEVEL = re.compile(r"p(999+|\d+(?:\.\d+)?)")  # p999 is 99.9%, as in the columns


def targets_of(sla: Iterable[Target] | Target) -> tuple[Target, ...]:
    """Targets, checked; one of them may stand alone.

    Raises:
        SpecError: none, or something else among them.
    """
    targets = (sla,) if isinstance(sla, Target) else tuple(sla)
    if not targets:
        raise SpecError("sla: there must be at least one target; give pc.Sla('ttft', 0.99, 500), or ttft:p99<=500")
    for target in targets:
        if not isinstance(target, Target):
            raise SpecError(f"sla={target!r:.60}: must be targets; make one with pc.Sla(...) or pc.Floor(...)")
    return targets


def written(target: Target) -> str:
    """A target in one word; `read_target` reads it."""
    if isinstance(target, Floor):
        return f"{target.metric}>={target.limit:.10g}"
    level = target.quantile if isinstance(target.quantile, str) else f"p{100 * target.quantile:.10g}"
    return f"{target.metric}:{level}<={target.limit_ms:.10g}"


def read_target(text: str) -> Target:
    """A target from its word: `metric:level<=ms` with a level of `mean`, `max`, `p99`, `p99.9` or `p999`, or `metric>=limit`.

    Raises:
        SpecError: the word has another form, or a part of it breaks a rule.
    """
    if not (found := FORM.fullmatch(text)):
        raise SpecError(f"sla={text!r:.60}: must be as ttft:p99<=500, itl:mean<=20 or throughput_rps>=8; correct it")
    metric, level, rate, limit = found.groups()
    try:
        number = float(limit)
    except ValueError:
        raise SpecError(f"sla={text!r:.60}: what follows the sign must be a number (ms, or a second)") from None
    return Floor(rate, number) if rate else Sla(metric, share(level), number)


def share(level: str) -> float | str:
    """`p99` to 0.99; what is no level stays, and is refused by the spec."""
    if level == "max":
        return 1.0
    if not (found := LEVEL.fullmatch(level)):
        return level
    digits = found[1]
    return float(f"0.{digits}") if digits.startswith("999") and "." not in digits else float(f"{digits}e-2")


def read_targets(section: Any, path: str = "sla") -> tuple[Target, ...]:
    """A list of words, or of mappings with a spec's fields.

    Raises:
        SpecError: with the entry's path.
    """
    entries = section if isinstance(section, list) else [section]
    found = []
    for place, entry in enumerate(entries):
        try:
            found.append(read_entry(entry))
        except SpecError as error:
            text = str(error)
            for owner in ("Sla", "Floor", "sla"):
                text = text.removeprefix(owner)
            raise SpecError(f"{path}.{place}{text}"[:199]) from None
    return tuple(found)


def read_entry(entry: Any) -> Target:
    """One of them."""
    if isinstance(entry, str):
        return read_target(entry)
    if not isinstance(entry, Mapping) or not all(isinstance(name, str) for name in entry):
        raise SpecError(f"sla={entry!r:.60}: must be as ttft:p99<=500, or have the keys metric, quantile, limit_ms")
    return Floor(**entry) if "limit" in entry else Sla(**entry)
