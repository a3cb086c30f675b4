"""`python -m tools.screening`: write docs/explanation/screening-table.md anew; with `--sample`, the sample that the tests hold it to; with `--apart`, the
part of docs/explanation/screening.md about prefill and decode apart.
"""

import argparse
from pathlib import Path

import passcal as pc
from tools.screening.apart import report_apart
from tools.screening.draw import EXTRA, draw, truth
from tools.screening.table import FIGURES, bracket_line, measured, rank_line, rate_line, table

FAR = 60_000  # steps
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "screening-table.md"
PROSE = PAGE.with_name("screening.md")
MARKS = ("<!-- measured: -->\n", "<!-- :measured -->")
SAMPLE = ROOT / "tests" / "data" / "screening.csv"


def main() -> None:
    """Draw, evaluate, screen, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000, help="random candidates")
    parser.add_argument("--groups", type=int, default=100, help="workloads with 80 engines each, for ranks")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument(
        "--sample", type=int, default=0, help="write so many candidates and their truth for the tests, and nothing else"
    )
    parser.add_argument(
        "--apart", type=int, default=0, help="so many candidates with prefill and decode apart, and nothing else"
    )
    asked = parser.parse_args()
    if asked.apart:
        write_apart(asked.apart, asked.seed)
        return
    if asked.sample:
        write_sample(asked.sample, asked.seed)
        return
    frame, found, true = measured(asked.count, asked.seed)
    group, group_found, group_true = measured(80 * asked.groups, asked.seed + 1, per_workload=80)
    far, group_far = (pc.screen(each.drop(columns=[*EXTRA]), steps=FAR) for each in (frame, group))
    text = f"""# The screener against the evaluator

Written by `python -m tools.screening --count {asked.count} --groups {asked.groups} --seed {asked.seed}`: random candidates as in `tools/screening/draw.py`
(isl 64-16384, osl 1-1024, clients 1-1024, budget 512-16384, seats 8-1024, prefix 0-90%, async on and off, turnaround none or up to 1 s), the
evaluator's limit cycle as truth. Relative errors in percent, median and 95th percentile. [What the regimes are](screening.md).

## In closed form, gone through for a few steps

`pc.screen(..., steps="few")`, the default of tables with more than 10,000 rows.

{table(found, true, frame["calendar"])}

Bracket on the steady p99 of TTFT: {bracket_line(found, true)}.
The same on the {len(group)} candidates below: {bracket_line(group_found, group_true)}.

Spearman's rank correlation within a workload, {asked.groups} workloads with 80 engines each:

{rank_line(group_found, group_true, group["workload"])}

Rate: {rate_line(asked.seed)}.

## Gone through

`pc.screen(..., steps={FAR})`, the default of smaller tables.

{table(far, true, frame["calendar"], by_regime=False)}

Bracket: {bracket_line(far, true)}; on the {len(group)} candidates, {bracket_line(group_far, group_true)}.

{rank_line(group_far, group_true, group["workload"])}

Rate: {rate_line(asked.seed, 20_000, FAR)}.
"""
    asked.out.parent.mkdir(parents=True, exist_ok=True)
    asked.out.write_text(text, encoding="utf-8")
    print(text)


def write_apart(count: int, seed: int) -> None:
    """Between the marks of the page."""
    before, _, rest = PROSE.read_text(encoding="utf-8").partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    text = report_apart(count, seed)
    PROSE.write_text(f"{before}{MARKS[0]}\n{text}\n\n{MARKS[1]}{after}", encoding="utf-8")
    print(text)


def write_sample(count: int, seed: int) -> None:
    """Candidates and what the evaluator says of them, side by side."""
    frame = draw(count, seed)
    names = [name for name in FIGURES if name != "tpot_p99"]
    frame.join(truth(frame)[names]).to_csv(SAMPLE, index=False)


if __name__ == "__main__":
    main()
