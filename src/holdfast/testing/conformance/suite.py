"""ConformanceSuite: all cases; Fixtures: the pytest fixtures that they need."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.register_assert_rewrite("holdfast.testing.conformance.cases")  # before they are imported

from holdfast.testing.conformance import cases  # noqa: E402
from holdfast.testing.conformance.opening import Api, Source  # noqa: E402
from holdfast.testing.conformance.writing import Plan, skip_unless_given  # noqa: E402


class Fixtures:
    """The fixtures of the suite without its cases: ``class TestSome(Fixtures, ExclusionCases)`` runs a part of it."""

    #: "package.module:function" of a function that creates the engine for a URL; None: holdfast knows the URL.
    engine: ClassVar[str | None] = None
    #: Every short ttl of the cases, and every wait and deadline, is multiplied by it: 1 or more, for a slow engine or
    #: machine. With 1, the shortest leases are lost if a request or its caller stalls for 0.15 s.
    pace: ClassVar[float] = 1.0

    @pytest.fixture
    def url(self) -> str:
        """The URL of the engine under test. Override it."""
        raise NotImplementedError("override the fixture url: a suite without an engine tests nothing")

    @pytest.fixture
    def source(self, request: pytest.FixtureRequest, url: str) -> Source:
        source = Source(url, self.engine, self.pace)
        skip_unless_given(request, source)
        return source

    @pytest.fixture(params=["sync", "async"])
    def world(self, request: pytest.FixtureRequest, source: Source) -> Plan:
        """Cases that take ``world`` run in sync and async."""
        api: Api = request.param
        return Plan(source, api)

    @pytest.fixture
    def sync_world(self, source: Source) -> Plan:
        return Plan(source, "sync")

    @pytest.fixture
    def async_world(self, source: Source) -> Plan:
        return Plan(source, "async")


class ConformanceSuite(Fixtures, *cases.ALL):  # type: ignore[misc]  # a tuple of classes, not literal bases
    """Subclass it as ``Test…`` and override the fixture ``url``: see the package's docstring."""
