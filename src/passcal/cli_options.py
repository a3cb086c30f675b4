"""What the commands share: options that mean the same in each, and exit codes."""

from typing import Annotated

import typer

__all__ = ["BAD_INPUT", "DONE", "FAILED", "INTERRUPTED", "Json", "Quiet", "Set", "Sla"]

DONE, FAILED, BAD_INPUT, INTERRUPTED = 0, 1, 2, 130
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Override a key, as engine.max_num_seqs=64 or deployment.decode.engine.max_num_seqs=64.",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of the table.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no remarks on standard error.")]
Sla = Annotated[
    list[str] | None,
    typer.Option("--sla", help="As ttft:p99<=500, itl:mean<=20 or throughput_rps>=8; instead of those in the file."),
]
