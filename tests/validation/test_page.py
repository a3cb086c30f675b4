"""Tables go where they belong, and what is read off measurements is what it is said to be."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import passcal as pc
from tools.validation import __main__ as command
from tools.validation import pd_apart, pd_vs_agg, seats
from tools.validation.page import renewed
from tools.validation.pd_vs_agg import stalls
from tools.validation.rates import held
from tools.validation.tables import against, figures, markdown

ROOT = Path(__file__).parents[2]
PAGE = "a\n<!-- table: one -->\nold\nold\n<!-- end -->\nb\n<!-- table: two -->\n<!-- end -->\nc\n"


def test_tables_are_replaced_and_text_stays():
    after = renewed(PAGE, {"two": "| 2 |", "one": r"| \1 |"})
    assert after == "a\n<!-- table: one -->\n| \\1 |\n<!-- end -->\nb\n<!-- table: two -->\n| 2 |\n<!-- end -->\nc\n"
    assert renewed(after, {"two": "| 2 |", "one": r"| \1 |"}) == after


@pytest.mark.parametrize("tables", [{"one": ""}, {"one": "", "two": "", "three": ""}])
def test_a_table_without_a_place_and_a_place_without_a_table_are_refused(tables):
    with pytest.raises(ValueError, match="needs one place"):
        renewed(PAGE, tables)


def test_a_place_that_is_not_closed_is_refused():
    with pytest.raises(ValueError, match="must be closed"):
        renewed("<!-- table: one -->\n", {"one": ""})


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture):
    page, data = tmp_path / "page.md", tmp_path / "measured"
    page.write_text(PAGE)
    arguments = ["--page", str(page), "--data", str(data)]
    assert command.main(arguments) == 2
    assert "measurements" in capsys.readouterr().err
    (data / "measurements").mkdir(parents=True)
    monkeypatch.setattr(command, "tables", lambda data: iter([("one", "| 1 |"), ("two", "| 2 |")]))
    assert command.main([*arguments, "--check"]) == 1
    assert page.read_text() == PAGE
    assert command.main(arguments) == 0
    assert command.main([*arguments, "--check"]) == 0
    assert page.read_text() == renewed(PAGE, {"one": "| 1 |", "two": "| 2 |"})
    assert [file.name for file in tmp_path.iterdir() if file.is_file()] == ["page.md"]


def test_no_place_of_the_committed_page_is_empty():
    text = (ROOT / "docs" / "design" / "validation.md").read_text()
    places = text.split("<!-- table: ")[1:]
    assert len(places) > 10
    assert all("\n| --- |" in place.split("<!-- end -->")[0] for place in places)


@pytest.mark.skipif(not (command.DATA / "measurements").is_dir(), reason="the measurements are not beside the checkout")
def test_the_quick_tables_are_current():
    """What takes no long replay is made again."""
    text = (ROOT / "docs" / "design" / "validation.md").read_text()
    tables = {
        name: table for part in (pd_vs_agg, pd_apart, seats) for name, table in part.sections(command.DATA).items()
    }
    assert all(f"<!-- table: {name} -->\n{table}\n<!-- end -->" in text for name, table in tables.items())


def test_figures_and_cells():
    assert figures(np.arange(1, 151)).tolist() == [75.5, 75, 135, 149]
    assert against(200.0, 190.0) == "200 / 190 (-5.0%)"
    assert against(0.01, 0.02, 1.0) == "0.01 / 0.02"
    assert markdown(("a", "b"), [(1, 2)]) == "| a | b |\n| --- | --- |\n| 1 | 2 |"


def test_what_an_arriving_prompt_costs():
    """Replicas made by the product: times workers, the stall is the prefill of one prompt. Without prompts on the decode side it is nothing."""
    prefill, workers, rate = 200.0, 2, 3.0
    rows = {"dispatch_ms": 1e3 / rate * np.arange(400), "isl": np.full(400, 2000), "osl": np.full(400, 100)}
    timing = pc.LinearTiming(prefill=(0.0, prefill / 2000), decode=(10.0,), combine="max")
    report = pc.evaluate(pc.Workload.replay(rows), pc.Aggregated(pc.Vllm(), replicas=workers), timing)
    arm = {
        "topology": [f"agg {workers}replicas"],
        "mean_itl_ms": [report.itl_ms.mean],
        "median_itl_ms": [report.itl_ms.quantile(0.5)],
        "req_tput": [rate],
        "median_ttft_ms": [report.ttft_ms.quantile(0.5)],
    }
    apart = arm | {"topology": ["disagg 1P1D"], "mean_itl_ms": arm["median_itl_ms"]}
    with_prompts, without = stalls("pair", pd.DataFrame(arm), pd.DataFrame(apart))
    assert float(with_prompts[5].replace(",", "")) == pytest.approx(prefill - 10.0, rel=0.05)
    assert float(without[5]) == 0.0


def test_what_prefill_and_decode_apart_would_have_been():
    """Two workers, prompts of 200 ms at 3/s, passes of 10 ms: replicas stall decodes, a decode worker does not, and prefill alone carries 0.6."""
    measured = {name: [10.0] for name in pd_vs_agg.FIGURES.values()} | {"median_itl_ms": [10.0]}
    stated = {
        "isl": [2000],
        "osl": [100],
        "request_rate": [3.0],
        "burstiness_gamma_shape": [100.0],
        "num_prompts": [200],
    }
    mean = 10.0 / (1 - 3.0 * 0.1)  # each prompt stalls 100 ms
    arm = measured | stated | {"topology": ["agg 2replicas"], "req_tput": [3.0], "mean_itl_ms": [mean]}
    rows = pd_apart.compared("pair", pd.DataFrame(arm), pd.DataFrame(arm | {"topology": ["disagg 1P1D"]}))
    cells = {row[1]: row for row in rows}
    assert rows[0][0] == "pair, disagg 1P1D" and list(cells) == list(pd_vs_agg.FIGURES)
    assert cells["ITL p50"][2].startswith("10 / 10 ") and cells["ITL p50"][7] == "+0%"
    assert cells["ITL p99"][2].startswith("10 / 210 ") and cells["ITL p99"][7] == cells["ITL p99"][8] == "-95%"
    instant, linked = (float(cells["TTFT mean"][k].replace(",", "")) for k in (4, 5))
    assert instant == pytest.approx(
        200 + 1.5 * 10 + 10, abs=2
    )  # an arrival waits one to two passes (V12), and one makes the token again
    assert linked - instant == pytest.approx(2000 * pd_apart.KV_BYTES / 10e6, rel=0.05)


def test_tokens_held_while_somebody_waits():
    """Two long requests hold 300 to 400 tokens, and a third waits for two seconds beside them."""
    run = pd.DataFrame(
        {
            "dispatch_ms": [0.0, 0.0, 1000.0],
            "first_ms": [100.0, 100.0, 3000.0],
            "last_ms": [3000.0, 3000.0, 3500.0],
            "isl": [100, 200, 50],
            "osl": [50, 50, 10],
        }
    )
    rate, _, waited, meanwhile = held(1.0, run)
    low, high = map(float, meanwhile.split("-"))
    assert (rate, waited) == ("1/s", "1")
    assert 360 < low < high < 400
