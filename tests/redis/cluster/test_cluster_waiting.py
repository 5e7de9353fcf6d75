"""Waiting in a cluster: a release wakes waiters by every method, also after the slot has moved."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any, Self

import hiredis
import pytest

from holdfast._runtime import clock
from holdfast.engines.base import Granted
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.redis.waiting.watch import Way
from holdfast.testing.conformance.opening import Api
from tests.redis.cluster.support import NO_TRACKING, move, names_at, on, subscribers, user
from tests.redis.support import TIMEOUT, make_attempt
from tests.servers.cluster import RedisCluster
from tests.servers.redis import RedisServer
from tests.support.child import Child
from tests.support.clients import APIS, open_clients
from tests.support.waiting import until

pytestmark = pytest.mark.needs_redis

CHANNEL = keys_of("job").channel

#: Wake-up by a release, allowing for a scheduler stall of a second. A waiter that is not woken polls much later.
WOKEN_WITHIN = 5.0
MODES = {"auto": "SPUBLISH", "on": "SPUBLISH", "off": "PUBLISH", "both": "BOTH"}


def is_armed(server: RedisServer, way: Way) -> bool:
    """Whether a waiter is queued for "job" at ``server`` and would be notified of its release."""
    if not server.ask("EXISTS", keys_of("job").queue):
        return False
    if way is Way.TRACKING:
        return bool(server.ask("INFO", "stats")["tracking_total_keys"] >= 1)
    return way is Way.POLLING or subscribers(server) >= 1


async def woken_by_another_process(
    api: Api, cluster: RedisCluster, url: str, way: Way, moves: int = 0, **options: Any
) -> None:
    async with open_clients(api) as ours:
        locks = ours.connect(url, **options)
        with Child(cluster.url, **options) as holder:
            holder.do("keep.update(lease=locks.lock('job', ttl=30.0).acquire()) or True")
            waiting = ours.caller().do(lambda: locks.lock("job").acquire(timeout=20.0))
            server = cluster.master_of("job")
            await until(lambda: is_armed(server, way))
            for _ in range(moves):
                server = move(cluster, "job")
                await until(lambda there=server: is_armed(there, way))  # type: ignore[misc]
            began = time.monotonic()
            holder.send("keep['lease'].release() is None")
            lease = await waiting
            assert time.monotonic() - began < WOKEN_WITHIN, "the waiter was not woken"
            assert holder.answer()
        await ours.do(lease.release)


@APIS
@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("moves", [0, 2])
async def test_release_in_another_process_wakes_the_waiter(api: Api, moves: int, cluster: RedisCluster) -> None:
    """Also after the slot has moved away and back."""
    await woken_by_another_process(api, cluster, cluster.url, Way.TRACKING, moves)


@APIS
@pytest.mark.usefixtures("only_woken")
@pytest.mark.parametrize("mode, moves", [("auto", 2), ("off", 0), ("both", 0)])
async def test_channel_wakes_the_waiter_without_tracking(
    api: Api, mode: str, moves: int, cluster: RedisCluster
) -> None:
    with user(cluster, *NO_TRACKING) as url:
        await woken_by_another_process(api, cluster, url, Way.CHANNEL, moves, sharded_pubsub=mode)
    await until(lambda: not any(subscribers(node) for node in cluster.nodes), 5.0, "no subscription is left")


@APIS
@pytest.mark.usefixtures("only_woken")
async def test_waiter_without_the_right_to_subscribe_polls_often_enough(api: Api, cluster: RedisCluster) -> None:
    with user(cluster, *NO_TRACKING, "-subscribe", "-ssubscribe") as url:
        await woken_by_another_process(api, cluster, url, Way.POLLING, moves=1)


@APIS
@pytest.mark.parametrize("mode", list(MODES))
def test_release_is_published_as_configured(api: str, mode: str, cluster: RedisCluster) -> None:
    """Subscribers of the sharded channel, like Redisson from 7.0 on, and of the plain channel at any node."""
    master = cluster.master_of("job")
    other = next(node for node in cluster.masters() if node is not master)

    async def body(session: ClusterSession) -> None:
        attempt = make_attempt("job")
        assert isinstance(await session.acquire(attempt, TIMEOUT), Granted)
        assert session._channel.publish == MODES[mode]
        await session.release(attempt, TIMEOUT)

    with Subscriber(master, "SSUBSCRIBE") as sharded, Subscriber(other, "SUBSCRIBE") as plain:
        on(cluster.url, api, body, sharded_pubsub=mode)
        # From the same server as the release, and so after it.
        assert sharded.received_before(lambda: master.ask("SPUBLISH", CHANNEL, "over")) == (MODES[mode] != "PUBLISH")
        assert plain.received_before(lambda: master.ask("PUBLISH", CHANNEL, "over")) == (MODES[mode] != "SPUBLISH")


@APIS
async def test_break_as_the_first_request_of_a_client_is_published_to_shards(api: Api, cluster: RedisCluster) -> None:
    """The client does not know yet what the servers can, and Java's waiters subscribe to shards."""
    async with open_clients(api) as ours:
        await ours.acquire(ours.connect(cluster.url), "job")
        operator, master = ours.connect(cluster.url), cluster.master_of("job")
        with Subscriber(master, "SSUBSCRIBE") as sharded:
            assert await ours.do(lambda: operator.break_("job"))
            assert sharded.received_before(lambda: master.ask("SPUBLISH", CHANNEL, "over"))


