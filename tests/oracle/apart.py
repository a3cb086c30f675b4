"""Small scenarios whose prefill and decode lie apart. A pass takes 10 ms, unless told otherwise; a link 1 byte a ms, a token 1 byte."""

from .building import TEN_MS, replay, sent

SYNC = {
    "vllm": {"async_scheduling": False},
    "sglang": {"disable_overlap_schedule": True},
    "trtllm": {"overlap_scheduler": False},
}
NO_LINK = {"gb_per_s": 1.0, "kv_bytes_per_token": 0}
BYTE_A_MS = {"gb_per_s": 1e-6, "efficiency": 1.0, "kv_bytes_per_token": 1}


def pool(backend: str = "vllm", timing: dict = TEN_MS, **engine: object) -> dict:
    """The decode side."""
    return {"backend": backend, "engine": {**SYNC[backend], **engine}, "timing": timing}


def apart(
    *requests: dict, prefill: dict | None = None, decode: dict | None = None, link: dict = NO_LINK, **deployment: object
) -> dict:
    """A replay at two synchronous stages."""
    both = {"kind": "disaggregated", "decode": decode or pool(), "link": link, **deployment}
    return {**replay(*requests), **(prefill or pool()), "deployment": both}


def times(answer: dict, *keys: str) -> list:
    """A row of such times for each request."""
    return [[request.get(key) for key in keys] for request in answer["requests"]]


__all__ = ["BYTE_A_MS", "NO_LINK", "apart", "pool", "sent", "times"]
