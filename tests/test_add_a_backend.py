"""The engine of docs/how-to/add-a-backend.md, added to a copy of the package just as the page says, answers as the page's table does."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "how-to" / "add-a-backend.md").read_text(encoding="utf-8")

pytestmark = pytest.mark.slow


def blocks(kind: str) -> dict[str, str]:
    """The page's code of one kind by the file that it belongs to."""
    found: list[tuple[str, str]] = re.findall(rf'```{kind} title="(\S+)"\n(.*?)```', PAGE, re.S)
    return dict(found)


def patched(text: str, diff: str) -> str:
    """The text after a diff, whose hunks begin with @@ and say nothing of line numbers."""
    for hunk in re.split(r"^@@.*\n", diff, flags=re.M)[1:]:
        lines = hunk.splitlines(keepends=True)
        before, after = ("".join(line[1:] for line in lines if line[0] in kinds) for kinds in (" -", " +"))
        assert text.count(before) == 1, f"found {text.count(before)} times: {before}"
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the page's engine in it."""
    place = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name, code in blocks("python").items():
        assert not (place / name).exists(), name
        (place / name).write_text(code, encoding="utf-8")
    for name, diff in blocks("diff").items():
        file = place / name
        file.write_text(patched(file.read_text(encoding="utf-8"), diff), encoding="utf-8")
    return place


def run(checkout: Path, code: str) -> str:
    """What this code prints there, uncompiled."""
    environment = os.environ | {"PYTHONPATH": str(checkout / "src"), "PASSCAL_INTERPRET": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def table() -> list[list[float]]:
    """Dispatch, first and last token (ms) of each request, as the page has worked them out."""
    rows = re.findall(r"^\| \d+ \(\d+/\d+\) \| (\d+) \| (\d+) \| (\d+) \|", PAGE, re.M)
    return [[float(number) for number in row] for row in rows]


def test_the_page_adds_up(checkout: Path):
    """25 = 10 + 0.1 x 150, 7 = 5 + 2, 6 = 5 + 1: the table follows."""
    assert table() == [[0, 25, 32], [0, 25, 44], [0, 69, 76], [32, 69, 88], [44, 108, 114]]
    script = (checkout / "try_static.py").read_text(encoding="utf-8")
    told = "print(report.requests()[['dispatch_ms', 'first_ms', 'done_ms']].to_json(orient='values'))"
    assert json.loads(run(checkout, f"{script}\n{told}").splitlines()[-1]) == table()


def test_it_has_all_that_the_house_gives(checkout: Path):
    """Three clients, two seats: of the two that end together one joins the one that waited, so TTFT is 30 or 37 + 30 ms in a cycle of 37."""
    loop = "pc.Workload.closed_loop(isl=100, osl=2, concurrency=3)"
    asks = f"pc.evaluate({loop}, pc.engine('static', max_batch_size=2), pc.LinearTiming((10.0, 0.1), (5.0, 1.0)))"
    tells = (
        "json.dumps([r.window.kind, r.window.length_ms, r.binding, sorted(r.ttft_ms.values), list(r.itl_ms.values)])"
    )
    told = json.loads(run(checkout, f"import json, passcal as pc; r = {asks}; print({tells})"))
    assert told == ["cycle", 37, "seats", [30, 67], [7]]


APART = {  # what is changed, and when the tokens of 100/3 appear: 20 ms of prefill, 4 ms of transfer, 6 ms a row
    "hold='none'": [20, 30, 36],
    "hold='blocks_and_seat', prefill_inflight_cap=1": [20, 30, 36],
    "first_token='decode'": [24, 30, 36],
    "first_token='decode_pass'": [34.1, 40.1, 46.1],  # a chunk of one token costs 10.1
}


@pytest.mark.parametrize("changed", APART)
@pytest.mark.parametrize("sent", ["last_chunk", "each_chunk"])
def test_it_stands_on_either_side_of_a_hand_off(checkout: Path, changed: str, sent: str):
    """`try_apart.py`, and what may be asked of a deployment that is apart; what a prompt keeps comes back, so the next one is served alike."""
    script = (checkout / "try_apart.py").read_text(encoding="utf-8")
    first, link = "[(0.0, 100, 3)]", "latency_ms=4)"
    assert script.count(first) == script.count(link) == 1
    script = script.replace(first, "[(0.0, 100, 3), (100.0, 100, 3)]")
    script = script.replace(link, f"latency_ms=4, transfer_start='{sent}'), {changed}")
    more = script.splitlines()[-1].replace("token_ms(0)", "token_ms(1)")
    one, other = (json.loads(line) for line in run(checkout, f"{script}\n{more}").splitlines())
    assert one == pytest.approx(APART[changed]) and other == pytest.approx([100 + ms for ms in APART[changed]])


def test_it_refuses_by_name(checkout: Path):
    asks = "pc.evaluate(pc.Workload.closed_loop(9, 2, 1, prefix=4, requests=1), pc.engine('static'), pc.LinearTiming())"
    code = f"import passcal as pc\ntry: {asks}\nexcept pc.Unsupported as refusal: print(refusal)"
    assert run(checkout, code).startswith("static: a cached prefix is not modelled")