class Subscriber:
    """A subscriber that is not a holdfast client."""

    def __init__(self, server: RedisServer, command: str) -> None:
        self._socket = socket.create_connection((server.host, server.port), TIMEOUT)
        self._reader = hiredis.Reader(encoding="utf-8")
        self._socket.sendall(f"{command} {CHANNEL}\r\n".encode())
        assert self._next()[0] == command.lower()

    def received_before(self, end: Callable[[], object]) -> bool:
        """Whether a release was published before the message that ``end`` publishes."""
        end()
        messages = [self._next()[2]]
        while messages[-1] != "over":
            messages.append(self._next()[2])
        assert messages in (["over"], ["0", "over"])
        return len(messages) > 1

    def _next(self) -> Any:
        while (message := self._reader.gets()) is False:
            self._reader.feed(self._socket.recv(4096))
        return message

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


@APIS
def test_servers_without_sharded_channels_use_the_plain_channel(api: str, cluster: RedisCluster) -> None:
    """As before 7.0, or where an ACL forbids it."""

    async def body(session: ClusterSession) -> None:
        await session.ping(TIMEOUT)
        assert session._channel.publish == "PUBLISH"

    with user(cluster, "+@all", "-pubsub|shardnumsub") as url:
        on(url, api, body)


@pytest.mark.usefixtures("hurried")
@APIS
def test_end_of_a_moved_subscription_is_not_taken_for_a_reply(api: str, cluster: RedisCluster) -> None:
    """The server ends it by an unsolicited push on a connection where replies are awaited."""

    async def body(session: ClusterSession) -> None:
        held, others = make_attempt("job"), names_at(cluster.master_of("job"), 20)
        source = cluster.master_of("job")
        await session.acquire(held, TIMEOUT)
        waiter = session.contender(make_attempt("job"), TIMEOUT)
        await waiter.wait(clock.now() + 0.01)
        assert is_armed(source, Way.CHANNEL)
        before = source.ask("INFO", "stats")["total_net_output_bytes"]
        move(cluster, "job")
        assert subscribers(source) == 0
        assert source.ask("INFO", "stats")["total_net_output_bytes"] > before
        attempts = [make_attempt(name) for name in others if name != "job"]
        tokens = {attempt.claim.name: await session.acquire(attempt, TIMEOUT) for attempt in attempts}
        for attempt in attempts:
            granted = tokens[attempt.claim.name]
            assert isinstance(granted, Granted)
            assert source.ask("GET", keys_of(attempt.claim.name).token) == str(granted.token), (
                "each request gets its own reply"
            )
        await waiter.wait(clock.now() + 0.01)
        assert is_armed(cluster.master_of("job"), Way.CHANNEL), "it waits at the new server of the slot"
        await waiter.leave()

    with user(cluster, *NO_TRACKING) as url:
        on(url, api, body)
