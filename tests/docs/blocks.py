"""Runs the Python blocks of a document in order, in one namespace.

Marks after the language change that: ``python separate`` has its own namespace, ``python pytest`` is a test
module run by pytest, and ``python collect`` is a test module that is only collected because its tests are slow.
Blocks with a top-level ``await`` run on one event loop per document.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient

import holdfast
from tests.docs.markdown import ROOT, Block
from tests.servers.zookeeper import close_client

MARKS: Final = frozenset({"separate", "pytest", "collect"})


class Document:
    """The namespace and the event loop of a document. ``substitutions`` are applied to the text of each block."""

    def __init__(self, scratch: Path, substitutions: Mapping[str, str]) -> None:
        self._scratch = scratch
        self._substitutions = substitutions
        self._namespaces: list[dict[str, Any]] = [{"__name__": "__document__"}]
        self._runner = asyncio.Runner()

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Closes everything the blocks opened: a snippet need not clean up after itself."""
        try:
            for value in [value for namespace in self._namespaces for value in namespace.values()]:
                if isinstance(value, holdfast.Client):
                    value.close()
                elif isinstance(value, holdfast.aio.AsyncClient):
                    self._runner.run(value.close())
                elif type(value).__module__.partition(".")[0] == "redis" and hasattr(value, "connection_pool"):
                    value.close()
                elif isinstance(value, KazooClient):
                    close_client(value)
                elif type(value).__module__.partition(".")[0] == "sqlalchemy" and hasattr(value, "dispose"):
                    disposing = value.dispose()
                    if inspect.isawaitable(disposing):
                        self._runner.run(_awaited(disposing))
        finally:
            self._runner.__exit__(kind, error, traceback)

    def run(self, block: Block) -> None:
        """Runs a block; tracebacks show the line numbers of the document."""
        text = block.text
        for written, used in self._substitutions.items():
            text = text.replace(written, used)
        if {"pytest", "collect"} & set(block.marks):
            self._run_by_pytest(block, text)
            return
        if "separate" in block.marks:
            self._namespaces.append({"__name__": "__document__"})
        namespace = self._namespaces[-1 if "separate" in block.marks else 0]
        result = eval(_compiled(block, text), namespace)
        if inspect.iscoroutine(result):
            self._runner.run(result)

    def _run_by_pytest(self, block: Block, text: str) -> None:
        module = self._scratch / f"test_{block.path.stem.replace('-', '_')}_{block.line}.py"
        module.write_text(text, "utf-8")
        arguments = ["--collect-only"] if "collect" in block.marks else []
        settings = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # twice as fast
        printed = run_python(
            ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "error", *arguments, str(module)], env=settings
        )
        assert "test_" in printed or " passed" in printed, "a test module without tests"


async def _awaited(what: Awaitable[object]) -> None:
    await what


def run_python(arguments: Sequence[str], **keywords: Any) -> str:
    """Runs another interpreter with the modules of this one and returns its output; a failure shows all of it."""
    settings: dict[str, Any] = {"cwd": ROOT, "capture_output": True, "text": True, "timeout": 30, "check": False}
    done = subprocess.run([sys.executable, *arguments], **settings | keywords)
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return str(done.stdout)


def _compiled(block: Block, text: str) -> CodeType:
    # Shifted down to its place in the document, so that a traceback names the line of the document.
    padded = "\n" * (block.line - 1) + text
    code: CodeType = compile(padded, str(block.path), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
    return code
