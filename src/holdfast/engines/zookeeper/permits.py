"""How many permits a semaphore has, and how many of them are held. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines.zookeeper import order
from holdfast.errors import EngineRefused, UsageError

#: As Curator's SharedCount writes it.
_NUMBER: Final = struct.Struct(">i")
_LARGEST: Final = 2**31 - 1

#: The servers refuse larger requests (jute.maxbuffer, 1 MiB); a permit's part of one, beside its path, in bytes.
_LARGEST_REQUEST: Final = 900_000
_PER_PERMIT: Final = 128


def written(size: int) -> bytes:
    """The data of the node that stores the size."""
    if size > _LARGEST:
        raise UsageError(f"a semaphore on ZooKeeper has at most {_LARGEST} permits")
    return _NUMBER.pack(size)


class StoredSize(NamedTuple):
    """How many permits there are: the number, the version of its node, and the transaction that wrote it."""

    number: int
    version: int
    written: int

    @classmethod
    def of(cls, path: str, data: bytes, stat: Any) -> StoredSize:
        if len(data) != _NUMBER.size:
            raise EngineRefused(
                f"{path} is not a number of four bytes, as Curator's SharedCount writes it: remove or correct it"
            )
        return cls(_NUMBER.unpack(data)[0], stat.version, stat.mzxid)


class Room(NamedTuple):
    """``leases``: the permits that are held; None: there was never one. ``stored``: how many there are; None: it is not
    stored, and ``size`` is what the claim says. ``size`` is None for any number."""

    leases: frozenset[str] | None
    stored: StoredSize | None
    size: int | None

    @classmethod
    def of(cls, leases: Iterable[str] | None, stored: StoredSize | None, claimed: int) -> Room:
        size = (claimed or None) if stored is None else stored.number
        return cls(None if leases is None else frozenset(leases), stored, size)

    @property
    def held(self) -> frozenset[str]:
        return self.leases or frozenset()

    def fits(self, count: int) -> bool:
        return self.size is None or len(self.held) + count <= self.size

    def held_by(self, uuid: str) -> Sequence[str]:
        return order.find_own(self.held, uuid)

    def impossible(self, count: int, lease: str) -> str | None:
        """Why ``count`` permits can never be taken together, if so. ``lease``: the path of one."""
        if self.size is not None and count > self.size:
            return f"{count} permits were asked for, and it has {self.size}"
        most = _LARGEST_REQUEST // (len(lease) + _PER_PERMIT)
        if count > most:
            return f"{count} permits were asked for, and ZooKeeper grants at most {most} in one step"
        return None


def grouped(leases: Iterable[str]) -> dict[str, list[str]]:
    """The permits by the claim that holds them; a foreign one by itself."""
    groups: dict[str, list[str]] = {}
    for lease in sorted(leases):
        groups.setdefault(order.id_in(lease) or lease, []).append(lease)
    return groups
