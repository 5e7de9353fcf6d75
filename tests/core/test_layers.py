"""The layers keep to themselves: nothing under the core or an engine knows which runtime it runs on."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import holdfast

SOURCE = Path(holdfast.__path__[0])


def modules(folder: str) -> list[Path]:
    return sorted((SOURCE / folder).rglob("*.py"))


def imported(path: Path) -> set[str]:
    """Every module that ``path`` imports at run time; what is only for type checkers does not count."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


#: The asyncio end of an engine in more modules than its ``aio``.
ASYNCIO_ENDS = {"engines/redis/connections/handshake.py"}


@pytest.mark.parametrize("path", modules("_core") + modules("engines"), ids=named)
def test_no_bare_asyncio_in_core_and_engines(path: Path) -> None:
    """What is written once must wait through the runtime. Modules named ``aio…`` are an engine's asyncio end."""
    if not path.stem.startswith("aio") and named(path) not in ASYNCIO_ENDS:
        assert not {name for name in imported(path) if name.partition(".")[0] == "asyncio"}


def _code_of(path: Path) -> str:
    """The source without comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value = ast.Constant("")
    return ast.unparse(tree)


@pytest.mark.parametrize("path", modules("_core"), ids=named)
def test_the_core_knows_no_engine_and_no_driver(path: Path) -> None:
    engines = {name for name in imported(path) if name.startswith("holdfast.engines.")}
    assert all(name.startswith("holdfast.engines.base") for name in engines)
    assert not {name.partition(".")[0] for name in imported(path)} & {"redis", "sqlite3", "hiredis"}


@pytest.mark.parametrize("path", modules("engines"), ids=named)
def test_engines_do_not_reach_into_the_core(path: Path) -> None:
    forbidden = {"core", "acquisition", "watchdog", "hold", "local_queue", "releasing", "renewing"}
    core = {name.split(".")[2] for name in imported(path) if name.startswith("holdfast._core.")}
    assert not core & forbidden
    assert not {"holdfast.client", "holdfast.aio", "holdfast.lease"} & imported(path)


DECIDES = ("lease_time", "states", "local_queue", "retry")


@pytest.mark.parametrize("path", [SOURCE / "_core" / f"{name}.py" for name in DECIDES], ids=named)
def test_what_decides_has_no_clock_and_no_dice(path: Path) -> None:
    assert not imported(path) & {"time", "random", "threading", "holdfast._runtime.clock", "os"}


@pytest.mark.parametrize("path", modules("_core") + modules("_runtime") + [SOURCE / "lease.py"], ids=named)
def test_belief_is_never_measured_by_a_clock_that_stands_still_in_suspend(path: Path) -> None:
    if named(path) != "_core/lifecycle.py":  # the second at interpreter exit is no belief
        assert "time.monotonic" not in _code_of(path)
        assert "time.time(" not in _code_of(path)


@pytest.mark.parametrize("path", modules("."), ids=named)
def test_no_module_is_a_heap(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 500
    assert path.stem not in ("utils", "helpers", "misc", "common")
