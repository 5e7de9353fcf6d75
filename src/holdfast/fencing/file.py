"""A fence for the processes of one host. It stores the accepted tokens in small files."""

from __future__ import annotations

import hashlib
import os

from holdfast.errors import EngineRefused
from holdfast.fencing.base import Fence
from holdfast.fencing.descriptors import Descriptors
from holdfast.fencing.file_gate import DIRECTORY, DirectoryId, FileGate


class FileFence(Fence):
    """A fence for any number of processes of one user on one host, which share ``directory``.

    ``directory`` must be used by the fence only. It is created (mode 0700) if it does not exist; an existing one must
    belong to this user, and no other user may write to it. Each resource has two small files in it (mode 0600), named
    by a hash of the resource: one is locked (flock) while a guard is raised, the other contains the newest token and
    its owner. No descriptor is kept open between guards, so a forked child may use the same fence.

    A token is stored atomically, before its guard is entered: if the process is killed meanwhile, the file contains the
    older record or the newer one. With ``durable`` (the default) this also holds for a power failure, at the price of
    two fsync calls for each new token (not for each guard); without it, an older token may come back after a power
    failure. If a record is damaged, every token is refused (``EngineRefused``): treating it as "no token yet" would let
    an old holder in.

    Not guaranteed: anything between hosts (flock on network file systems is not reliable), or after a record was
    deleted. Choose a directory that is not cleaned up automatically.
    """

    def __init__(self, directory: str | os.PathLike[str], *, durable: bool = True) -> None:
        # Absolute: a later chdir must not move the fence.
        self._path = os.path.abspath(os.fspath(directory))
        self._durable = durable
        try:
            os.mkdir(self._path, 0o700)
        except FileExistsError:
            pass
        files = Descriptors()
        try:
            self._id = _trusted(self._path, os.fstat(files.open(self._path, DIRECTORY)))
        finally:
            files.close()

    def _gate(self, resource: str) -> FileGate:
        name = hashlib.sha256(resource.encode()).hexdigest()  # never a path made of the caller's text
        return FileGate(self._path, self._id, name, resource, self._durable)

    def __repr__(self) -> str:
        return f"FileFence({self._path!r}, durable={self._durable})"


def _trusted(path: str, status: os.stat_result) -> DirectoryId:
    """The identity of a directory in which no other user can replace files."""
    if status.st_uid != os.geteuid():
        raise EngineRefused(f"{path!r} belongs to another user, who could reset the fence; give FileFence its own")
    if status.st_mode & 0o022:
        raise EngineRefused(f"others may write to {path!r}, and could reset the fence; chmod 700, or use another one")
    return DirectoryId(status.st_dev, status.st_ino)
