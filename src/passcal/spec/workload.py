"""Lengths, arrivals and the arrival plane: what clients ask for and when schedulers see it."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pydantic import field_validator, model_validator

from passcal.spec.base import Count, Duration, Spec
from passcal.spec.clock import on_clock
from passcal.spec.lengths import Lengths, lengths_or_rows
from passcal.spec.rows import ASKED, REPLAY_COLUMNS, Rows, replay_columns, shape_rows

if TYPE_CHECKING:
    from passcal.spec.open_loop import OpenLoop
    from passcal.spec.sessions import Sessions

__all__ = ["ClosedLoop", "Replay", "Workload"]

ARRIVALS = np.dtype([("dispatch_ms", "f8"), *((name, "i4") for name in ASKED)])  # a long trace has millions


class Workload(Spec):
    """Who sends what. Make one with `Workload.closed_loop`, `.open_loop`, `.replay` or `.sessions`.

    Attributes:
        turnaround_ms: from dispatch to the scheduler's door; a client's think time belongs here too.
        ingest_us_per_token: what each prompt token adds on that way: `visible = dispatch + turnaround + isl * ingest`.
    """

    turnaround_ms: Duration = 0.0
    ingest_us_per_token: Duration = 0.0

    @staticmethod
    def closed_loop(
        isl: int | Lengths | None = None,
        osl: int | Lengths | None = None,
        concurrency: int = 1,
        *,
        prefix: int = 0,
        shapes: Iterable[Sequence[int] | Mapping[str, Any]] | Lengths | None = None,
        correlation: float = 0.0,
        requests: int | None = None,
        turnaround_ms: float = 0.0,
        ingest_us_per_token: float = 0.0,
        stagger_ms: float = 0.0,
    ) -> "ClosedLoop":
        """`concurrency` clients, each sending its next request when its last one is done.

        Args:
            isl: prompt tokens, or a law of them (`Lengths`).
            osl: output tokens, or a law of them.
            concurrency: clients.
            prefix: prompt tokens that are cached already, below isl.
            shapes: instead of isl and osl: rows (isl, osl) or (isl, prefix, osl), or mappings with `isl`, `osl` and optionally `prefix`,
                `prefix_group`, `prefix_len`, `data_parallel_rank`, `max_tokens`, `vision_tokens` (see `replay`), dealt in dispatch order and repeated when
                they run out; or `Lengths.joint(rows)`.
            correlation: of isl and osl, where both follow a law.
            requests: how many are sent in all; None: clients go on for ever and the steady state is asked for.
            turnaround_ms: from dispatch to the scheduler's door.
            ingest_us_per_token: what each prompt token adds on that way.
            stagger_ms: client k sends its first request at k * stagger_ms.

        Raises:
            SpecError: a length, count or duration out of range.
        """
        return ClosedLoop(
            shapes=lengths_or_rows("closed_loop", isl, osl, prefix, shapes, correlation),
            concurrency=concurrency,
            requests=requests,
            turnaround_ms=turnaround_ms,
            ingest_us_per_token=ingest_us_per_token,
            stagger_ms=stagger_ms,
        )

    @staticmethod
    def open_loop(
        isl: int | Lengths | None = None,
        osl: int | Lengths | None = None,
        rate_per_s: float | None = None,
        *,
        prefix: int = 0,
        shapes: Iterable[Sequence[int] | Mapping[str, Any]] | Lengths | None = None,
        correlation: float = 0.0,
        arrivals: str | None = None,
        cv: float | None = None,
        gaps_ms: Iterable[float] | None = None,
        horizon_requests: int | None = None,
        turnaround_ms: float = 0.0,
        ingest_us_per_token: float = 0.0,
    ) -> "OpenLoop":
        """Requests at a rate, whatever became of those before; the steady state is asked for.

        Args:
            isl, osl, prefix, shapes, correlation: as in `closed_loop`.
            rate_per_s: requests a second in the mean.
            arrivals: `poisson` (default), `constant`, or `gamma`: independent gaps with the coefficient of variation `cv`.
            cv: of the gaps; 1 is Poisson, more is burstier.
            gaps_ms: instead: gaps between arrivals as observed, in their order, repeated when they run out; scaled to `rate_per_s` if that
                is given too.
            horizon_requests: send so many from an empty system and no more: the finite run is answered, also above capacity.
            turnaround_ms, ingest_us_per_token: as in `closed_loop`.

        Raises:
            SpecError: a length, count, rate or duration out of range.
        """
        from passcal.spec.open_loop import OpenLoop

        given: dict[str, Any] = {
            "shapes": lengths_or_rows("open_loop", isl, osl, prefix, shapes, correlation),
            "rate_per_s": rate_per_s,
            "arrivals": arrivals,
            "cv": cv,
            "gaps_ms": gaps_ms,
            "horizon_requests": horizon_requests,
            "turnaround_ms": turnaround_ms,
            "ingest_us_per_token": ingest_us_per_token,
        }
        return OpenLoop(**given)

    @staticmethod
    def replay(
        rows: Any,
        *,
        max_concurrency: int | None = None,
        time_scale: float = 1.0,
        start_ms: float | None = None,
        end_ms: float | None = None,
        turnaround_ms: float = 0.0,
        ingest_us_per_token: float = 0.0,
    ) -> "Replay":
        """Requests sent at given times.

        Args:
            rows: a pandas frame or mapping of columns `dispatch_ms`, `isl`, `osl` and optionally `prefix`, `prefix_group` and `prefix_len`
                (requests of a group share their first `prefix_len` tokens, of the shorter one), `data_parallel_rank` (the rank of its worker
                that a request is pinned to), `max_tokens` (outputs that the engine reckons with; above osl a stop token ends the request, which
                no plan foresees), or an iterable of rows (dispatch_ms, isl, osl) or (dispatch_ms, isl, prefix, osl). Unsorted rows are
                sorted, with a note.
            max_concurrency: requests that the client has under way at most: one whose time has come waits there, first come first served,
                and is dispatched when another is done; None: all are sent at their times.
            time_scale: all times are multiplied by it: 0.5 sends twice as many a second.
            start_ms, end_ms: only rows dispatched from `start_ms` on and before `end_ms`, by the trace's own clock, are sent.
            turnaround_ms: from dispatch to the scheduler's door.
            ingest_us_per_token: what each prompt token adds on that way.

        Raises:
            SpecError: an empty input or a row out of range, named by its position.
        """
        whole = Replay(
            rows=rows,
            max_concurrency=max_concurrency,
            turnaround_ms=turnaround_ms,
            ingest_us_per_token=ingest_us_per_token,
        )
        part, notes = on_clock(whole.rows, time_scale, start_ms, end_ms)
        return whole.model_copy(update={"rows": part, "notes": (*whole.notes, *notes)})

    @staticmethod
    def sessions(
        lanes: Any, *, stagger_ms: float = 0.0, turnaround_ms: float = 0.0, ingest_us_per_token: float = 0.0
    ) -> "Sessions":
        """Sessions of turns, each turn sent when the one before is done and its think time is over; arrivals are an output.

        Args:
            lanes: a list of sessions, each a list of `pc.Turn` (or mappings of its fields); or, for large inputs, a pandas frame or mapping
                of columns `session`, `isl`, `osl` and optionally `turn` (absent: rows of a session in their order), `call` (0: the turn's
                own request, higher ones go out with it), `think_ms`, and what a replay may have.
            stagger_ms: session k starts at k * stagger_ms, and sends its first turn that turn's think time later.
            turnaround_ms: from dispatch to the scheduler's door.
            ingest_us_per_token: what each prompt token adds on that way.

        Raises:
            SpecError: an empty input or a turn out of range, named by its position.
        """
        from passcal.spec.sessions import Sessions

        return Sessions(
            rows=lanes, stagger_ms=stagger_ms, turnaround_ms=turnaround_ms, ingest_us_per_token=ingest_us_per_token
        )


class ClosedLoop(Workload):
    """Clients in a closed loop; see `Workload.closed_loop`. `shapes` holds rows of `rows.ASKED`, -1 for no group or no rank, or a law of them."""

    shapes: Rows | Lengths
    concurrency: Count
    requests: Count | None = None
    stagger_ms: Duration = 0.0

    @field_validator("shapes", mode="before")
    @classmethod
    def _shapes(cls, shapes: Any) -> Any:
        return shapes if isinstance(shapes, Lengths) else shape_rows(shapes)


class Replay(Workload):
    """Requests at given times; see `Workload.replay`. `rows` is a read-only structured array sorted by dispatch, in its window."""

    Columns: ClassVar[tuple[str, ...]] = REPLAY_COLUMNS
    rows: Any
    max_concurrency: Count | None = None
    notes: tuple[str, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _rows(cls, values: Any) -> Any:
        columns, notes = replay_columns(values["rows"])
        dispatch = columns["dispatch_ms"]
        order = np.argsort(dispatch, kind="stable")
        moved = int((order != np.arange(len(order))).sum())
        if moved:
            notes = (*notes, f"{moved} rows were out of order and have been sorted by dispatch_ms")
        table = np.empty(len(dispatch), ARRIVALS)
        for name in ARRIVALS.names or ():
            table[name] = columns[name][order]
        table.flags.writeable = False
        return {**values, "rows": table, "notes": (*values.get("notes", ()), *notes)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Replay) and self.scalars == other.scalars and np.array_equal(self.rows, other.rows)

    def __hash__(self) -> int:
        return hash((self.scalars, self.rows.tobytes()))

    @property
    def scalars(self) -> tuple[Any, ...]:
        """(turnaround_ms, ingest_us_per_token, max_concurrency)."""
        return self.turnaround_ms, self.ingest_us_per_token, self.max_concurrency
