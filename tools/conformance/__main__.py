"""`python -m tools.conformance [files...]`: agreed of total by kind, the first disagreement, passes a second.

Without files: the full set beside the checkout, or else the committed subset. Exit code 1 if a case departs.
"""

import argparse
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import passcal as pc
from tools.conformance.adapters import asked
from tools.conformance.comparison import Outcome, compare
from tools.conformance.recordings import Case, default_files, kinds, read

__all__ = ["main", "speed"]


def main(arguments: list[str] | None = None) -> int:
    """Compare every case of the files."""
    parser = argparse.ArgumentParser(prog="python -m tools.conformance", description=__doc__)
    parser.add_argument("files", nargs="*", type=Path, help="recordings (gzip JSON lines)")
    files = parser.parse_args(arguments).files or default_files()
    outcomes: list[tuple[Case, Outcome]] = []
    for file in files:
        before = len(outcomes)
        outcomes += [(case, compare(case)) for case in read(file)]
        print(f"{file.name:28} {verdict([outcome for _, outcome in outcomes[before:]])}")
    by_kind: dict[str, list[Outcome]] = defaultdict(list)
    for case, outcome in outcomes:
        backend, *traits = kinds(case)
        for trait in traits:
            by_kind[f"{backend} {trait}"].append(outcome)
    print()
    for kind, those in sorted(by_kind.items()):
        print(f"{kind:28} {verdict(those)}")
    print()
    for reason, count in Counter(o.refused for _, o in outcomes if o.refused).most_common():
        print(f"refused {count}: {reason}")
    ran = [case for case, outcome in outcomes if outcome.refused is None]
    passes, seconds = speed(ran)
    print(f"{passes} passes in {seconds:.3f} s: {passes / max(seconds, 1e-9):,.0f} a second, assembly included")
    departed = [outcome for _, outcome in outcomes if outcome.found]
    if departed:
        print(f"first disagreement: {departed[0].name}: {departed[0].found[0]}")
    return 1 if departed else 0


def verdict(outcomes: list[Outcome]) -> str:
    """How many agree, and how many were not run."""
    refused = sum(outcome.refused is not None for outcome in outcomes)
    agreed = sum(outcome.agrees for outcome in outcomes)
    return f"{agreed:4}/{len(outcomes) - refused:<4} agree" + (f", {refused} refused" if refused else "")


def speed(cases: list[Case]) -> tuple[int, float]:
    """Passes of these cases, and seconds to run them again, from specs to reports."""
    questions = [asked(case) for case in cases]
    started = time.perf_counter()
    for question in questions:
        pc.evaluate(*question)
    spent = time.perf_counter() - started
    return sum(len(case["passes"]["end_ms"]) for case in cases), spent


if __name__ == "__main__":
    sys.exit(main())
