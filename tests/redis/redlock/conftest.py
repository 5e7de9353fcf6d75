"""Fixtures: the API, and proxies in front of five masters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast.testing.conformance.opening import Api
from tests.redis.redlock.support import Proxies
from tests.servers.masters import Masters


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest) -> Api:
    chosen: Api = request.param
    return chosen


@pytest.fixture
def proxies(five_masters: Masters) -> Iterator[Proxies]:
    """In front of the five masters of the module."""
    with Proxies(five_masters) as started:
        yield started
