"""The house holds: who may import whom, and nothing leaks from one machine into another."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "passcal"
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
ROOMS = ("spec", "core", "calendar", "timing", "sources")
MAY = {  # a room, and the rooms that it may import besides itself and errors
    "spec": set(),
    "core": set(),
    "calendar": {"core"},
    "timing": {"core"},
    "sources": {"core"},
    "hand_offs.py": {"core", "calendar"},
    "instants.py": {"core", "calendar", "sources"},
    "kernel.py": {"core", "calendar", "timing", "sources", "hand_offs.py", "instants.py"},
    "machine.py": {"core", "calendar", "timing", "sources", "kernel.py", "progress.py"},
}
ASSEMBLING = re.compile(r"assemble\.py|fitting(_\w+)?\.py")  # assemble, and what each engine adds to it
ONLY_IN = {
    "pandas": r"columns|sweep|funnel|screening/screen|interop/.*|sources/readers(/.*|\.py)?",
    "pydantic": r"spec/.*|config",
    "matplotlib": r"plots",
}


@cache
def imports(path: Path) -> tuple[tuple[str, str], ...]:
    """(module, name) of every import at run time, however deep; a bare `import x` has no name."""
    return tuple(found_imports(path))


def found_imports(path: Path) -> Iterator[tuple[str, str]]:
    """The same, one by one."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    skipped = {id(node) for block in ast.walk(tree) if is_typing_only(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield from ((node.module or "", alias.name) for alias in node.names)


def is_typing_only(node: ast.AST) -> bool:
    """`if TYPE_CHECKING:` is read by type checkers only."""
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def room(dotted: str) -> str:
    """The room of a passcal module: its folder, or its own file at the top."""
    parts = dotted.split(".")[1:]
    return parts[0] if parts and parts[0] in ROOMS else f"{parts[0] if parts else '__init__'}.py"


def module_of(name: str, imported: str) -> str:
    """`from passcal.core import blocks` names a module, `from passcal.core.blocks import cover` a name in one."""
    inner = PACKAGE.joinpath(*name.split(".")[1:], imported or "-")
    return f"{name}.{imported}" if inner.with_suffix(".py").exists() or inner.is_dir() else name


def own_imports(module: str) -> set[str]:
    """Rooms of passcal that a module imports."""
    names = {module_of(*pair) for pair in imports(PACKAGE / module) if pair[0].split(".")[0] == "passcal"}
    return {room(name) for name in names}


@pytest.mark.parametrize("module", MODULES)
def test_a_room_imports_only_what_stands_below(module: str):
    here = module.split("/")[0]
    used = own_imports(module) - {here, "errors.py"}
    if here in MAY:
        assert used <= MAY[here]
    if here != "__init__.py" and not ASSEMBLING.fullmatch(here):
        assert not {"spec", "core"} <= used, "only assemble knows both"


@pytest.mark.parametrize("module", MODULES)
def test_only_assemble_turns_specs_into_tables(module: str):
    """The tables' knobs (RANK, WORLD) are written from specs in one place."""
    if ASSEMBLING.fullmatch(module) or module.startswith("core/"):
        return
    names = {
        name
        for source, name in imports(PACKAGE / module)
        if source in ("passcal.core.tables", "passcal.core.rank_table")
    }
    assert not names & {"RANK", "WORLD"}


@pytest.mark.parametrize("library", ONLY_IN)
def test_libraries_keep_to_their_rooms(library: str):
    users = {m for m in MODULES if any(name.split(".")[0] == library for name, _ in imports(PACKAGE / m))}
    assert all(re.fullmatch(ONLY_IN[library], user.removesuffix(".py")) for user in users), users


@pytest.mark.slow
def test_matplotlib_is_lazy():
    code = "import sys, passcal; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("module", MODULES)
def test_no_underscore_name_crosses_a_file(module: str):
    for source, name in imports(PACKAGE / module):
        if source.startswith("passcal"):
            private = [part for part in (*source.split("."), name) if re.match(r"_(?!_\w+__$)", part)]
            assert not private, f"{source}: {name}"


@pytest.mark.parametrize("module", MODULES)
def test_the_package_stands_alone(module: str):
    assert not {name.split(".")[0] for name, _ in imports(PACKAGE / module)} & {"tools", "tests", "examples"}


def test_the_oracle_shares_nothing():
    files = sorted((ROOT / "tools" / "oracle").rglob("*.py"))
    assert files
    for file in files:
        for name, _ in imports(file):
            own = name == "tools.oracle" or name.startswith("tools.oracle.")
            assert own or name.split(".")[0] in sys.stdlib_module_names, f"{file.name} imports {name}"


def test_what_a_module_offers_exists():
    """`__all__` lists names that the module has."""
    for module in MODULES:
        tree = ast.parse((PACKAGE / module).read_text(encoding="utf-8"))
        listed = [
            ast.literal_eval(n.value)
            for n in tree.body
            if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
        ]
        top = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
        top |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
        top |= {t.id for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.AnnAssign) for t in names_of(n)}
        top |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        assert all(set(names) <= top for names in listed), module


def names_of(node: ast.Assign | ast.AnnAssign) -> Iterator[ast.Name]:
    """Names that an assignment binds."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    for target in targets:
        yield from (n for n in ast.walk(target) if isinstance(n, ast.Name))


def test_no_machine_paths():
    """Tracked files name no place of the machine that they were written on."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    place = re.compile(r"(?<![\w.])/(?:work|home|root|Users|tmp|mnt|data)/\w")
    for name in filter(None, listed.stdout.split("\0")):
        file = ROOT / name
        if file.suffix in {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".cfg", ".ipynb"} and file.exists():
            found = place.search(file.read_text(encoding="utf-8"))
            assert not found, f"{name}: {found.group() if found else ''}"
