"""Prefill and decode apart in YAML: what the sections mean, what the commands make of it, and what is refused by path."""

import json

import pytest

import passcal as pc

APART = """
workload: {mode: closed, isl: 64, osl: 8, concurrency: 4}
engine: {backend: vllm, max_num_batched_tokens: 512, max_num_seqs: 8}
timing: {kind: linear, prefill: [5.0, 0.02, 1e-6, 0.0], decode: [8.0, 0.05, 2e-6]}
deployment:
  kind: disaggregated
  decode:
    engine: {max_num_seqs: 3}
    timing: {kind: linear, prefill: [1.0, 0.01, 0.0, 0.0], decode: [4.0, 0.05, 2e-6]}
  prefill_workers: 2
  link: {gb_per_s: 1, kv_bytes_per_token: 1e6, efficiency: 1}
  first_token: decode
  hold: blocks
"""
LOOP = pc.Workload.closed_loop(isl=64, osl=8, concurrency=4)
TIMING = {
    "prefill": pc.LinearTiming(prefill=(5.0, 0.02, 1e-6, 0.0), decode=(8.0, 0.05, 2e-6)),
    "decode": pc.LinearTiming(prefill=(1.0, 0.01, 0.0, 0.0), decode=(4.0, 0.05, 2e-6)),
}


def deployment(decode=None, **changed):
    """The same in Python."""
    parts = {
        "prefill": pc.Vllm(max_num_batched_tokens=512, max_num_seqs=8),
        "decode": decode or pc.Vllm(max_num_batched_tokens=512, max_num_seqs=3),
        "prefill_workers": 2,
        "link": pc.Link(gb_per_s=1, kv_bytes_per_token=1e6, efficiency=1),
        "first_token": "decode",
        "hold": "blocks",
    }
    return pc.Disaggregated(**{**parts, **changed})


@pytest.fixture
def apart(tmp_path):
    """A closed loop on two prefill workers and a decode worker."""
    file = tmp_path / "apart.yaml"
    file.write_text(APART, encoding="utf-8")
    return file


@pytest.fixture
def asked(apart):
    """What the file asks with these settings."""
    from passcal.config import load_config, read_config

    return lambda *settings: read_config(load_config(apart, settings), apart.parent)


def test_a_file_says_what_python_says(asked):
    """Shared options hold on both sides, and a side's own go over them."""
    found = asked()
    assert found.deployment == deployment()
    assert found.timing == TIMING


@pytest.mark.parametrize(
    ("setting", "same"),
    [
        ("deployment.decode.engine.max_num_seqs=5", {"decode": pc.Vllm(max_num_batched_tokens=512, max_num_seqs=5)}),
        ("deployment.decode.engine={backend: sglang, max_running_requests: 9}", {"decode": pc.Sglang(max_running_requests=9)}),
        ("deployment.prefill.engine.backend=trtllm", {"prefill": pc.Trtllm()}),
        ("engine.max_num_batched_tokens=256", {"prefill": pc.Vllm(max_num_batched_tokens=256, max_num_seqs=8), "decode": pc.Vllm(max_num_batched_tokens=256, max_num_seqs=3)}),
        ("deployment.link.latency_ms=7", {"link": pc.Link(gb_per_s=1, kv_bytes_per_token=1e6, efficiency=1, latency_ms=7)}),
        ("deployment.link=null", {"link": None}),
        ("deployment.prefill_inflight_cap=1", {"prefill_inflight_cap": 1}),
        ("deployment.routing=least_loaded", {"routing": "least_loaded"}),
        ("deployment.decode_workers=3", {"decode_workers": 3}),
    ],
)  # fmt: skip
def test_settings(asked, setting, same):
    """Another backend takes nothing of the shared options, which are not its own."""
    assert asked(setting).deployment == deployment(**same)


def test_a_timing_is_shared_or_a_side_s_own(asked):
    one = asked("deployment.decode.timing=null").timing
    assert one == {"prefill": TIMING["prefill"], "decode": TIMING["prefill"]}


def test_evaluate(passcal, apart):
    """To the last digit what Python answers."""
    told = json.loads(passcal("evaluate", apart, "--json").stdout)
    report = pc.evaluate(LOOP, deployment(), TIMING)
    assert told["ttft_steady_mean"] == report.ttft_ms.mean
    assert told["throughput_rps"] == report.throughput_per_s
    assert told["transfer_mean"] == report.hand_off_ms["transfer"].mean > 0


def test_the_table_tells_of_the_hand_off(passcal, apart, closed):
    """Its parts as rows, who is busy, and who waited for memory; nothing of it where nothing is handed over."""
    shown = passcal("evaluate", apart, "--set", "deployment.decode.engine.num_gpu_blocks=16").stdout
    assert all(word in shown for word in ("hold", "transfer", "attach", "requests/s"))
    assert "busy       prefill " in shown and ", decode " in shown
    assert " hand-offs waited for memory of the decode side" in shown
    assert not any(word in passcal("evaluate", closed).stdout for word in ("transfer", "busy", "staging"))


