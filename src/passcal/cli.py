"""The command line: YAML in, a table, JSON or CSV out.

Exit codes: 0 done; 1 nothing feasible, or the gate failed; 2 bad input, told in one line with the value, the rule and the remedy;
130 interrupted. Everything heavy is imported inside the commands, so that help and refusals come at once.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ParamSpec

import typer

from passcal import cli_sweep
from passcal.cli_options import BAD_INPUT, DONE, FAILED, INTERRUPTED, Json, Quiet, Set, Sla
from passcal.terminal import console, tell_if_cold, waiting

if TYPE_CHECKING:
    from passcal.config import Asked
    from passcal.report import Report
    from passcal.trials import Point

__all__ = ["app", "main"]

P = ParamSpec("P")

app = typer.Typer(
    name="passcal",
    help="Latency distributions of LLM serving, from the engine's own pass calendar.",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write one line of CSV; - for standard output.")]


def main() -> None:
    """The console script."""
    app()


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """Turn errors into one line on standard error and an exit code."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        from passcal.errors import Diverged, NotConverged, Stalled

        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            typer.echo("interrupted", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except (Diverged, NotConverged, Stalled) as error:
            typer.echo(f"passcal: {error}", err=True)
            raise typer.Exit(FAILED) from None
        except ValueError as error:
            if type(error).__module__ != "passcal.errors":
                raise
            typer.echo(f"passcal: {error}", err=True)
            raise typer.Exit(BAD_INPUT) from None

    return run


@app.callback(invoke_without_command=True)
def options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and leave.", is_eager=True)] = False,
) -> None:
    """Latency distributions of LLM serving, from the engine's own pass calendar."""
    if version:
        from passcal import __version__

        typer.echo(f"passcal {__version__}")
        raise typer.Exit(DONE)


@app.command()
@guarded
def evaluate(
    file: Annotated[
        Path, typer.Argument(help="YAML with the sections workload, engine, deployment, timing, evaluate.")
    ],
    settings: Set = None,
    json: Json = False,
    csv: Csv = None,
    quiet: Quiet = False,
) -> None:
    """Predict the latencies of one deployment."""
    from passcal.config import load_config, read_config
    from passcal.render import check_outputs

    check_outputs(json, csv)
    with waiting("reading", quiet):
        asked = read_config(load_config(file, settings or ()), file.parent)
    deliver(computed(asked, quiet), asked, json, csv, quiet)


@app.command()
@guarded
def replay(
    trace: Annotated[
        Path,
        typer.Argument(
            help="A trace: Azure, Mooncake, agent sessions, saved benchmark results or a plain table, also gzip."
        ),
    ],
    config: Annotated[Path, typer.Option("--config", help="YAML with the sections engine, deployment and timing.")],
    requests_csv: Annotated[Path | None, typer.Option(help="Write one line a request to this file.")] = None,
    requests_parquet: Annotated[Path | None, typer.Option(help="The same as Parquet; needs passcal[parquet].")] = None,
    max_concurrency: Annotated[int | None, typer.Option(help="Requests that the client has under way at most.")] = None,
    time_scale: Annotated[float | None, typer.Option(help="Multiply all times: 0.5 doubles the rate.")] = None,
    start_ms: Annotated[float | None, typer.Option(help="Send only what the trace sends from here on.")] = None,
    end_ms: Annotated[float | None, typer.Option(help="Send only what the trace sends before this.")] = None,
    replicas: Annotated[int | None, typer.Option(help="Workers behind one router.")] = None,
    routing: Annotated[str | None, typer.Option(help="round_robin, least_loaded or prefix_affinity.")] = None,
    format: Annotated[str | None, typer.Option(help="auto, azure, mooncake, table, agent or results.")] = None,
    spread: Annotated[str | None, typer.Option(help="none, or uniform: deal rows of a tick out evenly.")] = None,
    settings: Set = None,
    json: Json = False,
    csv: Csv = None,
    quiet: Quiet = False,
) -> None:
    """Send the requests of a trace through one deployment."""
    from passcal.config import load_config, read_config, with_trace
    from passcal.files import check_frame_target, write_frame
    from passcal.render import check_outputs

    check_outputs(json, csv)
    wanted = (requests_csv, "--requests-csv", False), (requests_parquet, "--requests-parquet", True)
    for path, option, parquet in wanted:
        check_frame_target(path, option, parquet)
    deployed = {"deployment.replicas": replicas, "deployment.routing": routing}
    settings = [*(settings or ()), *(f"{name}={value}" for name, value in deployed.items() if value is not None)]
    clock = {"time_scale": time_scale, "start_ms": start_ms, "end_ms": end_ms}
    sections, notes = with_trace(
        load_config(config, settings), trace, format=format, spread=spread, max_concurrency=max_concurrency, **clock
    )
    with waiting(f"reading {trace.name}", quiet):
        asked = read_config(sections, Path())
    report = computed(asked, quiet)
    for path, option, parquet in wanted:
        if path is not None:
            with waiting(f"writing {path.name}", quiet):
                write_frame(path, option, report.requests(), parquet)
    deliver(report, asked, json, csv, quiet, notes)


