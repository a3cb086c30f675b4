"""Every Python block of the documents runs, and every link inside the documents leads somewhere."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NEEDS = {"aiconfigurator.md": "aiconfigurator_core"}  # pages about an extra that not every platform has


def blocks(page: Path) -> str:
    """A page's Python blocks, one program: later ones build on earlier ones."""
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), re.S))


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=lambda p: p.name)
def test_python_blocks_run(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    monkeypatch.chdir(ROOT)
    exec(compile(blocks(page), str(page), "exec"), {"__name__": "__main__"})


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [t.split("#")[0] for t in re.findall(r"\]\(([^)]+)\)", page.read_text()) if "://" not in t]
    missing = [t for t in targets if t and not (page.parent / t).exists()]
    assert not missing, f"{page.name}: {missing}"