def test_replay(passcal, apart, trace):
    told = json.loads(passcal("replay", trace, "--config", apart, "--routing", "least_loaded", "--json").stdout)
    workload = pc.Workload.replay([(0.0, 100, 5), (10.0, 200, 3), (400.5, 50, 1)])
    report = pc.evaluate(workload, deployment(routing="least_loaded"), TIMING)
    assert told["e2e_mean"] == report.e2e_ms.mean


@pytest.mark.slow
def test_capacity(passcal, apart):
    told = json.loads(passcal("capacity", apart, "--sla", "ttft:p99<=150", "--json").stdout)
    level = pc.Sla("ttft", 0.99, 150)
    found = pc.capacity(deployment(), TIMING, sla=level, workload=pc.Workload.closed_loop(isl=64, osl=8))
    assert told["load"] == found.load > 0


REFUSED = {
    "deployment.kind=split": "deployment.kind='split': must be one of aggregated, disaggregated",
    "deployment.replicas=2": "deployment.replicas=2: unknown key; known are kind, prefill, decode",
    "deployment.prefill.workers=2": "deployment.prefill.workers=2: unknown key; known are engine, timing",
    "deployment.prefill=vllm": "deployment.prefill: 'vllm': must have keys, of engine, timing",
    "deployment.prefill_workers=0": "deployment.prefill_workers=0: must be greater than or equal to 1",
    "deployment.hold=seat": "deployment.hold='seat': must be 'none', 'blocks' or 'blocks_and_seat'",
    "deployment.routing=prefix_affinity": "deployment.routing='prefix_affinity': must be 'round_robin' or 'least_loaded'",
    "deployment.decode.engine.max_num_seqs=-1": "deployment.decode.engine.max_num_seqs=-1: must be greater",
    "deployment.decode.engine.max_seqs=1": "deployment.decode.engine.max_seqs=1: unknown key; known are",
    "deployment.decode.engine.backend=tgi": "deployment.decode.engine.backend='tgi': must be one of vllm",
    "deployment.decode.engine=5": "deployment.decode.engine=5: must have keys",
    "engine.num_gpu_blocks=1": "engine.num_gpu_blocks=1: one block is the null block",
    "deployment.decode.timing.kind=grid": "deployment.decode.timing.kind='grid': must be one of linear, roofline",
    "deployment.decode.timing.decode=5": "deployment.decode.timing.decode=5: must be a list of numbers",
    "deployment.link.gb_per_s=0": "deployment.link.gb_per_s=0: must be greater than 0",
    "deployment.link.speed=9": "deployment.link.speed=9: unknown key; known are gb_per_s",
    "deployment.link=nvlink": "deployment.link: 'nvlink': must have keys, of gb_per_s",
    "engine=null": "deployment.prefill.engine is missing: add it, or a section engine for both sides",
    "timing=null": "deployment.prefill.timing is missing: add it, or a section timing for both sides",
    "deployment.prefill.timing={kind: linear}": "timing: both sides have their own",
}  # fmt: skip


@pytest.mark.parametrize("setting", REFUSED)
def test_bad_input_is_refused_by_path(passcal, apart, setting):
    result = passcal("evaluate", apart, "--set", setting)
    assert result.exit_code == 2, result.output
    assert REFUSED[setting] in result.stderr
    assert len(result.stderr.splitlines()) == 1 and len(result.stderr) < 220


def test_a_shared_engine_that_nobody_takes_is_refused(passcal, apart):
    others = [f"deployment.{side}.engine={{backend: sglang}}" for side in ("prefill", "decode")]
    result = passcal("evaluate", apart, "--set", others[0], "--set", others[1])
    assert result.exit_code == 2 and "engine: both sides have another backend" in result.stderr


def test_a_missing_link_speed_is_told(passcal, apart):
    result = passcal("evaluate", apart, "--set", "deployment.link={kv_bytes_per_token: 5}")
    assert result.exit_code == 2 and "deployment.link.gb_per_s is missing" in result.stderr


@pytest.mark.parametrize("command", ["screen", "sweep"])
def test_tables_of_candidates(passcal, apart, command):
    """A grid over one side's option; one that no side has by that name is refused, and so is a table without an engine."""
    result = passcal(command, apart, "--set", "grid={decode.max_num_seqs: [1, 3]}", "--json", "--quiet")
    assert result.exit_code == 0, result.stderr
    rows = json.loads(result.stdout)["rows"]
    assert {row["decode.max_num_seqs"] for row in rows} == {1, 3}
    if command == "sweep":
        best = next(row for row in rows if row["decode.max_num_seqs"] == 3)
        assert best["throughput_rps"] == pytest.approx(pc.evaluate(LOOP, deployment(), TIMING).throughput_per_s)
    for setting, told in (("engine.max_num_seqs", "max_num_seqs"), ("decode.max_seqs", "max_seqs")):
        result = passcal(command, apart, "--set", f"grid={{{setting}: [4, 8]}}")
        assert result.exit_code == 2 and told in result.stderr
    result = passcal(command, apart, "--set", "grid={decode.max_num_seqs: [1, 3]}", "--set", "engine=null")
    assert result.exit_code == 2 and "backend is missing" in result.stderr