@app.command()
@guarded
def capacity(
    file: Annotated[Path, typer.Argument(help="YAML with the sections workload, engine, deployment, timing, sla.")],
    sla: Sla = None,
    rate: Annotated[bool | None, typer.Option("--rate/--clients", help="By default what the workload is.")] = None,
    most: Annotated[float | None, typer.Option(help="The largest load asked about; 1024 clients by default.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="Relative step between rates, 0.01 by default.")] = None,
    checks: Annotated[int | None, typer.Option(help="Loads tried only to see whether the answer is monotone.")] = None,
    settings: Set = None,
    json: Json = False,
    csv: Annotated[
        str | None, typer.Option("--csv", metavar="FILE", help="Write one line a load tried; - as --json.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Find the most clients, or the largest rate, that keep service levels; exit 1 if no load does."""
    from passcal.capacity import capacity as searched
    from passcal.config import load_config, read_config
    from passcal.render import check_outputs
    from passcal.render_capacity import deliver_capacity, deliver_points, glance

    check_outputs(json, csv)
    sections = load_config(file, settings or ())
    asked = read_config({**sections, "sla": list(sla)} if sla else sections, file.parent)
    tell_if_cold(quiet)
    done: dict[float, Point] = {}
    try:
        with waiting("searching", quiet) as say:

            def tell(point: "Point") -> None:
                done[point.load] = point
                say(f"{len(done)} loads tried; {glance(point)}")

            found = searched(
                asked.deployment,
                asked.timing,
                sla=asked.sla,
                workload=asked.workload,
                unit=None if rate is None else "rate" if rate else "clients",
                most=most,
                tolerance=tolerance,
                checks=checks,
                stop=asked.stop,
                start=asked.start,
                phases=asked.phases,
                on_point=tell,
            )
    except KeyboardInterrupt:
        deliver_points([*done.values()], asked.sla, console(), json, csv)
        raise
    deliver_capacity(found, console(), json, csv, quiet)
    if not found.load:
        raise typer.Exit(FAILED)


app.command()(guarded(cli_sweep.screen))
app.command()(guarded(cli_sweep.sweep))


@app.command()
@guarded
def gate(
    files: Annotated[list[Path] | None, typer.Argument(help="Scenarios; by default all of the checkout.")] = None,
    root: Annotated[Path | None, typer.Option(help="The checkout with tools/oracle; by default found upward.")] = None,
    quiet: Quiet = False,
) -> None:
    """Compare passcal with the oracle, token by token; exit 1 if they disagree anywhere."""
    from passcal.gate import checkout_root, run, scenario_files
    from passcal.render import print_gate

    top = checkout_root(root or Path.cwd())
    scenarios = files or scenario_files(top)
    tell_if_cold(quiet)
    outcomes = []
    with waiting(f"{len(scenarios)} scenarios", quiet) as say:
        for outcome in run(scenarios, top):
            outcomes.append(outcome)
            say(f"{len(outcomes)} of {len(scenarios)} scenarios")
    print_gate(outcomes, console())
    if any(outcome.verdict == "differs" for outcome in outcomes):
        raise typer.Exit(FAILED)


def computed(asked: "Asked", quiet: bool) -> "Report":
    """The report, with signs of life while it is made."""
    from passcal.evaluate import evaluate as evaluated
    from passcal.progress import listening

    tell_if_cold(quiet)
    with (
        waiting("evaluating", quiet) as say,
        listening(lambda done, of: say(f"evaluating: {done:,} of {of:,} requests")),
    ):
        return evaluated(
            asked.workload, asked.deployment, asked.timing, stop=asked.stop, start=asked.start, phases=asked.phases
        )


def deliver(
    report: "Report", asked: "Asked", json: bool, csv: str | None, quiet: bool, notes: tuple[str, ...] = ()
) -> None:
    """Print the report and whether it keeps its service levels, and write the CSV file if one is asked for."""
    from passcal.files import write_whole
    from passcal.meets import verdicts
    from passcal.render import as_csv, as_json, print_report

    notes = (*notes, *verdicts(report, asked.sla))
    if csv is not None and csv != "-":
        line = as_csv(report)
        write_whole(Path(csv), "--csv", lambda out: out.write(line))
    if json:
        typer.echo(as_json(report, notes), nl=False)
    elif csv == "-":
        typer.echo(as_csv(report), nl=False)
        for note in () if quiet else (*report.notes, *notes):
            typer.echo(f"note: {note}", err=True)
    else:
        print_report(report, console(), notes)


if __name__ == "__main__":
    main()
