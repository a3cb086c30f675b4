"""The same prediction from less: fitted on requests that were done before the second half's first token came."""

from tools.validation.fit import fit
from tools.validation.held_out import Half, as_predicted
from tools.validation.lives import replay
from tools.validation.tables import QUANTILES, figures, markdown

__all__ = ["early"]

HEAD = ("run", "requests fitted on", "done before", "second half", "mean", *QUANTILES)


def early(halves: list[Half]) -> str:
    """Errors of the second half's figures; no request fitted on has lived beside one that is predicted."""
    return markdown(HEAD, [row for one in halves for row in rows_of(one)])


def rows_of(one: Half) -> list[list[str]]:
    """One run."""
    log, second = one.log, ~one.log.fitted
    until = log.requests["first_ms"][second].min()
    used = log.fitted & (log.requests["last_ms"] < until).to_numpy()
    told = as_predicted(replay(log.requests, log.engine, fit(log.requests, log.engine, used).timing))
    rows = []
    for name, metric in (("TTFT", "ttft"), ("TPOT", "tpot"), ("queue time", "queue")):
        errors = figures(told[metric][second]) / figures(one.measured[metric][second]) - 1
        title = ("", "", "") if rows else (log.name, str(used.sum()), f"{until / 1e3:.0f} s")
        rows.append([*title, name, *(f"{100 * error:+.1f}%" for error in errors)])
    return rows
