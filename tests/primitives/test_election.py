"""Observers of an election: woken by a push where the engine has one, so that no question has to be waited for."""

from __future__ import annotations

import asyncio
import threading
import uuid
from typing import Any, Final

import pytest

import holdfast
from holdfast.primitives import election
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.soak import soak

#: Between two questions of an observer, if it is not woken (s): longer than a test may take.
_LONG: Final = (600.0, 600.0)
_SOON: Final = 30.0

#: SQLite and Redlock have no push for an observer: there it asks.
PUSHING: Final = [
    "memory",
    "redis",
    "cluster",
    "zookeeper",
    soak("sentinel", reason="the channel is that of one server, and starting the set takes seconds"),
]


@pytest.fixture
def pushing(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an engine with pushes; observers ask by themselves after ten minutes only."""
    monkeypatch.setattr(election, "_ASKS_EVERY", _LONG)
    engine = request.param
    if engine == "memory":
        return f"memory:{uuid.uuid4().hex}"
    if engine == "redis":
        return str(request.getfixturevalue("redis_url"))
    fixture = {"cluster": "redis_cluster", "sentinel": "sentinel_set", "zookeeper": "zookeeper_server"}[engine]
    return str(request.getfixturevalue(fixture).url)


@pytest.mark.parametrize("pushing", PUSHING, indirect=True)
def test_observing_threads_are_woken_by_each_change_of_the_leader(pushing: str) -> None:
    name = uuid.uuid4().hex
    with holdfast.connect(pushing) as client, holdfast.connect(pushing) as other:
        candidate = client.election(name, value="me")
        seen: list[Any] = []
        arrived = threading.Semaphore(0)

        def watch() -> None:
            for leader, _ in zip(other.election(name).observe(), range(4), strict=False):
                seen.append(leader and leader.value)
                arrived.release()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        assert arrived.acquire(timeout=_SOON)
        for change in (candidate.campaign, candidate.resign, candidate.campaign):
            change()
            assert arrived.acquire(timeout=_SOON), f"not woken after {seen}"
        assert seen == [None, "me", None, "me"]
        candidate.resign()  # also ends the zip, which asks for one leader more
        watcher.join(_SOON)
        assert not watcher.is_alive()


@pytest.mark.parametrize("pushing", PUSHING, indirect=True)
def test_observing_tasks_are_woken_by_each_change_of_the_leader(pushing: str) -> None:
    async def main() -> None:
        name = uuid.uuid4().hex
        async with holdfast.aio.connect(pushing) as client, holdfast.aio.connect(pushing) as other:
            candidate = client.election(name, value="me")
            leaders = other.election(name).observe()
            assert await anext(leaders) is None
            for change, expected in ((candidate.campaign, "me"), (candidate.resign, None), (candidate.campaign, "me")):
                following = asyncio.ensure_future(anext(leaders))
                await change()
                leader = await asyncio.wait_for(following, _SOON)
                assert (leader and leader.value) == expected
            await leaders.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_holders_of_a_plain_lock_in_memory_wake_an_observer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their changes are made by a shorter way, which reports nothing."""
    monkeypatch.setattr(election, "_ASKS_EVERY", _LONG)

    async def main() -> None:
        async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as client:
            leaders, lock = client.election("a").observe(), client.lock("a")
            assert await anext(leaders) is None
            for _ in range(2):
                following = asyncio.ensure_future(anext(leaders))
                async with lock as lease:
                    leader = await asyncio.wait_for(following, _SOON)
                    assert leader is not None
                    assert leader.token == lease.token
                    following = asyncio.ensure_future(anext(leaders))
                assert await asyncio.wait_for(following, _SOON) is None
            await leaders.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())


def test_an_observer_that_has_ended_watches_nothing() -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        leaders = client.election("a").observe()
        assert next(leaders) is None
        session: Any = client._open().session
        watches = session.store.watches
        assert len(watches) == 1
        leaders.close()  # type: ignore[attr-defined]
        assert not watches


def test_an_observer_is_woken_though_the_servers_have_removed_the_node_of_the_election(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ZooKeeper removes it a minute after the last leader has resigned."""
    monkeypatch.setattr(election, "_ASKS_EVERY", _LONG)

    async def main() -> None:
        async with holdfast.aio.connect(zookeeper_server.url) as client:
            leaders = client.election("jobs").observe()
            candidate = client.election("jobs", value="me")
            assert await anext(leaders) is None
            for _ in range(2):
                for change, leads in ((candidate.campaign, True), (candidate.resign, False)):
                    await change()
                    leader = await asyncio.wait_for(anext(leaders), _SOON)
                    assert (leader is not None) is leads
                zookeeper_server.client().delete("/holdfast/jobs")
            await leaders.aclose()  # type: ignore[attr-defined]

    asyncio.run(main())
