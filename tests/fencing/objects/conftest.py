"""Stores for tests of ObjectFence: one in memory, and S3 on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from obstore.store import MemoryStore, S3Store

from tests.servers.moto import MotoServer


@pytest.fixture(scope="session")
def s3_server() -> Iterator[MotoServer]:
    server = MotoServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> MemoryStore | S3Store:
    if request.param == "memory":
        return MemoryStore()
    server: MotoServer = request.getfixturevalue("s3_server")
    return server.bucket()[0]
