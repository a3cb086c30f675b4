"""A deployment as stages: what each stage's engine adds to the tables, and what is not modelled among several."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from passcal.core.tables import NOBODY
from passcal.core.tandem_tables import (
    HOLD_BLOCKS,
    HOLD_NONE,
    HOLD_SEAT,
)
from passcal.errors import SpecError, Unsupported
from passcal.fitting import Fitting, Lengths
from passcal.fitting_sglang import fit_sglang
from passcal.fitting_trtllm import fit_trtllm
from passcal.fitting_vllm import fit_vllm
from passcal.spec.deployment import Aggregated, Deployment, Disaggregated
from passcal.spec.engine import EngineSpec, Sglang, Trtllm, Vllm
from passcal.timing.base import TimingModel

__all__ = ["FITTINGS", "Pool", "Timings", "encoder_ms", "pools", "timings_of"]

# What each engine adds to the tables; the flag asks for KV by content.
FITTINGS: dict[type, Callable[[Any, Lengths, bool], Fitting]] = {
    Vllm: fit_vllm,
    Sglang: fit_sglang,
    Trtllm: fit_trtllm,
}
Timings = TimingModel | Mapping[str, TimingModel]
HOLDS = {"none": HOLD_NONE, "blocks": HOLD_BLOCKS, "blocks_and_seat": HOLD_SEAT}
RESERVED = 512  # tokens, by default
ALONE = {
    "launch": None,
    "host_loop": None,
    "prefill_decode_interval": 0,
}  # options of an engine that stands alone, and what leaves them out


@dataclass(frozen=True)
class Pool:
    """A stage: its engine's part of the tables, how many workers, behind which router, and what its passes cost."""

    fit: Fitting
    workers: int
    routing: str
    timing: TimingModel

    @property
    def ranks(self) -> int:
        """Schedulers of all workers."""
        return self.workers * self.fit.width


def pools(deployment: Deployment, timing: Timings, lengths: Lengths, identities: bool) -> tuple[Pool, ...]:
    """The stages of a deployment, in the order in which requests pass them.

    Raises:
        Unsupported: a wish that is not modelled.
        SpecError: lengths that an engine can never run, or a stage without a timing model.
    """
    models = timings_of(deployment, timing)
    found = encoder_pool(deployment, lengths, models[0])
    if isinstance(deployment, Aggregated):
        if found:
            check_alone("engine", deployment.engine)
        fit = FITTINGS[type(deployment.engine)](deployment.engine, lengths, identities)
        return (*found, Pool(fit, deployment.replicas, deployment.routing, models[-1]))
    check_apart(deployment, lengths)
    prefill = fit_prefill(deployment, lengths, identities)
    decode = fit_decode(deployment, lengths, identities)
    return (
        *found,
        Pool(prefill, deployment.prefill_workers, deployment.routing, models[-2]),
        Pool(decode, deployment.decode_workers, deployment.routing, models[-1]),
    )


def encoder_pool(deployment: Deployment, lengths: Lengths, timing: TimingModel) -> tuple[Pool, ...]:
    """The stage in front, to which a request's vision tokens are a prompt with one output; none where there is no such engine.

    Raises:
        SpecError: an encoder without anything to do, or vision tokens without an encoder.
    """
    encoder, seen = deployment.encoder, lengths.vision > 0
    if encoder is None and seen.any():
        raise SpecError(
            f"vision_tokens={int(lengths.vision.max())}: nothing makes them; give the deployment an encoder, or leave them out (isl counts them)"
        )
    if encoder is None:
        return ()
    if not seen.any():
        raise SpecError("encoder: no request has vision_tokens, so it would do nothing; give some, or leave it out")
    if encoder.engine is None:
        return ()
    check_alone("encoder.engine", encoder.engine)
    images = only(lengths, seen)
    once, nobody = np.ones_like(images.osl), np.full_like(images.group, NOBODY)
    images = replace(images, isl=images.vision, osl=once, most=once, group=nobody, shared=nobody * 0, pinned=nobody)
    fit = FITTINGS[type(encoder.engine)](encoder.engine, images, False)
    return (Pool(fit, encoder.workers, encoder.routing, timing),)


def encoder_ms(deployment: Deployment) -> float:
    """What an encoder adds of which nothing but a time is known."""
    encoder = deployment.encoder
    return encoder.latency_ms if encoder is not None and encoder.latency_ms is not None else 0.0


def timings_of(deployment: Deployment, timing: Timings) -> tuple[TimingModel, ...]:
    """The timing model of each stage: one for all, or one by name.

    Raises:
        SpecError: a stage without one, a name that is no stage, or something that prices no pass.
    """
    apart = isinstance(deployment, Disaggregated)
    names: tuple[str, ...] = ("prefill", "decode") if apart else ("engine",)
    if deployment.encoder is not None and deployment.encoder.engine is not None:
        names = ("encoder", *names)
    given = timing if isinstance(timing, Mapping) else dict.fromkeys(names, timing)
    if set(given) != set(names):
        wanted = "one model" if len(names) == 1 else f"one model, or a mapping of {', '.join(names)}"
        raise SpecError(f"timing={list(given)!r:.60}: must be {wanted}; correct the keys")
    for model in given.values():
        if not callable(getattr(model, "pass_ms", None)):
            raise SpecError(
                f"timing={type(model).__name__}: must have pass_ms(shape) -> ms; use pc.LinearTiming or pc.PhaseTiming"
            )
    return tuple(given[name] for name in names)