@pytest.mark.parametrize("command", ["screen", "sweep", "evaluate"])
def test_aggregated_may_be_said(passcal, closed, command):
    """It is what is meant where no kind is given."""
    grid = () if command == "evaluate" else ("--set", "grid={workload.concurrency: [2, 4]}")
    one, other = (
        passcal(command, closed, *grid, "--csv", "-", "--quiet", *said)
        for said in ((), ("--set", "deployment.kind=aggregated"))
    )
    assert one.exit_code == 0 and one.stdout == other.stdout


IMAGES = pc.Workload.closed_loop(shapes=[{"isl": 64, "osl": 8, "vision_tokens": 32}], concurrency=4)
NO_LENGTHS = ("--set", "workload={mode: closed, concurrency: 4, shapes: [{isl: 64, osl: 8, vision_tokens: 32}]}")


def test_an_encoder_has_an_engine_of_its_own(passcal, apart, closed):
    """In front of either kind; its passes cost what is said there, or what those behind it do."""
    encoder = "deployment.encoder={engine: {backend: vllm, max_num_seqs: 2, max_num_batched_tokens: 64}, workers: 2, link: {gb_per_s: 1, kv_bytes_per_token: 9}}"
    spec = pc.Encoder(
        engine=pc.Vllm(max_num_seqs=2, max_num_batched_tokens=64),
        workers=2,
        link=pc.Link(gb_per_s=1, kv_bytes_per_token=9),
    )
    own = "deployment.encoder.timing={kind: linear, prefill: [2.0]}"
    cheap, dear = pc.LinearTiming(prefill=(2.0,)), TIMING["prefill"]
    for file, behind, timing in (
        (apart, deployment(encoder=spec), TIMING),
        (closed, pc.Aggregated(pc.Vllm(max_num_seqs=8), encoder=spec), {"engine": dear}),
    ):
        for settings, price in (((encoder,), dear), ((encoder, own), cheap)):
            asked = [word for setting in settings for word in ("--set", setting)]
            told = json.loads(passcal("evaluate", file, *NO_LENGTHS, *asked, "--json").stdout)
            report = pc.evaluate(IMAGES, behind, {"encoder": price, **timing})
            assert told["ttft_steady_mean"] == report.ttft_ms.mean


def test_an_encoder_may_be_a_time_alone(passcal, closed):
    told = json.loads(
        passcal("evaluate", closed, *NO_LENGTHS, "--set", "deployment.encoder.latency_ms=7", "--json").stdout
    )
    spec = pc.Aggregated(pc.Vllm(max_num_seqs=8), encoder=pc.Encoder(latency_ms=7))
    assert told["ttft_steady_mean"] == pc.evaluate(IMAGES, spec, TIMING["prefill"]).ttft_ms.mean


ENCODERS = {
    "deployment.encoder={workers: 2}": "deployment.encoder.engine and latency_ms: exactly one of both is needed",
    "deployment.encoder={speed: 2}": "deployment.encoder.speed=2: unknown key; known are engine, workers",
    "deployment.encoder={engine: {backend: vllm, max_num_seqs: 0}}": "deployment.encoder.engine.max_num_seqs=0: must be",
    "deployment.encoder={latency_ms: 2, timing: {kind: linear}}": "deployment.encoder.timing: prices passes",
    "deployment.encoder={engine: {backend: vllm}, link: {gb_per_s: -1, kv_bytes_per_token: 1}}": "deployment.encoder.link.gb_per_s=-1: must be",
    "deployment.encoder={latency_ms: 2}": "encoder: no request has vision_tokens",
}


@pytest.mark.parametrize("setting", ENCODERS)
def test_an_encoder_is_refused_by_path(passcal, apart, closed, setting):
    for file in (apart, closed):
        result = passcal("evaluate", file, "--set", setting)
        assert result.exit_code == 2 and ENCODERS[setting] in result.stderr and len(result.stderr) < 220


@pytest.mark.parametrize("command", ["screen", "sweep"])
def test_tables_of_candidates_take_no_encoder(passcal, closed, command):
    result = passcal(
        command,
        closed,
        "--set",
        "grid={engine.max_num_seqs: [4, 8]}",
        "--set",
        "deployment.encoder={latency_ms: 2}",
    )
    assert result.exit_code == 2 and "deployment.encoder: is not screened or swept" in result.stderr
