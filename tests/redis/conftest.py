"""Fixtures: a replicated pair, and single sentinels for states that a set of sentinels has only during a failover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.servers.replication import Replication
from tests.servers.sentinel import Sentinel


@pytest.fixture(scope="module")
def _pair() -> Iterator[Replication]:
    with Replication(1, links=False) as pair:
        yield pair


@pytest.fixture
def pair(_pair: Replication) -> Replication:
    """A master with one replica, shared by the module and empty at the start of each test. Tests that swap roles start
    their own."""
    _pair.master.flush()
    return _pair


@pytest.fixture
def start_sentinel() -> Iterator[Callable[..., Sentinel]]:
    """``start_sentinel(master)`` starts a sentinel that watches this server; further arguments as for Sentinel."""
    with ExitStack() as ending:
        yield lambda master, *config, kind=Sentinel, **settings: ending.enter_context(kind(master, *config, **settings))


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter for a lock watches it from the beginning, and not only after a while without a push."""
    monkeypatch.setattr("holdfast.engines.redis.waiting.seats.ONLY_WAIT", 0.0)


@pytest.fixture
def only_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A waiter for a lock only waits for the push, also if the machine stalls: it sends nothing more by itself."""
    monkeypatch.setattr("holdfast.engines.redis.waiting.seats.ONLY_WAIT", 60.0)
