"""The Python files of tests/ and what they import: what the rules of the layout are checked on."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]

#: The folders below tests/. A test belongs to the engine or layer that it tests.
FOLDERS: Final = frozenset(
    {
        "bench", "cli", "compat", "config", "conformance", "core", "decorator", "docs", "fencing", "harness", "interop",
        "memory", "observer", "primitives", "redis", "security", "servers", "simulation", "sqlite", "support", "typing",
        "zookeeper",
    }
)  # fmt: skip
#: Code of users on which tests run a type checker or an installer: no part of this package.
_OF_USERS: Final = frozenset({Path("config/toy_engine"), Path("typing/user_code")})
#: Those without tests.
_WITHOUT_TESTS: Final = frozenset({"servers", "support"})


def broken_rules(tests: Path = TESTS) -> list[str]:
    """Each place below ``tests`` where a rule of the layout is broken."""
    return [*_folders(tests), *_places(tests), *_imports(tests), *_map_of_support(tests)]


def _folders(tests: Path) -> Iterator[str]:
    for folder in {file.parent for file in tests.rglob("*.py")}:
        if not (folder / "__init__.py").exists() and folder.relative_to(tests) not in _OF_USERS:
            yield f"{folder.relative_to(tests)}: has no __init__.py"


def _places(tests: Path) -> Iterator[str]:
    for file in tests.rglob("test_*.py"):
        place = file.relative_to(tests)
        if place.parts[0] not in FOLDERS - _WITHOUT_TESTS or len(place.parts) < 2:
            yield f"{place}: a test belongs below one of {', '.join(sorted(FOLDERS - _WITHOUT_TESTS))}"
    for folder in tests.iterdir():
        if any(folder.glob("*.py")) and folder.name not in FOLDERS:
            yield f"{folder.name}: is not a folder of tests/support/source_files.py"


def _imports(tests: Path) -> Iterator[str]:
    for file in tests.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            for module in _modules(node):
                if module.rpartition(".")[2].startswith("test_"):
                    yield f"{file.relative_to(tests)}:{node.lineno}: imports from the test module {module}"  # type: ignore[attr-defined]


def _modules(node: ast.AST) -> list[str]:
    """The modules that an import names, and the names that it takes from a package of ours."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name.startswith("tests.")]
    if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "tests"):
        return [node.module or "", *(f"{node.module or ''}.{alias.name}" for alias in node.names)]
    return []


def _map_of_support(tests: Path) -> Iterator[str]:
    package = tests / "support" / "__init__.py"
    described = ast.get_docstring(ast.parse(package.read_text("utf-8"))) if package.exists() else None
    for file in (tests / "support").glob("[!_]*.py"):
        if f"``{file.stem}``" not in (described or ""):
            yield f"support/{file.name}: is not in the map of tests/support/__init__.py"
