"""In `make test`, engines beside memory and Redis run each case with one of the two APIs; in `make soak`, with both.

An engine is written once for both: what differs is how a caller waits and how a socket is read, which memory and Redis
show with every case. The API alternates from case to case, so every engine runs half of its cases with each.
"""

from __future__ import annotations

import zlib
from typing import Final

import pytest

_ONE_API: Final = frozenset({"TestSqlite", "TestCluster", "TestRedlock", "TestZooKeeper"})
_APIS: Final = ("sync", "async")
_REASON: Final = "every case with both APIs on every engine"


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by markers
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if not isinstance(item, pytest.Function) or item.cls is None or item.cls.__name__ not in _ONE_API:
            continue
        api = item.callspec.params.get("world") if hasattr(item, "callspec") else None
        if api is not None and api != _APIS[zlib.crc32(item.originalname.encode()) % 2]:
            item.add_marker(pytest.mark.soak(_REASON))
