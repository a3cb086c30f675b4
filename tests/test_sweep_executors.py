"""A sweep is the same wherever it is evaluated, and outlives its workers."""

import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pandas as pd
import pytest

import passcal as pc
from passcal.executors import Workers
from tests.sweeps import TIMING, candidates

FRAME = candidates(60, 2)
SLA = pc.Sla("ttft", 0.9, 200)
SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang


def swept(executor) -> pd.DataFrame:
    """Always the same question."""
    return pc.sweep(FRAME, None, TIMING, sla=SLA, top=12, executor=executor)


def same(found: pd.DataFrame, notes: int = 0) -> None:
    """To the bit, counts included."""
    serial = swept("serial")
    pd.testing.assert_frame_equal(found, serial, check_exact=True)
    assert found.attrs["counts"] == serial.attrs["counts"] and len(found.attrs["notes"]) == notes


def test_threads():
    same(swept("threads"))
    with ThreadPoolExecutor(3) as executor:
        same(swept(executor))


@pytest.mark.slow
def test_processes():
    with ProcessPoolExecutor(2, SPAWN) as executor:
        same(swept(executor))


def die_once(items: list[int], home: int) -> list[int]:
    """Squares; in another process than home, the worker with item 9 dies."""
    if 9 in items and os.getpid() != home:
        os._exit(9)
    return [item * item for item in items]


class Squares:
    """`die_once` from home, as one argument."""

    def __init__(self) -> None:
        self.home = os.getpid()

    def __call__(self, items: list[int]) -> list[int]:
        return die_once(items, self.home)


@pytest.mark.slow
def test_a_worker_that_dies_loses_nothing():
    """What it had, and what a broken pool refuses from then on, is done here; a note says so."""
    with ProcessPoolExecutor(2, SPAWN) as executor, Workers(executor, 40) as workers:
        for _ in range(2):
            found = {}
            for places, results in workers.map(Squares(), range(40)):
                found |= dict(zip(places, results, strict=True))
            assert found == {item: item * item for item in range(40)}
        assert len(workers.notes) == 1
        same(swept(executor), notes=1)


@pytest.mark.slow
def test_what_cannot_be_sent_is_refused():
    phased = pc.PhaseTiming(prefill_ms=lambda n, isl, prefix: 5.0 + n, decode_ms=lambda n, context: 8.0)
    with ProcessPoolExecutor(1, SPAWN) as executor, pytest.raises(pc.SpecError, match="executor='threads'"):
        pc.sweep(FRAME, None, phased, executor=executor)


def test_an_error_of_a_model_is_raised():
    """It is the model's, not the candidate's."""

    def broken(n, context):
        raise ZeroDivisionError("no rows")

    phased = pc.PhaseTiming(prefill_ms=lambda n, isl, prefix: 5.0, decode_ms=broken)
    for executor in ("serial", "threads"):
        with pytest.raises(pc.TimingError, match="no rows"):
            pc.sweep(FRAME, None, phased, executor=executor)
