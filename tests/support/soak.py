"""Many repetitions of what a smaller case of the same test shows: run by ``make soak``, not by ``make test``.

``@pytest.mark.parametrize("runs", [10, soak(80, reason="…")])``. The reason says what only the repetitions could show.
``tests/harness/test_soak.py`` checks that each has a smaller case beside it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


def soak(*values: object, reason: str) -> Any:
    """A case for ``parametrize``."""
    return pytest.param(*values, marks=pytest.mark.soak(reason))


def broken_soaks(file: Path) -> Iterator[str]:
    """Where a test file calls ``soak`` without a smaller case or a reason, or sets the mark by itself."""
    tree = ast.parse(file.read_text("utf-8"))
    beside_smaller = {
        case
        for node in ast.walk(tree)
        if isinstance(node, ast.List) and not all(map(_is_soak, node.elts))
        for case in node.elts
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "soak":
            yield f"{file.name}:{node.lineno}: use soak(…) of tests.support.soak in place of the mark"
        elif isinstance(node, ast.Call) and _is_soak(node):
            if node not in beside_smaller:
                yield f"{file.name}:{node.lineno}: has no smaller case beside it"
            if not any(keyword.arg == "reason" and _is_text(keyword.value) for keyword in node.keywords):
                yield f"{file.name}:{node.lineno}: gives no reason"


def _is_soak(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "soak"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) >= 3
