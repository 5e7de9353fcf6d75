"""The data of the simulated Redis: typed values with an expiry in server milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

V = TypeVar("V")

#: Redis types by the Python type of their values here. A sorted set is a subclass, to distinguish it from a hash.
_TYPE_NAMES: Final[dict[type, bytes]] = {}


class ReplyError(Exception):
    """An error reply of the server; the text begins with its code."""


class SortedSet(dict[bytes, float]):
    """Members with scores."""

    def ranked(self) -> list[tuple[bytes, float]]:
        return sorted(self.items(), key=lambda item: (item[1], item[0]))


_TYPE_NAMES.update({bytes: b"string", dict: b"hash", list: b"list", SortedSet: b"zset"})


class Keyspace:
    """Keys, values, expiry. ``touched`` is called for every key that changes, as client tracking needs it.

    An expired key is gone for every read. As on a real server, the change is only *pushed* when a client reads the key
    or when the background expiry removes it, which may be much later.
    """

    def __init__(self, milliseconds: Callable[[], int], touched: Callable[[bytes], None]) -> None:
        self._milliseconds = milliseconds
        self._touched = touched
        self._values: dict[bytes, Any] = {}
        self._expiry: dict[bytes, int] = {}

    def _drop_expired(self, key: bytes) -> None:
        expiry = self._expiry.get(key)
        if expiry is not None and self._milliseconds() > expiry:
            self.remove(key)

    def expire_all(self) -> None:
        """The background expiry cycle."""
        for key in list(self._expiry):
            self._drop_expired(key)

    def __contains__(self, key: bytes) -> bool:
        self._drop_expired(key)
        return key in self._values

    def __iter__(self) -> Iterator[bytes]:
        return iter([key for key in list(self._values) if key in self])

    def type_name(self, key: bytes) -> bytes:
        return _TYPE_NAMES[type(self._values[key])] if key in self else b"none"

    def read(self, key: bytes, kind: type[V]) -> V | None:
        """The value, or None if there is no such key."""
        self._drop_expired(key)
        value = self._values.get(key)
        if value is not None and type(value) is not kind:
            raise ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
        return value

    def open(self, key: bytes, kind: type[V]) -> V:
        """The container under ``key``, created if missing. Change it in place and then call :meth:`changed`."""
        value = self.read(key, kind)
        if value is None:
            value = self._values[key] = kind()
        return value

    def peek(self, key: bytes) -> Any:
        """The value, for checkers: reading it changes nothing, not even for an expired key."""
        expiry = self._expiry.get(key)
        return None if expiry is not None and self._milliseconds() > expiry else self._values.get(key)

    def changed(self, key: bytes) -> None:
        """Call this after changing a container. It removes the key if the container is empty."""
        if not self._values[key]:
            self.remove(key)
        else:
            self._touched(key)

    def replace(self, key: bytes, value: bytes, expiry: int | None) -> None:
        """Set a string with a new expiry."""
        self._values[key] = value
        self._expiry.pop(key, None)
        if expiry is not None:
            self._expiry[key] = expiry
        self._touched(key)

    def remove(self, key: bytes) -> bool:
        self._expiry.pop(key, None)
        if self._values.pop(key, None) is None:
            return False
        self._touched(key)
        return True

    def clear(self) -> None:
        """Removes all keys. The caller sends the push: Redis pushes one null for all."""
        self._values.clear()
        self._expiry.clear()

    def expiry(self, key: bytes) -> int | None:
        """When ``key`` expires; None: never. The key must exist."""
        return self._expiry.get(key)

    def set_expiry(self, key: bytes, expiry: int | None) -> None:
        if expiry is None:
            del self._expiry[key]
        elif expiry <= self._milliseconds():
            self.remove(key)
            return
        else:
            self._expiry[key] = expiry
        self._touched(key)
