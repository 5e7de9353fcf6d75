"""The conformance suite on every engine that holdfast ships."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from holdfast.testing.conformance import ConformanceSuite


class TestMemory(ConformanceSuite):
    @pytest.fixture
    def url(self) -> str:
        return f"memory:{uuid.uuid4().hex}"


class TestSqlite(ConformanceSuite):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite://{tmp_path}/locks.db"


class TestRedis(ConformanceSuite):
    @pytest.fixture
    def url(self, redis_url: str) -> str:
        return redis_url
