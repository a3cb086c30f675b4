"""How far the screener is from the evaluator: errors by regime, the bracket, ranks within a workload, and the rate."""

import time
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

import passcal as pc
from tools.screening.draw import EXTRA, draw, truth

__all__ = ["FIGURES", "bracket_line", "errors", "measured", "rank_line", "ranks", "rate_line", "table"]

FIGURES = {  # column: its short name, and the quantile limits of its error that issue 6 sets
    "throughput_rps": ("throughput", {0.5: 0.01, 0.95: 0.08}),
    "ttft_steady_mean": ("TTFT mean", {0.5: 0.02, 0.95: 0.15}),
    "itl_p50": ("ITL p50", {0.95: 0.10}),
    "itl_p99": ("ITL p99", {0.95: 0.10}),
    "ttft_transient_mean": ("start-up mean", {0.95: 0.10}),
    "ttft_steady_p99": ("TTFT p99", {}),
    "e2e_p99": ("E2E p99", {}),
    "tpot_p99": ("TPOT p99", {}),
}


def errors(found: pd.DataFrame, true: pd.DataFrame) -> pd.DataFrame:
    """Relative errors of every figure that the table shows."""
    return pd.DataFrame({name: (found[name] / true[name] - 1.0).abs() for name in FIGURES}, index=found.index)


def table(found: pd.DataFrame, true: pd.DataFrame, calendar: pd.Series, *, by_regime: bool = True) -> str:
    """Markdown: median and 95th percentile of errors, in percent, over all and by calendar, and by regime too."""
    error = errors(found, true)
    head = " | ".join(f"{short} p50 | p95" for short, _ in FIGURES.values())
    lines = [f"| candidates | n | {head} |", "|---|---|" + "---|" * 2 * len(FIGURES)]
    groups: list[tuple[str, Any]] = [("all", found.index)]
    groups += [(str(name), rows.index) for name, rows in found.groupby(calendar)]
    if by_regime:
        groups += [(f"{a}, {b}", rows.index) for (a, b), rows in found.groupby([calendar, found["regime"].astype(str)])]
    for name, index in groups:
        cells = [f"{100 * error.loc[index, figure].quantile(q):.1f}" for figure in FIGURES for q in (0.5, 0.95)]
        lines.append(f"| {name} | {len(index)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def bracket_line(found: pd.DataFrame, true: pd.DataFrame) -> str:
    """How often the bracket holds, and how wide it is."""
    low, high = found["ttft_steady_p99_lo"], found["ttft_steady_p99_hi"]
    p99 = true["ttft_steady_p99"]
    outside = int(((p99 < low * (1 - 1e-9)) | (p99 > high * (1 + 1e-9))).sum())
    finite = np.isfinite(high)
    width = (high / low)[finite]
    return (
        f"{len(found)} brackets, {outside} do not hold the evaluator's p99; median hi/lo {width.median():.4f}, "
        f"{(width <= 1.5).mean():.1%} at most 1.5, {(~finite).mean():.2%} infinite"
    )


def ranks(found: pd.DataFrame, true: pd.DataFrame, workload: pd.Series) -> pd.DataFrame:
    """Spearman's rank correlation within each workload; values equal to five digits are ties."""
    rows = []
    for number, index in workload.groupby(workload).groups.items():
        row = {"workload": number}
        for name in ("throughput_rps", "ttft_steady_p99"):
            pair = [np.round(np.log(frame.loc[index, name]), 5) for frame in (found, true)]
            if all(values.nunique() > 1 for values in pair):
                row[name] = spearmanr(*pair).statistic
        rows.append(row)
    return pd.DataFrame(rows)


def rank_line(found: pd.DataFrame, true: pd.DataFrame, workload: pd.Series) -> str:
    """Ranks in a line a figure."""
    table = ranks(found, true, workload)
    return "\n".join(
        f"- {name}: median {table[name].median():.4f}, {(table[name].dropna() >= 0.99).mean():.0%} of {table[name].count()} workloads at least 0.99, "
        f"lowest {table[name].min():.3f}"
        for name in ("throughput_rps", "ttft_steady_p99")
    )


def rate_line(seed: int, count: int = 1_000_000, steps: int | None = None) -> str:
    """Candidates a second with all columns built, by the processor's clock."""
    frame = draw(3000, seed).drop(columns=[*EXTRA]).sample(count, replace=True, random_state=0, ignore_index=True)
    pc.screen(frame[:100])
    times = []
    for _ in range(5):
        start = time.process_time()
        pc.screen(frame, steps=steps or "few")
        times.append(time.process_time() - start)
    return f"{count / min(times):,.0f} candidates a second on one core, all columns built ({count:,} rows, linear timing, best of 5)"


def measured(count: int, seed: int, per_workload: int = 1) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Candidates, what the screener says, and what the evaluator says."""
    frame = draw(count, seed, per_workload=per_workload)
    return frame, pc.screen(frame.drop(columns=[*EXTRA]), steps="few"), truth(frame)
