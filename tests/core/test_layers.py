"""The parts of the package import each other in the allowed directions only, and keep to their own concerns.

``LAYERS`` is the architecture: which part may import which, with the module, and which only later (inside a function,
or for type checkers). Engines need no row there: a new engine is a folder and a row in the registry.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import holdfast
from holdfast.engines import registry
from tests.core.imports import Allowed, problems

SOURCE = Path(holdfast.__path__[0])

#: The modules and packages of the public API.
FACE: Final = frozenset(
    {"base_client", "client", "aio", "lease", "async_lease", "decorator", "current", "default_clients"}
)
ENGINES: Final = sorted({f"engines.{row.url.split('.')[2]}" for row in registry.BUILT_IN})

_BELOW_THE_FACE: Final = ("errors", "_version", "_runtime", "_config", "port", "registry", "_core", "observer")

LAYERS: Final = {
    "errors": Allowed(),
    "_version": Allowed(),
    "_runtime": Allowed(["errors"]),
    # The modules directly under engines/ that are no engines: base.py, and what core and engines share.
    "port": Allowed(["errors", "_runtime"]),
    # It names the modules of engines in texts and imports them on first use.
    "registry": Allowed(["errors", "_version"], typing=["_config", "port"]),
    "_config": Allowed(["errors", "registry"], lazy=["observer"], typing=["observer", "options"]),
    "observer": Allowed(["errors", "_runtime"], typing=["_core", "port"]),
    "_core": Allowed(["errors", "_runtime", "_config", "port"], typing=["observer"]),
    # connect_options.py: the options of all engines together, for type checkers.
    "options": Allowed(["_config", *ENGINES]),
    "face": Allowed(_BELOW_THE_FACE, built_on_it=["primitives"], typing=["options", "primitives"]),
    # What is built on locks. Loaded by the methods of a client that make one.
    "primitives": Allowed([*_BELOW_THE_FACE, "face"]),
    # holdfast/__init__.py: its names are imported on first use.
    "holdfast": Allowed(
        ["_version"], typing=["face", "primitives", "errors", "port", "_config", "options", "fencing", "observer"]
    ),
    # The Redis fence refuses names that the Redis engine reserves.
    "fencing": Allowed(["errors", "_runtime", "_config", "engines.redis"], typing=["observer"]),
    # The locks of redis-py, on the Redis engine.
    "compat": Allowed(["errors", "_runtime", "face", "holdfast", "engines.redis"]),
    "contrib": Allowed(["fencing"]),
    # The fault proxy recognises the scripts of the Redis engine.
    "testing": Allowed(
        ["errors", "_runtime", "_config", "port", "observer", "face", "primitives", "holdfast", "engines.redis"]
    ),
    "cli": Allowed([*_BELOW_THE_FACE, *ENGINES, "face", "primitives", "holdfast", "fencing", "testing"]),
}

#: The row of every engine: none imports the core, the registry or another engine.
ENGINE: Final = Allowed(["errors", "_runtime", "_config", "port"])


def parts_of(source: Path) -> Callable[[str], str]:
    """Which part a dotted module of the tree ``source`` belongs to."""

    def part_of(module: str) -> str:
        _, *names = module.split(".")
        if not names:
            return "holdfast"
        if names[0] != "engines":
            return "options" if names[0] == "connect_options" else "face" if names[0] in FACE else names[0]
        if names[1:] == ["registry"]:
            return "registry"
        engine = ".".join(names[:2])
        return engine if engine in ENGINES or (source.joinpath(*names[:2]).is_dir() and names[1:]) else "port"

    return part_of


def row_of_engine(part: str) -> Allowed | None:
    return ENGINE if part.startswith("engines.") else None


def test_parts_import_each_other_in_the_allowed_directions_without_cycles() -> None:
    assert problems(SOURCE, parts_of(SOURCE), LAYERS, row_of_engine) == []


def test_every_engine_folder_has_a_row_in_the_registry() -> None:
    folders = {f"engines.{path.parent.name}" for path in (SOURCE / "engines").glob("*/__init__.py")}
    assert folders <= set(ENGINES)


TREE: Final = {
    "errors.py": "",
    "client.py": "from holdfast._core import core\nfrom holdfast.errors import LockError",
    "_core/__init__.py": "",
    "_core/core.py": "from holdfast.engines.base import Engine",
    "_config/__init__.py": "",
    "_config/urls.py": "def load():\n    from holdfast.engines import registry",
    "engines/base.py": "",
    "engines/registry.py": "",
    "engines/toy/__init__.py": "",
    "engines/toy/engine.py": "from holdfast._config import urls\nfrom holdfast.engines.base import Engine",
    "engines/redis/__init__.py": "",
}


def problems_with(tmp_path: Path, changed: dict[str, str]) -> list[str]:
    """What is reported about a small tree with these files beside, or instead of, those of TREE."""
    source = tmp_path / "holdfast"
    for name, text in (TREE | changed).items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, "utf-8")
    return problems(source, parts_of(source), LAYERS, row_of_engine)


def test_small_tree_without_a_wrong_import_is_accepted(tmp_path: Path) -> None:
    assert problems_with(tmp_path, {}) == []


@pytest.mark.parametrize(
    "path, text, reported",
    [
        ("engines/toy/engine.py", "from holdfast._core import core", "engines.toy may not import _core"),
        ("engines/toy/engine.py", "from ..._core import core", "engines.toy may not import _core"),
        ("engines/toy/engine.py", "import holdfast.engines.redis", "engines.toy may not import engines.redis"),
        ("engines/toy/engine.py", "from holdfast.engines import registry", "engines.toy may not import registry"),
        ("engines/base.py", "from holdfast.engines.toy import engine", "port may not import engines.toy"),
        ("_core/core.py", "from holdfast.engines.toy.engine import x", "_core may not import engines.toy"),
        ("_core/core.py", "def f():\n    import holdfast.client", "_core may not import face"),
        ("_config/urls.py", "from holdfast._core.core import Core", "_config may not import _core"),
        ("errors.py", "class A:\n    from holdfast import client", "errors may not import face"),
        ("errors.py", "if TYPE_CHECKING:\n    from holdfast import client", "errors may not import face"),
        ("stray.py", "", "stray has no row in the table"),
        ("stray/__init__.py", "", "stray has no row in the table"),
    ],
)
def test_wrong_import_is_reported(tmp_path: Path, path: str, text: str, reported: str) -> None:
    assert any(reported in problem for problem in problems_with(tmp_path, {path: text}))


def test_import_allowed_for_typing_only_is_reported_at_run_time(tmp_path: Path) -> None:
    observer = {"observer/__init__.py": "if TYPE_CHECKING:\n    from holdfast._core.core import Core"}
    assert problems_with(tmp_path, observer) == []
    observer = {"observer/__init__.py": "if not TYPE_CHECKING:\n    from holdfast._core.core import Core"}
    assert problems_with(tmp_path, observer) == [
        "holdfast.observer imports holdfast._core.core (module), but observer may not import _core"
    ]


def test_cycle_is_reported_also_if_each_of_its_imports_is_allowed(tmp_path: Path) -> None:
    changed = {
        "lease.py": "import holdfast.client",
        "_config/urls.py": "def f():\n    import holdfast.observer",
        "observer/__init__.py": "def f():\n    import holdfast._config.urls",
    }
    assert "cycle: _config -> observer -> _config" in problems_with(tmp_path, changed)


# ---- nothing outside an engine's folder names an engine

#: May name engines: the registry, and what is written for one of them.
NAME_ENGINES: Final = (
    "engines/registry.py",
    "cli/",
    "compat/",
    "fencing/",
    "testing/",
    "contrib/",
    "__init__.py",  # names of types
    "connect_options.py",
)
#: Elsewhere, the texts and names with an engine's name in them, and why they are there.
ALLOWED_NAMES: Final = {
    # Advice about another interface, not about an engine.
    "_config/foreign_keywords.py": "holdfast.compat.redis_py.Lock has the interface of redis-py's Lock",
}
#: "memory" and "cluster" have other meanings too.
_ENGINE_NAMES: Final = re.compile(
    "|".join(sorted({name for row in registry.BUILT_IN for name in (row.name, *row.drivers)} - {"memory", "cluster"})),
    re.IGNORECASE,
)


def engines_named_in(path: Path) -> set[str]:
    """The texts and names in the code, without comments and docstrings, that contain an engine's name."""
    found = set()
    for node in ast.walk(ast.parse(_code_of(path))):
        for text in (getattr(node, field, None) for field in ("id", "attr", "name", "arg", "module", "value")):
            if isinstance(text, str) and _ENGINE_NAMES.search(text):
                found.add(text)
    return found


