"""The engines without a server: what little there is to say about them."""

from __future__ import annotations

import os
from collections.abc import Iterator

from holdfast.cli.doctor.finding import Finding, notice, ok, problem
from holdfast.engines.sqlite import filesystem, paths
from holdfast.errors import LockError
from holdfast.options import Target


def examine(target: Target) -> list[Finding]:
    """Findings about ``memory:`` or ``sqlite:``. Files are looked at; a missing one is not made."""
    return list(_memory() if target.engine == "memory" else _sqlite(target.target))


def _memory() -> Iterator[Finding]:
    yield notice(
        "scope",
        "",
        "locks are in this process's memory: no other process sees them, and they end with it",
        "use sqlite: for several processes of one host, a server for several hosts",
    )


def _sqlite(given: str | None) -> Iterator[Finding]:
    path = paths.resolve(given or paths.default_path())
    yield notice("scope", path, "locks in a file: this host and this user only", "use a server for several hosts")
    if os.path.exists(path):
        try:
            paths.secure(path).close()
        except LockError as error:
            yield problem("file", path, f"the file is refused: {error}", "name a file in a directory of your own")
            return
        yield ok("file", path, "the file belongs to this user alone")
    else:
        yield ok("file", path, "the file is not there yet: the first lock makes it")
    directory = os.path.dirname(path)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    kind = filesystem.magic(directory)
    if kind in filesystem.REFUSED:
        name = filesystem.REFUSED[kind]
        yield problem(
            "file system", path, f"it is on {name}, which other hosts may share", "name a file on a local disk"
        )
    elif kind is None:
        yield notice("file system", path, "this system does not tell what its file system is", "use a local disk")
    else:
        yield ok("file system", path, "it is on a file system of this host")
