"""Five masters, with proxies before them, in both colours."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from holdfast._core import acquisition
from holdfast.engines.redis import contender
from holdfast.testing.conformance.opening import Colour
from tests.redlock.support import Proxies
from tests.servers.masters import Masters


@pytest.fixture(params=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Colour:
    chosen: Colour = request.param
    return chosen


@pytest.fixture
def only_woken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits is woken, or waits for a minute: else one who looks for himself, twice a second, is hard to tell from
    one who was woken on a busy machine."""
    monkeypatch.setattr(acquisition, "_LONGEST_WAIT", 60.0)
    monkeypatch.setattr(contender, "_LOOK_AGAIN", 120.0)


@pytest.fixture
def proxies(five_masters: Masters) -> Iterator[Proxies]:
    """Before the module's five masters."""
    with Proxies(five_masters) as started:
        yield started
