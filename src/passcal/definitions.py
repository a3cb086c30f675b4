"""What benchmark tools mean by their words, and how to get from one meaning to another.

Arguments are floats or numpy arrays, one value a request, in milliseconds and tokens. `docs/reference/benchmark.md` has the table of who
prints what; the evidence is under B1-B7 in `docs/design/provenance.md`.
"""

from typing import Any

import numpy as np

from passcal.distribution import Distribution

__all__ = [
    "chunk_gaps",
    "chunk_itl",
    "itl_from_chunks",
    "itl_request_mean",
    "pooled_itl_mean",
    "tpot",
    "tpot_to_with_first",
    "tpot_with_first",
    "tpot_without_first",
    "within",
]


def tpot(ttft_ms: Any, e2e_ms: Any, osl: Any, first_chunk_tokens: Any = 1) -> Any:
    """`(E2E - TTFT) / (osl - 1)`: TPOT here and of vLLM, ITL of GuideLLM and aiperf (B2). NaN for an osl of 1, which has none.

    `first_chunk_tokens` are the tokens of the first message, which aiperf takes off instead of 1 where the server reports them.
    """
    later = np.asarray(osl, np.float64) - first_chunk_tokens
    return np.divide(np.subtract(e2e_ms, ttft_ms), np.where(later > 0, later, np.nan))


def tpot_with_first(e2e_ms: Any, osl: Any) -> Any:
    """`E2E / osl`: GuideLLM's `time_per_output_token_ms`, which shares the TTFT out over all tokens (B3)."""
    return np.divide(e2e_ms, osl)


def tpot_without_first(with_first_ms: Any, ttft_ms: Any, osl: Any) -> Any:
    """`(osl * T - TTFT) / (osl - 1)`: from GuideLLM's time per output token T to TPOT (B3). NaN for an osl of 1.

    Exact for one request; and for GuideLLM's printed means, since it weights by tokens: its mean T, the mean TTFT and the mean osl give
    the pooled mean ITL, whatever the lengths.
    """
    return tpot(ttft_ms, np.multiply(with_first_ms, osl), osl)


def tpot_to_with_first(tpot_ms: Any, ttft_ms: Any, osl: Any) -> Any:
    """`(TTFT + (osl - 1) * TPOT) / osl`: from TPOT to GuideLLM's time per output token (B3); the inverse of `tpot_without_first`."""
    return np.divide(np.add(ttft_ms, np.multiply(np.subtract(osl, 1), tpot_ms)), osl)


def itl_request_mean(times_ms: Any) -> float:
    """The mean gap between one request's tokens, from when they appear: the same number as its TPOT. NaN for fewer than two tokens."""
    return float(np.mean(np.diff(times_ms))) if len(times_ms) > 1 else float("nan")


def pooled_itl_mean(tpot_ms: Any, osl: Any) -> float:
    """`sum (osl - 1) * TPOT / sum (osl - 1)`: from one mean a request to the mean of all gaps, which long outputs dominate (B4).

    It is the mean ITL of vLLM (where a message carries one token) and of GuideLLM; aiperf's mean ITL counts requests alike.
    """
    gaps = np.asarray(osl, np.float64) - 1
    held = np.broadcast_to(tpot_ms, gaps.shape)[gaps > 0]
    gaps = gaps[gaps > 0]
    return float(np.dot(held, gaps) / gaps.sum()) if gaps.size else float("nan")


def chunk_gaps(times_ms: Any, heads: Any, tokens_per_chunk: int = 1) -> Any:
    """Gaps between the messages that stream each request's tokens, pooled: ITL of vLLM, ICL of aiperf (B5).

    The first token is sent at once, then `tokens_per_chunk` at a time, the rest with the last token, as vLLM's `stream_interval` has it.
    Tokens that appear at the same instant (speculation) share a message.

    Args:
        times_ms: when tokens appear, shape (tokens,), one request after the other.
        heads: where each request's begin, shape (requests,).
        tokens_per_chunk: tokens of a message after the first.
    """
    sent, first = messages(times_ms, heads, tokens_per_chunk)
    gaps = np.diff(times_ms[sent])[~first[1:]]
    return gaps[gaps > 0]


def messages(times_ms: Any, heads: Any, tokens_per_chunk: int) -> tuple[Any, Any]:
    """Places of tokens whose appearance sends a message, and which of these are a request's first; see `chunk_gaps`."""
    counts = np.diff(heads, append=len(times_ms))
    number = np.arange(len(times_ms)) - np.repeat(heads, counts)
    last = number == np.repeat(counts, counts) - 1
    sent = np.flatnonzero((number % tokens_per_chunk == 0) | last)
    return sent, number[sent] == 0


def chunk_itl(itl_ms: Distribution) -> Distribution:
    """Gaps between tokens to gaps between messages, where only tokens of one instant share a message (B5): gaps of 0 are left out."""
    apart = itl_ms.values > 0
    return Distribution(itl_ms.values[apart], itl_ms.weights[apart])


def itl_from_chunks(mean_gap_ms: Any, tokens_per_chunk: Any) -> Any:
    """The mean gap between tokens behind a mean gap between messages that carry this many tokens on average (B5)."""
    return np.divide(mean_gap_ms, tokens_per_chunk)


def within(values_ms: Any, bound_ms: float | None, absent: bool = True) -> Any:
    """Which requests keep a bound, itself included (B7); NaN, as the TPOT of a one-token output, counts as `absent` says."""
    held = np.asarray(values_ms, np.float64)
    if bound_ms is None:
        return np.ones(held.shape, bool)
    return np.where(np.isnan(held), absent, held <= bound_ms)
