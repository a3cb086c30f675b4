"""A sweep of seats and budgets (TensorRT-LLM, Llama-3.3-70B): how many requests ran, by Little's law."""

from pathlib import Path

import pandas as pd

from tools.validation.tables import markdown, number

__all__ = ["sections"]

HEAD = ("max_batch_size", "max_num_tokens", "osl", "in flight", "TTFT, ms", "ITL, ms", "requests/s")


def sections(data: Path) -> dict[str, str]:
    """One table. Output lengths follow from the two throughputs, requests in flight from rate times time."""
    runs = pd.read_csv(data / "measurements" / "13_trtllm_llama33_70b_4h100_tuning.csv")
    runs["osl"] = runs["token_tput"] / runs["req_tput"]
    runs["in_flight"] = runs["req_tput"] * (runs["ttft_mean_ms"] + (runs["osl"] - 1) * runs["itl_mean_ms"]) / 1e3
    rows = [
        [
            str(run.max_batch_size),
            str(run.max_num_tokens),
            f"{run.osl:.0f}",
            f"{run.in_flight:.1f}",
            f"{run.ttft_mean_ms:.1f}",
            f"{run.itl_mean_ms:.2f}",
            number(run.req_tput),
        ]
        for run in runs.itertuples()
    ]
    return {"seats": markdown(HEAD, rows)}
