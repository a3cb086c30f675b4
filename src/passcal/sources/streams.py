"""Deterministic streams: strata in a shuffled order, which are as random as traffic is, and closer to its law than a draw of it.

Every value of a law is one of `count` equal strata, at a place of its own within it, so that whatever is asked for, its share is right and its tail
is not cut off. Strata are renewed with `count`. The order is a shuffle by a counter-based generator: an order of low discrepancy would
spread neighbours out, and queues live on what stands together.
"""

from typing import Any

import numpy as np

__all__ = [
    "ARRIVALS",
    "ISL",
    "ORDER",
    "OSL",
    "attainable",
    "gamma_levels",
    "generator",
    "paired",
    "strata",
    "unit_gaps",
]

ISL, OSL, ORDER, ARRIVALS = 1, 2, 3, 4  # streams that share nothing
BLOCK = 64  # gaps; about as many requests as a queue under load remembers
NODES = 2048  # of a quantile function between which it is interpolated


def generator(stream: int) -> np.random.Generator:
    """A stream's own generator, the same at every call."""
    return np.random.Generator(np.random.Philox(key=[stream, 0x70617373]))


def strata(count: int, rng: np.random.Generator) -> Any:
    """A level in each of `count` equal parts of (0, 1), ascending."""
    return (np.arange(count) + rng.uniform(1e-6, 1 - 1e-6, count)) / count


def unit_gaps(count: int, cv: float) -> Any:
    """`count` gaps of mean 1 exactly: independent gamma of this coefficient of variation to the eye; 0 is constant, 1 exponential.

    Single gaps are strata, and so are sums of successive `BLOCK`: what a gamma's gaps share out is independent of their sum, so each block is
    scaled to its own.
    """
    if cv == 0:
        return np.ones(count)
    rng, shape = generator(ARRIVALS), 1.0 / cv**2
    blocks = -(-count // BLOCK)
    levels = strata(blocks * BLOCK, rng)
    gaps = -np.log1p(-levels) if cv == 1 else gamma_levels(shape, levels)
    rng.shuffle(gaps)
    gaps = gaps.reshape(blocks, BLOCK)
    sums = gamma_levels(BLOCK * shape, strata(blocks, rng))
    rng.shuffle(sums)
    gaps = (gaps * (sums / gaps.sum(axis=1))[:, None]).ravel()[:count]
    return gaps * (count / gaps.sum())


def gamma_levels(shape: float, levels: Any) -> Any:
    """The gamma's quantiles at many ascending levels: scale 1, so the mean is the shape.

    Between nodes the logarithm of the quantile is interpolated over the level's logit, along which both tails are smooth.
    """
    from scipy.special import expit, gammaincinv, logit

    if len(levels) <= NODES:
        return np.maximum(gammaincinv(shape, levels), np.finfo(float).tiny)
    nodes = np.linspace(logit(levels[0]), logit(levels[-1]), NODES)
    known = np.log(np.maximum(gammaincinv(shape, expit(nodes)), np.finfo(float).tiny))
    return np.exp(np.interp(logit(levels), nodes, known))


def paired(first: Any, second: Any, correlation: float) -> Any:
    """`second` in an order in which its correlation with `first` is within `1 / sqrt(count)` of the asked one, if any order's is.

    Ranks are those of a bivariate normal law, whose own correlation is sought. Both arrays ascend.
    """
    from scipy.special import ndtri

    count, rng = len(first), generator(OSL)
    noise, scores = rng.standard_normal(count), ndtri((np.arange(count) + 0.5) / count)
    if first[0] == first[-1] or second[0] == second[-1]:
        return second[np.argsort(noise)]
    noise -= scores * (np.dot(noise, scores) / np.dot(scores, scores))
    low, high, tried = -1.0, 1.0, correlation
    for _ in range(30):
        found = np.empty_like(second)
        found[np.argsort(tried * scores + (1 - tried**2) ** 0.5 * noise, kind="stable")] = second
        excess = float(np.corrcoef(first, found)[0, 1]) - correlation
        if abs(excess) <= count**-0.5:
            break
        low, high = (tried, high) if excess < 0 else (low, tried)
        tried = (low + high) / 2
    return found


def attainable(first: Any, second: Any, correlation: float) -> float:
    """The asked correlation, or the nearest one that two ascending samples can have in any order; where one does not vary, there is none to miss."""
    if first[0] == first[-1] or second[0] == second[-1]:
        return correlation
    least, most = np.corrcoef(first, second[::-1])[0, 1], np.corrcoef(first, second)[0, 1]
    return float(min(max(correlation, least), most))