def _outside_engines() -> list[Path]:
    folders = tuple(f"engines/{engine.split('.')[1]}" for engine in ENGINES)
    return [path for path in modules(".") if not named(path).startswith((*NAME_ENGINES, *folders))]


def test_no_code_outside_its_folder_names_an_engine() -> None:
    found = {named(path): engines_named_in(path) for path in _outside_engines()}
    unexpected = {
        path: texts for path, texts in found.items() if any(ALLOWED_NAMES.get(path, "\0") not in text for text in texts)
    }
    assert unexpected == {}


# ---- what each part keeps to


def modules(folder: str) -> list[Path]:
    return sorted((SOURCE / folder).rglob("*.py"))


@functools.cache
def imported(path: Path) -> frozenset[str]:
    """Every module that ``path`` imports at run time; what is only for type checkers does not count."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


#: The asyncio end of an engine in more modules than its ``aio``.
ASYNCIO_ENDS = {"engines/redis/connections/handshake.py"}


def test_no_bare_asyncio_in_core_and_engines() -> None:
    """Code that is written once must wait through the runtime. Modules named ``aio…`` are an engine's asyncio end."""
    for path in modules("_core") + modules("engines"):
        if not path.stem.startswith("aio") and named(path) not in ASYNCIO_ENDS:
            assert not {name for name in imported(path) if name.partition(".")[0] == "asyncio"}, named(path)


