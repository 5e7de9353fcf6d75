"""What a lock of Redisson's or Curator's is in Python; and names that are hard to write the same way twice."""

from __future__ import annotations

from typing import Any, Final

import holdfast

_NAMES: Final = (
    "order:42", "a/b", ".", "two words", " ", "tab\there", "new\nline", "nul\0byte", "Zoë", "名前", "🔒", "{shop}",
    "{shop}:cart", "a{b}c", "{", "}", "}{", "{}", "a{b", "a}b", "100%", "%2F", "a+b", "?x=1#y", "*[a-z]?", "mode",
    "x" * 500,
)  # fmt: skip


def awkward_names(*, in_cluster: bool = False) -> list[str]:
    """A cluster refuses names whose braces are no hash tag: Redisson's keys would be in several slots."""
    refused = ("{", "}", "}{", "{}", "a{b", "a}b") if in_cluster else ()
    return [name for name in _NAMES if name not in refused]


def counterpart(locks: holdfast.Client, kind: str, name: str) -> Any:
    """Python's lock, which excludes that kind: its ``acquire`` and ``try_acquire``."""
    if kind in ("read", "write"):
        return locks.rwlock(name).write
    if kind == "permits":
        return locks.semaphore(name, 1)
    if kind == "multi":
        return locks.multi([locks.lock(each) for each in name.split(" ")])
    return locks.lock(name)


def exclusive(locks: holdfast.Client, kind: str, name: str = "name", *, timeout: float = 20.0) -> Any:
    """A lease of it; of a leader, where ``kind`` is ``latch``."""
    if kind == "latch":
        return locks.election(name).campaign(timeout=timeout)
    return counterpart(locks, kind, name).acquire(timeout=timeout)


def same(locks: holdfast.Client, kind: str, name: str) -> Any:
    """A lease of that kind itself: readers do not exclude each other."""
    return locks.rwlock(name).read.acquire(timeout=20) if kind == "read" else exclusive(locks, kind, name)
