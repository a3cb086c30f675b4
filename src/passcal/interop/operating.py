"""A row of an aiconfigurator summary as what passcal evaluates: an engine, its clients and the price of its passes."""

from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

from passcal.errors import SpecError, Unsupported
from passcal.interop.stated import check_stated
from passcal.points import Point
from passcal.spec.deployment import Aggregated
from passcal.spec.engine import engine
from passcal.spec.workload import Workload
from passcal.timing.aiconfigurator import AiconfiguratorTiming, database_engine
from passcal.timing.base import TimingModel
from passcal.timing.linear import LinearTiming
from passcal.timing.scaled import scaled_to

__all__ = ["OPTIONAL", "SPLIT", "Operating", "Timings", "aggregated", "composed"]

Row = Mapping[str, Any]
Timings = TimingModel | Callable[[Row], TimingModel] | None
SPLIT = ("tp", "pp", "dp", "cp")  # columns that say how a model is split over GPUs
OPTIONAL = ("moe_tp", "moe_ep", "gemm", "kvcache", "fmha", "moe", "comm")  # columns that may have no value


class Operating(NamedTuple):
    """What one row stands for.

    Attributes:
        backend, options: the engine of one rank.
        shape: (isl, prefix, osl).
        clients: how many send, each its next request when the last one is answered.
        timing: the price of a pass.
        workers: ranks that the clients share.
        decode_ms: a token's time where others decode; None: these ranks do.
        decoded: tokens that others decode, during which a client is away.
    """

    backend: str
    options: tuple[tuple[str, Any], ...]
    shape: tuple[int, int, int]
    clients: int
    timing: TimingModel
    workers: int = 1
    decode_ms: float | None = None
    decoded: int = 0

    @property
    def away_ms(self) -> float:
        """How long a client stays away between two requests."""
        return (self.decode_ms or 0.0) * self.decoded

    @property
    def priced_alike(self) -> tuple[Any, ...]:
        """Equal for what one call of `screen` can take."""
        return self.backend, self.timing if isinstance(self.timing, Hashable) else id(self.timing)

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for what is evaluated alike."""
        return (*self.priced_alike, repr(self.options), self.shape, self.clients, *self[5:])

    @property
    def candidate(self) -> dict[str, Any]:
        """A row of what `screen` reads."""
        isl, prefix, osl = self.shape
        return {
            "backend": self.backend,
            **dict(self.options),
            "isl": isl,
            "prefix": prefix,
            "osl": osl,
            "concurrency": self.clients,
        }

    def point(self) -> Point:
        """What `evaluate` takes."""
        isl, prefix, osl = self.shape
        workload = Workload.closed_loop(
            isl=isl, prefix=prefix, osl=osl, concurrency=self.clients, turnaround_ms=self.away_ms
        )
        return Point(
            Aggregated(engine(self.backend, **dict(self.options)), replicas=self.workers), workload, self.timing
        )


def aggregated(row: Row, timing: Timings, options: Row) -> Operating:
    """An aggregated row: `bs` clients in a closed loop on one rank, whose passes carry what the row's mixed step does.

    Ranks of attention data parallelism and micro-batches of a pipeline are alike, for the row as for the database, so one of them is evaluated.
    """
    isl, prefix, osl, bs = (int(row[name]) for name in ("isl", "prefix", "osl", "bs"))
    chunks = int(row["ctx_tokens"])
    said = budget(row["backend"], chunks, max(0, int(row["gen_tokens"])), bs) | dict(options)
    model = priced(row, timing, "")
    if timing is None and isinstance(model, AiconfiguratorTiming):
        check_stated(model, row)
    return Operating(row["backend"], tuple(said.items()), (isl, prefix, osl), bs, model)


def composed(row: Row, timing: Timings, options: Row) -> Operating:
    """A disaggregated row: its prefill pool in a closed loop whose clients are away while they decode, for `tpot` a token.

    That matches the rates of both pools: prompts queue where the prefill pool is the slower one. The decode pool has seats for every client, so nobody
    waits there. A full batch of prompts costs what the row's `(p)seq/s/worker` says (its `ttft` may be raised for queues already, A6);
    what smaller batches cost beside it, if there are any, is the timing's word.
    """
    isl, prefix, osl, bs = (int(row[name]) for name in ("isl", "prefix", "osl", "(p)bs"))
    ranks = int(row["(p)dp"]) * int(row["(p)pp"])
    rate = float(row["(p)seq/s/worker"])
    if not rate > 0:
        raise SpecError(f"column '(p)seq/s/worker': {rate:g}: must be above 0; drop the row")
    full_ms = 1000.0 * bs * ranks / rate
    model: TimingModel = LinearTiming(prefill=(full_ms,), decode=(0.0,))
    if bs > 1 or timing is not None:
        model = scaled_to(priced(row, timing, "(p)"), bs, isl - prefix, prefix, full_ms)
    said = budget(row["(p)backend"], bs * (isl - prefix), 0, bs) | dict(options)
    return Operating(
        row["(p)backend"],
        tuple(said.items()),
        (isl, prefix, 1),
        int(row["concurrency"]),
        model,
        workers=int(row["(p)workers"]) * ranks,
        decode_ms=float(row["tpot"]),
        decoded=osl - 1,
    )


def budget(backend: str, chunks: int, rows: int, seats: int) -> dict[str, Any]:
    """An engine whose pass has room for so many tokens of prompts and decode rows; what no row tells is the engine's default."""
    if backend == "vllm":
        return {"max_num_batched_tokens": chunks + rows, "max_num_seqs": seats}
    if backend == "sglang":
        return {
            "chunked_prefill_size": chunks,
            "max_prefill_tokens": max(16384, chunks),
            "max_running_requests": seats,
        }
    if backend == "trtllm":
        return {"max_num_tokens": chunks + rows, "max_batch_size": seats}
    raise SpecError(f"backend={backend!r:.40}: must be vllm, sglang or trtllm; drop the row")


def priced(row: Row, timing: Timings, side: str) -> TimingModel:
    """The caller's timing for this row, or that of the installed database."""
    if timing is None:
        return database_timing(row, side)
    model = timing(row) if callable(timing) else timing
    if not isinstance(model, TimingModel):
        raise SpecError(f"timing={model!r:.60}: must be a timing model; of a Roofline, call .timing()")
    return model


def database_timing(row: Row, side: str) -> AiconfiguratorTiming:
    """What the installed database has for the engine of a row; `side` marks the columns of a pool."""
    found = {name: row[side + name] for name in ("system", "backend", "version", *SPLIT, *OPTIONAL)}
    if int(found["cp"]) != 1:
        raise Unsupported(f"{side}cp={found['cp']}: context parallelism is not priced by itself; give timing=")
    tensor, pipeline, ranks = (int(found[name]) for name in SPLIT[:3])
    moe_tensor, moe_expert = (None if found[name] is None else int(found[name]) for name in OPTIONAL[:2])
    timing = AiconfiguratorTiming(
        row["model"],
        found["system"],
        found["backend"],
        str(found["version"]),
        tensor,
        pipeline,
        ranks,
        moe_tensor,
        moe_expert,
        **{name: found[name] for name in OPTIONAL[2:]},
    )
    database_engine(timing)
    return timing