def check_apart(deployment: Disaggregated, lengths: Lengths) -> None:
    """Refuse what is not modelled with prefill and decode apart."""
    for side in ("prefill", "decode"):
        check_alone(side, getattr(deployment, side))
    if (lengths.pinned >= 0).any():
        raise Unsupported("data_parallel_rank: is not modelled with prefill and decode apart; leave it out")
    decode = deployment.decode
    if isinstance(decode, Sglang) and deployment.first_token == "decode_pass":
        raise Unsupported("first_token='decode_pass': is not modelled with decode by sglang; choose prefill or decode")
    if not isinstance(decode, Sglang) and deployment.num_reserved_decode_tokens != RESERVED:
        raise Unsupported(
            f"num_reserved_decode_tokens={deployment.num_reserved_decode_tokens}: only sglang reserves so; leave it unset"
        )
    if isinstance(decode, Trtllm) and decode.capacity_policy == "STATIC_BATCH":
        raise Unsupported("decode.capacity_policy='STATIC_BATCH': is not modelled apart; choose another policy")


def check_alone(name: str, engine: EngineSpec) -> None:
    """Refuse options that are modelled for an engine that stands alone only."""
    for option, neutral in ALONE.items():
        if getattr(engine, option, neutral) != neutral:
            raise Unsupported(f"{name}.{option}: is not modelled among several stages; leave it unset")


def fit_prefill(deployment: Disaggregated, lengths: Lengths, identities: bool) -> Fitting:
    """The prefill pool, which makes one output of each request (D1)."""
    once = np.ones_like(lengths.osl)
    fit = FITTINGS[type(deployment.prefill)](deployment.prefill, replace(lengths, osl=once, most=once), identities)
    if deployment.prefill_inflight_cap is not None:
        fit.rank["max_seats"] = np.minimum(fit.rank["max_seats"], deployment.prefill_inflight_cap)
    fit.rank["holding"] = HOLDS[deployment.hold]
    fit.rank["ahead"] = fit.rank["lookahead"] & (fit.rank["memory"] | (fit.rank["holding"] == HOLD_SEAT))
    fit.rank["sending"] = deployment.link is not None and deployment.link.transfer_start == "each_chunk"
    return fit


def fit_decode(deployment: Disaggregated, lengths: Lengths, identities: bool) -> Fitting:
    """The decode pool, to which those go that have something left to make there (D1); outputs of all requests, as it lets them happen.

    Raises:
        SpecError: a hand-off that takes more memory than a decode rank has (D6).
    """
    goes = (lengths.osl > 1) | (deployment.first_token != "prefill")
    over = only(lengths, goes) if goes.any() else replace(only(lengths, ~goes), isl=np.ones(len(goes), np.int64))
    fit = FITTINGS[type(deployment.decode)](deployment.decode, over, identities)
    osl, most = np.ones_like(lengths.osl), np.ones_like(lengths.most)
    if goes.any():
        osl[goes], most[goes] = fit.osl, fit.most
        check_reserve(deployment, fit, over)
    fit.rank["attaching"] = 1
    fit.rank["ahead"] = fit.rank["lookahead"] & fit.rank["memory"]
    return replace(fit, osl=osl, most=most, room=fit.room + 64)


def only(lengths: Lengths, kept: Any) -> Lengths:
    """These requests, without what is cached for them elsewhere."""
    names = ("isl", "osl", "group", "shared", "pinned", "most", "vision")
    few = {name: getattr(lengths, name)[kept] for name in names}
    return replace(lengths, **few, prefix=np.zeros_like(few["isl"]))


def check_reserve(deployment: Disaggregated, fit: Fitting, over: Lengths) -> None:
    """A hand-off that a decode rank could never take would wait for ever (D6)."""
    rank, engine = fit.rank[0], deployment.decode
    if not rank["memory"]:
        return
    if isinstance(engine, Sglang):
        page = engine.page_size
        need, unit = -(-(over.isl + deployment.num_reserved_decode_tokens) // page) * page, "tokens"
    else:
        whole = isinstance(engine, Trtllm) and engine.capacity_policy != "MAX_UTILIZATION"
        need, unit = -(-(over.isl + (fit.most if whole else 1)) // int(rank["block_size"])), "blocks"
    at = int(np.argmax(need))
    if need[at] > rank["usable"]:
        raise SpecError(
            f"decode: a hand-off of {int(over.isl[at])} tokens takes {int(need[at])} {unit} of {int(rank['usable'])} (D6) and would wait for ever; "
            "give more KV"
        )
