"""Refuse file systems on which other hosts can open the lock file but do not see this host's locks."""

from __future__ import annotations

import ctypes
import platform
import sys
from typing import Final

from holdfast.errors import EngineRefused

# f_type of statfs(2). Several kernels may mount these together, and then neither flock nor SQLite's shared memory
# reaches all of them; with fuse, the behaviour depends on an unknown daemon. virtiofs and most of gluster show as fuse.
REFUSED: Final = {
    0x6969: "nfs",
    0x517B: "smb",
    0xFF534D42: "cifs",
    0xFE534D42: "smb2",
    0x564C: "ncp",
    0x01021997: "9p",
    0x65735546: "fuse or virtiofs",
    0x786F4256: "vboxsf",
    0xBACBACBC: "vmhgfs",
    0x7C7C6673: "prl_fs",
    0x5346414F: "afs",
    0x6B414653: "kafs",
    0x73757245: "coda",
    0x00C36400: "ceph",
    0x0BD00BD0: "lustre",
    0x47504653: "gpfs",
    0x19830326: "beegfs",
    0x20030528: "orangefs",
    0xAAD7AAEA: "panfs",
    0x7461636F: "ocfs2",
    0x01161970: "gfs2",
    0x61636673: "acfs",
    0xBEEFDEAD: "snfs",
    0x013111A8: "ibrix",
}


def magic(path: str) -> int | None:
    """``f_type`` of the file system that ``path`` is on; None where it is not available (not Linux)."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None, use_errno=True)
    answer = ctypes.create_string_buffer(512)  # struct statfs is 120 bytes or less; f_type is its first field
    if libc.statfs(path.encode(errors="surrogateescape"), answer) != 0:
        return None
    word = ctypes.c_uint if platform.machine() == "s390x" else ctypes.c_long
    return word.from_buffer(answer).value & 0xFFFFFFFF


def refuse_shared(path: str) -> None:
    """Raise EngineRefused if ``path`` is on a network, cluster or VM-shared file system."""
    found = magic(path)
    name = REFUSED.get(found) if found is not None else None
    if name is not None:
        raise EngineRefused(
            f"lock file {path}: it is on a {name} file system, where a lock of this host does not exclude others; "
            "name a file on a local disk, or use a lock server"
        )
