"""A long run says how far it is, and listening changes nothing."""

import passcal as pc
from passcal import machine
from passcal.progress import listening
from tests.worlds import CLOCK


def test_a_listener_hears_how_far_a_run_is(monkeypatch):
    rows = [(30.0 * k, 100, 20) for k in range(200)]
    alone = pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(), CLOCK)
    monkeypatch.setattr(machine, "SLICE_PASSES", 50)
    heard: list[tuple[int, int]] = []
    with listening(lambda done, of: heard.append((done, of))):
        report = pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(), CLOCK)
    assert len(heard) > 5 and heard == sorted(heard) and {of for _, of in heard} == {200}
    assert report.requests().equals(alone.requests())
    told = len(heard)
    pc.evaluate_replay(pc.Workload.replay(rows), pc.Vllm(), CLOCK)
    assert len(heard) == told
