"""The suite on a third-party engine, which ``connect`` does not know and which cannot reserve tokens."""

from __future__ import annotations

import uuid

import pytest

import holdfast
from holdfast.testing.conformance import Fixtures, Source
from holdfast.testing.conformance.cases.exclusion import ExclusionCases
from holdfast.testing.conformance.cases.fairness import FairnessCases, HandOverCases
from holdfast.testing.conformance.cases.reentry import ReentryCases


class TestPlainEngine(Fixtures, ExclusionCases, ReentryCases, HandOverCases, FairnessCases):
    engine = "tests.conformance.plain_engine:make_engine"

    @pytest.fixture
    def url(self) -> str:
        return f"plain:{uuid.uuid4().hex}"


def test_source_opens_the_named_engine() -> None:
    source = Source("plain:x", TestPlainEngine.engine)
    with source.open("sync", ttl=5) as client:
        assert client.guarantees.fair is False
        with client.lock("a") as lease:
            assert lease.ttl == 5
    with pytest.raises(holdfast.UsageError):
        holdfast.connect("plain:x")
