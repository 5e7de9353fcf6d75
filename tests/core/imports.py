"""Imports between the parts of a source tree, read from its syntax and compared with a table of allowed directions."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

#: When an import is executed: with the module, inside a function, or never, since it is for type checkers only.
When = Literal["module", "lazy", "typing"]


class Allowed(NamedTuple):
    """The parts that a part may import. What it may import with the module, it may also import later.

    ``built_on_it``: imported lazily, although they import this part: no cycle, since it works without them.
    """

    module: Collection[str] = ()
    lazy: Collection[str] = ()
    typing: Collection[str] = ()
    built_on_it: Collection[str] = ()

    def permits(self, part: str, when: When) -> bool:
        lazy = {*self.module, *self.lazy, *self.built_on_it}
        names = {"module": self.module, "lazy": lazy, "typing": {*self.module, *self.typing}}
        return part in names[when]


class Import(NamedTuple):
    """``path`` imports ``module``, both dotted."""

    path: str
    module: str
    when: When


PACKAGE: Final = "holdfast"


def imports(source: Path) -> Iterator[Import]:
    """Every import, in the tree ``source``, of a module of the tree. ``source`` is the folder of the package."""
    modules = {_dotted(path, source) for path in source.rglob("*.py")}
    for path in sorted(source.rglob("*.py")):
        importer = _dotted(path, source)
        package = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        for node, when in _import_nodes(ast.parse(path.read_text("utf-8")), "module"):
            for name in _imported(node, package):
                while name not in modules and "." in name:
                    name = name.rpartition(".")[0]  # the last part is a name in a module
                if name in modules:
                    yield Import(importer, name, when)


def _dotted(path: Path, source: Path) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join([PACKAGE, *(part for part in parts if part != "__init__")])


def _import_nodes(tree: ast.AST, when: When) -> Iterator[tuple[ast.Import | ast.ImportFrom, When]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node, when
        elif isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING") and not _negated(node):
            yield from _import_nodes(ast.Module(node.body, []), "typing")
            yield from _import_nodes(ast.Module(node.orelse, []), when)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _import_nodes(node, "typing" if when == "typing" else "lazy")
        else:
            yield from _import_nodes(node, when)


def _negated(node: ast.If) -> bool:
    return isinstance(node.test, ast.UnaryOp)


def _imported(node: ast.Import | ast.ImportFrom, package: str) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    base = node.module or ""
    if node.level:
        above = package.rsplit(".", node.level - 1)[0]
        base = f"{above}.{base}" if base else above
    return [f"{base}.{alias.name}" for alias in node.names]


def problems(
    source: Path, part_of: Callable[[str], str], table: Mapping[str, Allowed], owned: Callable[[str], Allowed | None]
) -> list[str]:
    """Sentences about every import that the table does not allow, every part without a row, and every cycle.

    ``part_of`` gives the part of a dotted module; ``owned`` the row of a part that needs none in the table.
    """
    found = []
    edges: dict[str, set[str]] = {}
    parts = {part_of(_dotted(path, source)) for path in source.rglob("*.py")}
    rows = {part: row for part in parts if (row := table.get(part) or owned(part)) is not None}
    found += [f"{part} has no row in the table" for part in sorted(parts - rows.keys())]
    for each in imports(source):
        importer, imported = part_of(each.path), part_of(each.module)
        if importer == imported:
            continue
        back = importer in rows and each.when == "lazy" and imported in rows[importer].built_on_it
        if each.when != "typing" and not back:
            edges.setdefault(importer, set()).add(imported)
        if importer in rows and not rows[importer].permits(imported, each.when):
            found.append(f"{each.path} imports {each.module} ({each.when}), but {importer} may not import {imported}")
    return found + [f"cycle: {' -> '.join(cycle)}" for cycle in cycles(edges)]


def cycles(edges: Mapping[str, Iterable[str]]) -> list[list[str]]:
    """One cycle through each part that is on one, each cycle once."""
    found: dict[frozenset[str], list[str]] = {}
    for start in sorted(edges):
        if (cycle := _path(edges, start)) is not None:
            found.setdefault(frozenset(cycle), cycle)
    return list(found.values())


def _path(edges: Mapping[str, Iterable[str]], start: str) -> list[str] | None:
    """A shortest path from ``start`` back to it."""
    paths, seen = [[start]], set()
    for path in paths:
        for part in sorted(edges.get(path[-1], ())):
            if part == start:
                return [*path, start]
            if part not in seen:
                seen.add(part)
                paths.append([*path, part])
    return None
