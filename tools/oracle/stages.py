"""The deployment that a scenario describes: one stage, or two."""

from collections.abc import Callable
from dataclasses import replace
from math import inf

from tools.oracle.deployment import Deployment, Parts, deploy, refuse_interval
from tools.oracle.disaggregated import Disaggregated, Pool
from tools.oracle.errors import ScenarioError
from tools.oracle.events import Clock
from tools.oracle.requests import Lengths, Request
from tools.oracle.scenario import Scenario
from tools.oracle.tandem import Tandem


def build(asked: Scenario, clock: Clock, tell: Callable[[Request], None], parts: Parts) -> Deployment | Tandem:
    """Build it, or refuse it; `tell` hears of requests that have their last token."""
    lengths, apart = list(asked.workload.lengths()), asked.disaggregated
    if apart is None:
        pool = Pool(asked.backend, asked.engine, asked.timing, asked.replicas)
        return deploy(pool, asked.routing, lengths, clock, tell, parts)
    for engine in (asked.engine, apart.decode.engine):
        refuse_interval(engine)
    refuse_pins(lengths)
    prefill = Pool(asked.backend, asked.engine, asked.timing, apart.prefill_workers)
    alone = [replace(each, osl=1, max_tokens=None) for each in lengths]
    going = [replace(each, prefix=0) for each in lengths if each.osl > 1 or apart.first_token != "prefill"]
    pools = (
        deploy(prefill, apart.routing, alone, clock, tell, parts),
        deploy(apart.decode, apart.routing, going, clock, tell, parts),
    )
    fit(pools, apart, going)
    return Tandem(apart, pools, clock, tell)


def fit(pools: tuple[Deployment, Deployment], apart: Disaggregated, going: list[Lengths]) -> None:
    """Tell the schedulers of two stages what is asked of them, and number the engines through."""
    sources, targets = ([rank for worker in pool.workers for rank in worker.ranks] for pool in pools)
    for scheduler in (*sources, *targets):
        if scheduler.host_times is not None:
            raise ScenarioError("engine: launch and host_loop are not modelled where prefill and decode lie apart")
    for scheduler in sources:
        scheduler.seat_cap = inf if apart.prefill_inflight_cap is None else apart.prefill_inflight_cap
    for scheduler in targets:
        scheduler.num_reserved_decode_tokens = apart.num_reserved_decode_tokens
    for each in going:
        targets[0].refuse_hand_off(each)
    for worker in pools[1].workers:
        worker.first += len(sources)


def refuse_pins(lengths: list[Lengths]) -> None:
    """A rank of which stage?"""
    if any(each.data_parallel_rank is not None for each in lengths):
        raise ScenarioError("data_parallel_rank is not modelled where prefill and decode lie apart")
