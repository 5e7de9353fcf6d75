"""The file of the embedded engine. The doctor lets the engine itself judge it, by trying to use it."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from holdfast._config.targets import Target
from holdfast.cli.doctor.finding import Finding, notice, ok, problem
from holdfast.client import Client
from holdfast.engines.sqlite import filesystem, paths
from holdfast.errors import EngineUnavailable, LockError

#: Looked up in an existing lock file, never acquired there: a name that was acquired is remembered for ``token_ttl``.
_PROBE: Final = "holdfast-doctor"


def examine(target: Target) -> Iterator[Finding]:
    """Findings about ``sqlite:``. Files that the engine creates for this are removed again."""
    path = paths.resolve(target.target or paths.default_path())
    yield notice("scope", path, "locks in a file: this host and this user only", "use a server for several hosts")
    kind = filesystem.magic(_nearest_directory(path))
    if kind in filesystem.REFUSED:
        name = filesystem.REFUSED[kind]
        yield problem(
            "file system", path, f"it is on {name}, which other hosts may share", "name a file on a local disk"
        )
        return
    yield _file(target, path)
    if kind is None:
        yield notice("file system", path, "the kind of its file system is unknown on this system", "use a local disk")
    else:
        yield ok("file system", path, "it is on a file system of this host")


def _nearest_directory(path: str) -> str:
    directory = os.path.dirname(path)
    while not os.path.isdir(directory):
        directory = os.path.dirname(directory)
    return directory


def _file(target: Target, path: str) -> Finding:
    stand_in = _stand_in(path)
    try:
        if _is_new(path):
            _try_new(target, stand_in)
            return ok("file", path, "the first lock makes the file, and the engine can use it there")
        _try_existing(target, path)
        return ok("file", path, "the engine can use the file")
    except LockError as error:
        text = str(error).replace(stand_in.made, stand_in.meant)
        if isinstance(error, EngineUnavailable):
            return problem("file", path, f"the file cannot be used now: {text}", "try again; see what keeps it busy")
        return problem("file", path, f"the file is refused: {text}", "name a file in a directory of your own")


def _is_new(path: str) -> bool:
    """Whether it does not exist, or is empty after an interrupted first use. Checks the rights of an empty file."""
    if not os.path.lexists(path):
        return True
    if os.path.isfile(path) and os.path.getsize(path):
        return False
    paths.refuse_unfit(path)
    return True


def _try_existing(target: Target, path: str) -> None:
    """Open the file as a lock would, write to it and read it. LockError if that fails."""
    beside = f"{path}.d"
    was_there = os.path.lexists(beside)
    try:
        with Client(target._replace(target=path)) as locks:
            locks.ping()
            locks.inspect(_PROBE)
    except LockError:
        if not was_there:
            _remove_made(beside)
        raise


def _remove_made(beside: str) -> None:
    """Remove the directory that the engine created beside a file before it refused that file."""
    with suppress(OSError):
        os.unlink(os.path.join(beside, "opening"))
    with suppress(OSError):
        os.rmdir(beside)


class _StandIn(NamedTuple):
    """A path at which the engine is tried instead of one that does not exist yet."""

    path: str
    made: str  #: the part of it that the engine creates first
    meant: str  #: the real path of that part


def _stand_in(path: str) -> _StandIn:
    """``path`` with the first part that is missing replaced by an unused name.

    So the engine checks the directories, their rights and the file system, and creates what is missing. The name is not
    shorter than the one that it replaces, so that a path that is too long is found.
    """
    meant = path
    while not os.path.lexists(os.path.dirname(meant)):
        meant = os.path.dirname(meant)
    directory, name = os.path.split(meant)
    unused = f".{_PROBE}-{secrets.token_hex(8)}".ljust(len(os.fsencode(name)), "_")
    made = os.path.join(directory, unused)
    return _StandIn(made + path[len(meant) :], made, meant)


def _try_new(target: Target, stand_in: _StandIn) -> None:
    """Acquire and release a lock in a new file, and remove the file. LockError if that fails."""
    try:
        with Client(target._replace(target=stand_in.path)) as locks:
            locks.lock(_PROBE).acquire(timeout=0).release()
    finally:
        directory, unused = os.path.split(stand_in.made)
        with suppress(OSError):
            for name in os.listdir(directory):
                if name.startswith(unused):  # the file, and what the engine puts beside it
                    _remove(os.path.join(directory, name))


def _remove(path: str) -> None:
    if os.path.isdir(path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        os.unlink(path)
