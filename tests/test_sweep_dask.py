"""A sweep on a Dask cluster of processes is the serial one, whatever becomes of its workers."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import passcal as pc
from passcal.executors import Workers
from passcal.progress import listening
from tests.sweeps import TIMING, candidates
from tests.test_sweep_executors import Squares

pytestmark = pytest.mark.slow

ASKED = {"candidates": candidates(120, 6), "timing": TIMING, "sla": pc.Sla("ttft", 0.9, 400), "top": None}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Two workers of one thread, without a dashboard, that leave nothing outside the tests' folder."""
    import dask
    from distributed import Client, LocalCluster

    home = {"temporary-directory": str(tmp_path_factory.mktemp("dask"))}
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with dask.config.set(home), LocalCluster(**options) as cluster, Client(cluster) as found:
        yield found


@pytest.fixture(scope="module")
def serial() -> pd.DataFrame:
    """The answer of this thread."""
    return pc.sweep(**ASKED, executor="serial")


def same(found: pd.DataFrame, serial: pd.DataFrame) -> None:
    """To the bit, counts included, and no point was evaluated here instead of there."""
    pd.testing.assert_frame_equal(found, serial, check_exact=True)
    assert found.attrs == serial.attrs and found.attrs["notes"] == []


def pids(client: Any) -> dict[str, int]:
    """Of the workers by address, when two are up."""
    client.wait_for_workers(2, timeout=60)
    return client.run(os.getpid)


class Killing:
    """Kills the worker that has most points in hand, once and at once, while a sweep goes on."""

    def __init__(self, client: Any, then: Callable[[], None] = lambda: None) -> None:
        self.client, self.then, self.pids = client, then, pids(client)
        self.killed = 0

    def __call__(self, done: int, of: int) -> None:
        """As a listener to how far a sweep is."""
        in_hand = self.client.processing()
        busiest = max(in_hand, key=lambda address: len(in_hand[address]))
        if not self.killed and in_hand[busiest]:
            self.killed = self.pids[busiest]
            os.kill(self.killed, signal.SIGKILL)
            self.then()


def stop() -> None:
    """As Ctrl-C does."""
    raise KeyboardInterrupt


def test_it_is_the_serial_one(client: Any, serial: pd.DataFrame) -> None:
    same(pc.sweep(**ASKED, executor=client), serial)


def test_a_worker_killed_meanwhile_changes_nothing(client: Any, serial: pd.DataFrame) -> None:
    """What it had in hand is evaluated by another."""
    killing = Killing(client)
    with listening(killing):
        same(pc.sweep(**ASKED, executor=client), serial)
    assert killing.killed and killing.killed not in pids(client).values()


def test_a_sweep_stopped_with_a_dead_worker_goes_on(client: Any, serial: pd.DataFrame, tmp_path: Path) -> None:
    """From its checkpoint, on the cluster or in this thread, which then asks for nothing."""
    with listening(Killing(client, stop)), pytest.raises(KeyboardInterrupt):
        pc.sweep(**ASKED, executor=client, checkpoint=tmp_path)
    kept = (tmp_path / "points.jsonl").read_bytes().count(b"\n")
    assert 0 < kept < serial.attrs["counts"]["refined"]
    same(pc.sweep(**ASKED, executor=client, checkpoint=tmp_path), serial)
    assert (tmp_path / "points.jsonl").read_bytes().count(b"\n") == serial.attrs["counts"]["refined"]
    same(pc.sweep(**ASKED, executor="serial", checkpoint=tmp_path), serial)


def test_points_that_kill_every_worker_are_evaluated_here(client: Any) -> None:
    """Dask gives up on them; a note says so."""
    with Workers(client, 40) as workers:
        found: dict[int, int] = {}
        for places, results in workers.map(Squares(), range(40)):
            found |= dict(zip(places, results, strict=True))
    assert found == {item: item * item for item in range(40)} and len(workers.notes) == 1