@functools.cache
def _code_of(path: Path) -> str:
    """The source without comments and docstrings."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            node.value = ast.Constant("")
    return ast.unparse(tree)


def test_core_and_configuration_import_no_driver() -> None:
    drivers = {driver for row in registry.BUILT_IN for driver in row.drivers} | {"sqlite3"}
    for path in modules("_core") + modules("_config"):
        assert not {name.partition(".")[0] for name in imported(path)} & drivers, named(path)


DECIDES = ("lease_time", "states", "local_queue", "retry")


@pytest.mark.parametrize("path", [SOURCE / "_core" / f"{name}.py" for name in DECIDES], ids=named)
def test_pure_decisions_use_no_clock_and_no_randomness(path: Path) -> None:
    assert not imported(path) & {"time", "random", "threading", "holdfast._runtime.clock", "os"}


@pytest.mark.parametrize("path", modules("_core") + modules("_runtime") + [SOURCE / "lease.py"], ids=named)
def test_deadlines_are_never_measured_by_a_clock_that_stops_in_suspend(path: Path) -> None:
    if named(path) != "_core/lifecycle.py":  # the second at interpreter exit is no deadline of a lease
        assert "time.monotonic" not in _code_of(path)
        assert "time.time(" not in _code_of(path)


def test_no_module_is_too_long_or_has_a_name_without_meaning() -> None:
    for path in modules("."):
        assert len(path.read_text("utf-8").splitlines()) <= 500, named(path)
        assert path.stem not in ("utils", "helpers", "misc", "common"), named(path)
