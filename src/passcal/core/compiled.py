"""How kernel functions are compiled, where compiled code is kept, and how to run without compiling.

`jit` marks a function that other kernel functions call; `entry` marks one that Python calls. Only entries are kept on disk: their
machine code holds everything they call. Numba's own cache looks at one source file only and would miss a change in a callee of
another file, so entries are kept in a folder named after the package's version and a hash of all kernel sources.

Environment: `PASSCAL_INTERPRET=1` runs the kernel as plain Python (debugging, coverage); `PASSCAL_CACHE_DIR` moves the cache.
"""

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

F = TypeVar("F", bound=Callable[..., Any])

__all__ = ["INTERPRETED", "cache_folder", "entry", "jit", "kernel_stamp", "table"]

INTERPRETED = os.environ.get("PASSCAL_INTERPRET", "") not in ("", "0")
PACKAGE = Path(__file__).resolve().parents[1]
COMPILED_ROOMS = (
    "core",
    "calendar",
    "timing",
    "sources",
    "screening",
    "hand_offs.py",
    "instants.py",
    "kernel.py",
    "passes.py",
)


@cache
def kernel_stamp() -> str:
    """Hash of every source file that compiled code may come from."""
    digest = hashlib.sha256()
    for room in COMPILED_ROOMS:
        place = PACKAGE / room
        for file in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            digest.update(file.relative_to(PACKAGE).as_posix().encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@cache
def cache_folder() -> Path:
    """The user's cache folder for this version and these kernel sources; it may not exist yet."""
    home = os.environ.get("PASSCAL_CACHE_DIR")
    if home:
        root = Path(home)
    elif sys.platform == "win32":
        root = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "passcal"
    else:
        root = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "passcal"
    return root / kernel_stamp()


if INTERPRETED:

    def jit(function: F) -> F:
        """Leave the function as it is."""
        return function

    entry = jit

else:
    import numba
    from numba.core import event, itanium_mangler
    from numba.core.caching import CompileResultCacheImpl, FunctionCache
    from numba.core.codegen import JITCodeLibrary, JITCPUCodegen
    from numba.core.compiler_lock import global_compiler_lock

    ENTRY_ONLY = ("_optimize_functions", "get_pointer_to_function")  # what is done for the library of an entry only

    class _Locator:
        """Tells numba's cache where files go and when they are stale; the stamp covers all kernel sources."""

        def __init__(self, function: Callable[..., Any]) -> None:
            self.function = function

        def ensure_cache_path(self) -> None:
            path = Path(self.get_cache_path())
            path.mkdir(parents=True, exist_ok=True)
            probe = path / f".probe-{os.getpid()}"
            probe.touch()
            probe.unlink()

        def get_cache_path(self) -> str:
            return str(cache_folder())

        def get_source_stamp(self) -> str:
            return kernel_stamp()

        def get_disambiguator(self) -> str:
            return str(self.function.__code__.co_firstlineno)

        @classmethod
        def from_function(cls, function: Callable[..., Any], file: str) -> "_Locator | None":
            locator = cls(function)
            try:
                locator.ensure_cache_path()
            except OSError:
                return None
            return locator

    _Impl: Any = type("_Impl", (CompileResultCacheImpl,), {"_locator_classes": [_Locator]})

    class _KernelCache(FunctionCache):
        _impl_class = _Impl

    # Numba's reference counting is off (`_nrt`): kernel functions never allocate, their arrays are the caller's, and counting them at
    # every call costs five times what a pass does.
    njit: Any = partial(numba.njit, nogil=True, _nrt=False, no_cfunc_wrapper=True)

    def jit(function: F) -> F:
        """Compile a function that only kernel functions call."""
        compiled = njit(no_cpython_wrapper=True)(function)
        compile_signature = compiled.compile
        compiled.compile = lambda signature: compile_signature(tuple(map(widened, signature)))
        kept: F = compiled
        return kept

    def widened(kind: Any) -> Any:
        """The type that a function is compiled for: once for all integers, known or not, instead of once for each width and literal."""
        kind = numba.types.unliteral(kind)
        return numba.types.int64 if isinstance(kind, numba.types.Integer) and kind.bitwidth < 64 else kind

    def entry(function: F) -> F:
        """Compile a function that Python calls, and keep its machine code on disk."""
        compiled = njit()(function)
        with suppress(RuntimeError):  # no folder can be written: compile in every process
            keep: Any = _KernelCache
            compiled._cache = keep(function)
        compile_signature = compiled.compile

        def compile_once(signature: Any) -> Any:
            with global_compiler_lock, optimised_once(function.__name__):
                return compile_signature(signature)

        compiled.compile = compile_once
        kept: F = compiled
        return kept

    def short_names(kinds: Any) -> str:
        """The part of a symbol's name that tells argument types.

        Numba spells types out, with all fields of the tables; a symbol would have tens of thousands of letters, wherever it is called.
        """
        return "".join(map(short_name, kinds))

    @cache
    def short_name(kind: Any) -> str:
        """A type in a symbol's name; long ones by a hash."""
        name: str = itanium_mangler.mangle_type_or_value(kind)
        return name if len(name) <= 64 else "21T" + hashlib.sha256(name.encode()).hexdigest()[:20]

    @contextmanager
    def optimised_once(name: str) -> Iterator[None]:
        """Let LLVM link, optimise and emit the module of the entry only, once, with all that it calls, however deep.

        Numba would first do the same for every callee with all of its own callees, which makes compiling quadratic in the depth of calls. So a
        `jit` function has no machine code of its own: Python must not call it.
        """
        steps = {step: getattr(JITCodeLibrary, step) for step in (*ENTRY_ONLY, "finalize")}
        set_env, broadcast = JITCPUCodegen.set_env, event.broadcast
        mangle_args = itanium_mangler.mangle_args

        def is_entry(library: Any) -> bool:
            return bool(library.name.rsplit(".", 1)[-1] == name)

        def only_entry(step: str) -> Callable[..., Any]:
            return lambda library, *arguments: steps[step](library, *arguments) if is_entry(library) else 0

        def finalize(library: Any) -> None:
            if is_entry(library):
                library._linking_libraries = everything_below(library)
                steps["finalize"](library)
            else:
                library._finalize_dynamic_globals()
                library._finalized = True

        def set_known_env(codegen: Any, symbol: str, env: Any) -> None:
            if codegen._engine.is_symbol_defined(symbol):
                set_env(codegen, symbol, env)

        for step in ENTRY_ONLY:
            setattr(JITCodeLibrary, step, only_entry(step))
        JITCodeLibrary.finalize = finalize
        JITCPUCodegen.set_env, event.broadcast = set_known_env, lambda _: None
        itanium_mangler.mangle_args = short_names
        try:
            yield
        finally:
            for step, method in steps.items():
                setattr(JITCodeLibrary, step, method)
            JITCPUCodegen.set_env, event.broadcast = set_env, broadcast
            itanium_mangler.mangle_args = mangle_args

    def everything_below(library: Any) -> list[Any]:
        """The libraries that a library calls, and those that these call, each once."""
        found: dict[Any, None] = {}
        waiting = list(library._linking_libraries)
        while waiting:
            below = waiting.pop()
            if below not in found:
                found[below] = None
                waiting.extend(below._linking_libraries)
        return list(found)


def table(rows: Any) -> Any:
    """A structured array as kernel functions take it: with fields as attributes in interpreted mode too."""
    return rows.view(np.recarray) if INTERPRETED else rows
