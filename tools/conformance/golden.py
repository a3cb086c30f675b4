"""`python -m tools.conformance.golden`: choose the committed subset of the recordings, `tests/golden`, by rule.

Kept: cases without prefix cache that are short, and longer ones of the kinds that short ones do not cover.
"""

import sys

from tools.conformance.recordings import GOLDEN, RECORDED, Case, kinds, read, write

SHORT = 560  # passes
LONGER = 2_250
LONG_SGLANG = 700
RARE = {"preemption", "watermark", "long prompts", "chunking off", "few seats"}
RARE_TRTLLM = {"preemption", "maximum utilization", "equal progress", "batch wait", "sync"}
NAMED = {"trt_kvtight_STATIC_BATCH_c32_i2048_o256_mnt8192", "trt_varlen_c32_mnt2048_ov"}  # alone of their kind
LIMIT_BYTES = 1_300_000


def keep(case: Case) -> bool:
    """Whether a case goes into the subset."""
    traits, passes = set(kinds(case)), len(case["passes"]["end_ms"])
    if "prefix cache" in traits:
        return False
    if "sglang" in traits:
        return passes <= SHORT or ("preemption" in traits and passes <= LONG_SGLANG)
    if "trtllm" in traits:
        return passes <= SHORT or case["name"] in NAMED or (bool(traits & RARE_TRTLLM) and passes <= LONGER)
    if passes > SHORT and "poisson" in case["name"]:
        return passes <= LONGER
    return passes <= SHORT or (bool(traits & RARE) and passes <= LONGER)


def main() -> int:
    """Write the subset; 1 if it is larger than it may be."""
    size = 0
    for file in sorted(RECORDED.glob("*.jsonl.gz")):
        cases = [case for case in read(file) if keep(case)]
        write(GOLDEN / file.name, cases)
        size += (GOLDEN / file.name).stat().st_size
        print(f"{file.name}: {len(cases)} cases")
    print(f"{size} bytes of {LIMIT_BYTES}")
    return int(size > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
