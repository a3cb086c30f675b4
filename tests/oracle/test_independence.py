"""The oracle is worth something because it shares nothing: it imports the standard library and itself."""

import ast
import sys
from collections.abc import Iterator

from .building import ROOT

FILES = sorted((ROOT / "tools" / "oracle").rglob("*.py"))


def imported(source: str) -> Iterator[str]:
    """Every module name that a source imports, however deep inside."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""


def test_only_the_standard_library_and_itself():
    """No numpy, no passcal."""
    assert len(FILES) > 5
    for path in FILES:
        for name in imported(path.read_text(encoding="utf-8")):
            own = name == "tools.oracle" or name.startswith("tools.oracle.")
            assert own or name.split(".")[0] in sys.stdlib_module_names, f"{path.name} imports {name}"


def test_files_stay_small():
    """A file over 300 lines has two duties."""
    for path in FILES:
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 300, path.name
