"""`passcal capacity`: what it prints, writes and refuses; and service levels in the other commands."""

import csv
import io
import json
import sys
from contextlib import contextmanager

import pytest

import passcal as pc
from passcal.capacity import Point

SLA = ("--sla", "itl:mean<=8.3")  # 8 + 0.05 C + what contexts and prompts add
TIMING = pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6))
LEVEL = pc.Sla("itl", "mean", 8.3)


def expected(**options):
    """The same question in Python."""
    loop = pc.Workload.closed_loop(isl=64, osl=8)
    return pc.capacity(pc.Vllm(max_num_seqs=8), TIMING, sla=LEVEL, workload=loop, **options)


def test_table(passcal, closed):
    """The answer, what binds, and the report at the answer."""
    result = passcal("capacity", closed, *SLA)
    found = expected()
    assert result.exit_code == 0 and 0 < found.load < 8
    assert f"capacity   {found.load} clients" in result.stdout
    assert f"itl:mean<=8.3: {found.points().set_index('load').loc[found.violated_load].iloc[1]:.4g} at" in result.stdout
    assert "TTFT" in result.stdout and f"{found.report.ttft_ms.mean:.4g}" in result.stdout


def test_json(passcal, closed):
    told = json.loads(passcal("capacity", closed, *SLA, "--json").stdout)
    found = expected()
    assert (told["unit"], told["load"], told["violated_load"]) == ("clients", found.load, found.violated_load)
    assert (told["binds"], told["sla"], told["reason"]) == ("itl:mean<=8.3", ["itl:mean<=8.3"], "")
    assert len(told["points"]) == len(found.tried) and told["points"][0]["load"] == 1
    assert told["report"]["ttft_steady_mean"] == found.report.ttft_ms.mean


def test_csv(passcal, closed, tmp_path):
    """One line a load, to a file or to standard output."""
    printed = passcal("capacity", closed, *SLA, "--csv", "-")
    rows = list(csv.DictReader(io.StringIO(printed.stdout)))
    assert [float(row["load"]) for row in rows] == sorted(point.load for point in expected().tried)
    assert f"note: {expected().load} clients" in printed.stderr
    assert passcal("capacity", closed, *SLA, "--csv", "-", "--quiet").stderr == ""
    file = tmp_path / "points.csv"
    assert "TTFT" in passcal("capacity", closed, *SLA, "--csv", file).stdout
    assert file.read_text() == printed.stdout


@pytest.mark.slow
def test_options_are_those_of_python(passcal, closed):
    rated = passcal(
        "capacity", closed, "--sla", "ttft:mean<=30", "--rate", "--most", 5, "--tolerance", 0.5, "--checks", 1
    )
    assert rated.exit_code == 0 and "capacity   5 requests/s" in rated.stdout
    few = json.loads(passcal("capacity", closed, "--sla", "itl:mean<=99", "--most", 3, "--json", "--clients").stdout)
    assert few["load"] == 3 and few["notes"][0].startswith("most=3")
    spread = json.loads(passcal("capacity", closed, *SLA, "--set", "evaluate.start=spread", "--json").stdout)
    assert spread["points"][1]["itl:mean<=8.3"] == expected(start="spread").points()["itl:mean<=8.3"][1]


def test_levels_stand_in_the_file_or_on_the_line(passcal, closed):
    """Those of the line replace those of the file."""
    listed = "sla=[{metric: itl, quantile: mean, limit_ms: 8.3}, 'throughput_rps>=1']"
    told = json.loads(passcal("capacity", closed, "--set", listed, "--json").stdout)
    assert told["sla"] == ["itl:mean<=8.3", "throughput_rps>=1"] and told["load"] == expected().load
    told = json.loads(
        passcal("capacity", closed, "--set", listed, "--sla", "e2e:max<=1e6", "--most", 2, "--json").stdout
    )
    assert told["sla"] == ["e2e:p100<=1000000"]


def test_nothing_feasible_is_exit_1(passcal, closed):
    """With the reason and the loads that say so."""
    result = passcal("capacity", closed, "--sla", "itl:mean<=8", "--most", 4)
    assert result.exit_code == 1
    assert "capacity   none: itl:mean<=8: 8.05" in result.stdout and "loads tried" in result.stdout
    told = passcal("capacity", closed, "--sla", "itl:mean<=8", "--most", 4, "--json")
    assert told.exit_code == 1 and json.loads(told.stdout)["load"] == 0 and json.loads(told.stdout)["report"] is None


