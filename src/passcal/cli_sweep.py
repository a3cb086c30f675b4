"""The commands that take many candidates: `passcal screen` and `passcal sweep`."""

from pathlib import Path
from typing import Annotated, Any

import typer

from passcal.cli_options import FAILED, Json, Quiet, Set, Sla
from passcal.terminal import console, tell_if_cold, waiting

__all__ = ["screen", "sweep"]

Config = Annotated[Path, typer.Argument(help="YAML with the sections workload, engine, timing, sla, grid.")]
Candidates = Annotated[
    Path | None, typer.Option("--candidates", metavar="FILE", help="A CSV or Parquet file, instead of a grid.")
]
Csv = Annotated[str | None, typer.Option("--csv", metavar="FILE", help="Write one line a row; - for standard output.")]
Parquet = Annotated[
    Path | None, typer.Option("--parquet", metavar="FILE", help="The same as Parquet; needs passcal[parquet].")
]


def screen(
    file: Config,
    candidates: Candidates = None,
    steps: Annotated[
        str | None,
        typer.Option(
            help="How far each is gone through before its closed form is used: few, or a number; 60000 is exact for 98 in 100."
        ),
    ] = None,
    settings: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
    quiet: Quiet = False,
) -> None:
    """Price every candidate by the closed form."""
    from passcal.config import load_config
    from passcal.errors import SpecError
    from passcal.points import is_pair
    from passcal.render_sweep import Outputs, deliver_screen
    from passcal.screening.screen import screen as screened
    from passcal.sweep_config import read_many
    from passcal.timing.base import TimingModel

    outputs = Outputs(json, csv, parquet, quiet)
    outputs.check()
    asked = read_many(load_config(file, settings or ()), file.parent, candidates)
    if asked.sla:
        raise SpecError("sla: a screen keeps every candidate; ask passcal sweep, or remove this section")
    if not isinstance(asked.timing, TimingModel) and not is_pair(asked.timing):
        raise SpecError("timing.models: a screen has one timing model; ask passcal sweep, or give one")
    tell_if_cold(quiet)
    with waiting(f"screening {len(asked.candidates):,} candidates", quiet):
        found = screened(asked.candidates, asked.workload, asked.timing, steps=number_or_text(steps))
    deliver_screen(found, asked.candidates, outputs, console())


def number_or_text(text: str | None) -> Any:
    """What a screen takes."""
    return int(text) if text is not None and text.isdecimal() else text


def sweep(
    file: Config,
    candidates: Candidates = None,
    sla: Sla = None,
    objective: Annotated[
        str, typer.Option(help="throughput, per_gpu, per_user, fewest_gpus or goodput.")
    ] = "throughput",
    top: Annotated[int, typer.Option(help="How many are wanted; 0: all that keep the service levels.")] = 10,
    executor: Annotated[str | None, typer.Option(help="serial or threads.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep what is done here, and go on from there.")
    ] = None,
    settings: Set = None,
    json: Json = False,
    csv: Csv = None,
    parquet: Parquet = None,
    quiet: Quiet = False,
) -> None:
    """Find the best candidates that keep service levels; exit 1 if none does."""
    from passcal.config import load_config
    from passcal.progress import listening, pace
    from passcal.render_sweep import Outputs, deliver_sweep
    from passcal.sweep import sweep as swept
    from passcal.sweep_config import read_many

    outputs = Outputs(json, csv, parquet, quiet)
    outputs.check()
    sections = load_config(file, settings or ())
    asked = read_many({**sections, "sla": list(sla)} if sla else sections, file.parent, candidates)
    tell_if_cold(quiet)
    text = pace()
    with (
        waiting(f"screening {len(asked.candidates):,} candidates", quiet) as say,
        listening(lambda done, of: say(text(done, of))),
    ):
        found = swept(
            asked.candidates,
            asked.workload,
            asked.timing,
            sla=asked.sla,
            objective=objective,  # type: ignore[arg-type]  # checked there
            top=top or None,
            executor=executor,
            checkpoint=checkpoint,
        )
    deliver_sweep(found, asked.candidates, outputs, console())
    if found.empty:
        raise typer.Exit(FAILED)
