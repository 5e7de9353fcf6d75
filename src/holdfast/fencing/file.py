"""A fence for the processes of one host: what it has seen is kept in small files."""

from __future__ import annotations

import hashlib
import os

from holdfast.errors import EngineRefused
from holdfast.fencing.base import Fence
from holdfast.fencing.descriptors import Descriptors
from holdfast.fencing.file_gate import DIRECTORY, DirectoryId, FileGate


class FileFence(Fence):
    """A fence for any number of processes of one user on one host, which share ``directory``.

    ``directory`` belongs to the fence alone. It is made (mode 0700) if it is not there; one that is there must be yours
    and writable by nobody else. Each resource has two small files in it (mode 0600), named by a hash of the resource:
    one carries the OS lock (flock) while a guard is up, the other holds the newest token and its owner. No descriptor
    is kept between guards, so a forked child may use the fence as it is.

    A token is stored whole or not at all, before its guard lets anybody through: a process killed in between leaves
    the older record or the newer one. With ``durable`` (the default) that also holds for a power failure, at the price
    of two fsync for each new token, not for each guard; without it, a power failure may bring an older token back.
    A record that cannot be read, by damage or by hand, refuses everybody (``EngineRefused``): taking it for "nothing
    seen yet" would let an old holder in.

    Not given: other hosts (flock over a network file system is not relied on), and memory of a record that somebody
    deleted. Choose a place that no cleaner of temporary files visits.
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
    """The identity of a directory in which nobody else can swap our files."""
    if status.st_uid != os.geteuid():
        raise EngineRefused(f"{path!r} belongs to another user, who could reset the fence; give FileFence its own")
    if status.st_mode & 0o022:
        raise EngineRefused(f"others may write to {path!r}, and could reset the fence; chmod 700, or use another one")
    return DirectoryId(status.st_dev, status.st_ino)