REFUSED = {
    (): "sla: there must be at least one target",
    ("--sla", "ttft<=5"): "sla.0='ttft<=5': must be as ttft:p99<=500",
    ("--sla", "itl:mean<=20", "--sla", "ttft:p99<=-5"): "sla.1.limit_ms=-5",
    (*SLA, "--most", "0"): "most=0",
    (*SLA, "--most", "2.5"): "most=2.5: must be a whole number",
    (*SLA, "--checks", "-1"): "checks=-1",
    (*SLA, "--tolerance", "0.1"): "tolerance=0.1: is of rates",
    (*SLA, "--rate", "--tolerance", "7"): "tolerance=7",
    (*SLA, "--rate", "--set", "workload.stagger_ms=5"): "unit='rate': stagger_ms",
    (*SLA, "--set", "workload={mode: replay, rows: [[0, 8, 2]]}"): "workload=Replay: must be a closed or an open loop",
    (*SLA, "--set", "engine.max_num_seqs=0"): "engine.max_num_seqs=0",
    (*SLA, "--json", "--csv", "-"): "both go to standard output",
    ("--set", "sla=[{metric: itl, quantile: 2, limit_ms: 5}]"): "sla.0.quantile=2: must be above 0 and at most 1",
    ("--set", "sla={metric: itl}"): "sla.0.quantile=None",
    ("--set", "sla.ttft=5"): "sla.0.metric=None: must be 'ttft'",
}


@pytest.mark.parametrize("options", REFUSED, ids=REFUSED.values())
def test_bad_input_is_refused_by_path(passcal, closed, options):
    result = passcal("capacity", closed, *options)
    assert result.exit_code == 2, result.output
    assert REFUSED[options] in result.stderr
    assert result.stdout == "" and len(result.stderr.splitlines()) == 1 and len(result.stderr) < 220


@pytest.fixture
def stopped(monkeypatch):
    """A search that is interrupted after two loads."""

    def search(*_, on_point, **__):
        on_point(Point(1, (8.1,), (), 5.0, 0.0, True))
        on_point(Point(2, (8.4,), (LEVEL,), 9.0, 0.0, False))
        raise KeyboardInterrupt

    monkeypatch.setattr(sys.modules["passcal.capacity"], "capacity", search)


def test_an_interrupt_keeps_what_is_finished(passcal, closed, stopped, tmp_path):
    """Exit 130 with the loads that are done, in whatever form was asked for."""
    table = passcal("capacity", closed, *SLA)
    assert table.exit_code == 130 and "2 loads tried" in table.stdout and table.stderr == "interrupted\n"
    told = passcal("capacity", closed, *SLA, "--json")
    assert told.exit_code == 130 and json.loads(told.stdout)["interrupted"] is True
    assert [point["load"] for point in json.loads(told.stdout)["points"]] == [1, 2]
    file = tmp_path / "points.csv"
    assert passcal("capacity", closed, *SLA, "--csv", file).exit_code == 130
    assert [row["violated"] for row in csv.DictReader(file.open())] == ["", "itl:mean<=8.3"]


@pytest.fixture
def said(monkeypatch):
    """What the signs of life say, in order."""
    texts: list[str] = []

    @contextmanager
    def waiting(text, quiet):
        texts.append(text)
        yield texts.append

    monkeypatch.setattr("passcal.cli.waiting", waiting)
    return texts


def test_a_search_says_how_far_it_is(passcal, closed, said):
    passcal("capacity", closed, *SLA)
    assert said[0] == "searching" and said[1] == "1 loads tried; 1 is kept"
    counts = [int(text.split()[0]) for text in said[1:]]  # a load that was screened is told again when it is evaluated
    assert counts == sorted(counts) and set(counts) == set(range(1, 1 + len(expected().tried)))
    assert any("violates itl:mean<=8.3" in text for text in said)


def test_a_replay_says_how_far_it_is(passcal, closed, trace, said, tmp_path, monkeypatch):
    """Of reading, of the run and of writing."""
    monkeypatch.setattr("passcal.machine.SLICE_PASSES", 1)
    passcal("replay", trace, "--config", closed, "--requests-csv", tmp_path / "out.csv")
    assert said[:2] == ["reading trace.csv", "evaluating"] and said[-1] == "writing out.csv"
    assert "evaluating: 1 of 3 requests" in said and "evaluating: 2 of 3 requests" in said


@pytest.mark.parametrize("command", ["evaluate", "replay"])
def test_other_commands_say_whether_levels_are_kept(passcal, closed, trace, command):
    """A section that was given is never ignored."""
    where = (trace, "--config", closed) if command == "replay" else (closed,)
    levels = ("--set", "sla=['itl:mean<=0.5', 'throughput_rps>=0.001']")
    result = passcal(command, *where, *levels)
    assert result.exit_code == 0
    assert "sla itl:mean<=0.5: " in result.stdout and ", violated" in result.stdout
    assert json.loads(passcal(command, *where, *levels, "--json").stdout)["notes"][-1].endswith(", kept")
