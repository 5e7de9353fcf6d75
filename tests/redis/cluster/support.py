"""Helpers for tests of the cluster engine: sessions, names by server, moving slots, and statistics of servers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final

from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot

from holdfast._config.targets import parse_target
from holdfast.engines.redis.cluster.engine import ClusterEngine
from holdfast.engines.redis.cluster.session import ClusterSession
from holdfast.engines.redis.dialect.keys import keys_of
from holdfast.engines.registry import make_engine
from tests.redis.support import on as on_engine
from tests.servers.cluster import ClusterNode, RedisCluster
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually

#: What happens immediately may take this much longer on a busy machine, which may stall for a second. A wrong result
#: has to take longer than that.
SLACK: Final = 1.5
#: Rights without tracking: waiters are woken by the channel.
NO_TRACKING: Final = ("+@all", "-client|tracking")

Body = Callable[[ClusterSession], Coroutine[Any, Any, None]]


def engine_for(url_or_client: Any, **options: Any) -> ClusterEngine:
    engine = make_engine(parse_target(url_or_client, options))
    assert isinstance(engine, ClusterEngine)
    return engine


def on(url_or_client: Any, api: str, body: Body, **options: Any) -> None:
    """Run ``body`` on a session of one API."""
    on_engine(engine_for(url_or_client, **options), api, body)


# ---- names, slots, servers


def slot_of(name: str) -> int:
    slot: int = key_slot(name.encode())
    return slot


def names_at(node: ClusterNode, count: int) -> list[str]:
    """Names of locks that are on ``node`` at present."""
    slots = {slot for numbers, ports in node.slot_map().items() if ports[0] == node.port for slot in numbers}
    names = (name for name in map("job-{}".format, itertools.count()) if slot_of(name) in slots)
    return list(itertools.islice(names, count))


def elsewhere(cluster: RedisCluster, name_or_slot: str | int) -> ClusterNode:
    """A master that does not have the slot."""
    source = cluster.master_of(name_or_slot)
    return next(node for node in cluster.masters() if node is not source)


def move(cluster: RedisCluster, name_or_slot: str | int, to: ClusterNode | None = None) -> ClusterNode:
    """Move a slot with all its keys; returns its new master."""
    slot = name_or_slot if isinstance(name_or_slot, int) else slot_of(name_or_slot)
    target = to or elsewhere(cluster, slot)
    cluster.migrate_slot(slot, target)
    return target


class HalfMoved:
    """A slot whose keys are partly on two servers."""

    def __init__(self, cluster: RedisCluster, slot: int) -> None:
        self._cluster = cluster
        self._slot = slot
        self._over = False
        self.source = cluster.master_of(slot)
        self.target = elsewhere(cluster, slot)
        cluster.begin_migration(slot, self.target)

    def carry(self, *keys: str) -> None:
        """Moves only these keys."""
        assert self.source.ask("MIGRATE", self.target.host, self.target.port, "", 0, 5000, "KEYS", *keys) == "OK"

    def carry_all(self) -> None:
        while self._cluster.move_keys(self._slot, self.target):
            pass

    def finish(self) -> None:
        if not self._over:
            self.carry_all()
            self._cluster.end_migration(self._slot, self.target)
            self._over = True


@contextmanager
def half_moved(cluster: RedisCluster, name: str) -> Iterator[HalfMoved]:
    """Begins to move the slot of ``name``. The move is complete when the block ends, at the latest."""
    slot = HalfMoved(cluster, slot_of(name))
    try:
        yield slot
    finally:
        slot.finish()


@contextmanager
def frozen(node: ClusterNode) -> Iterator[None]:
    node.pause()
    try:
        yield
    finally:
        node.resume()


def owners(node: ClusterNode) -> dict[int, int]:
    """The port of the master of each slot, as ``node`` reports it."""
    return {slot: ports[0] for slots, ports in node.slot_map().items() for slot in slots}


def agree(cluster: RedisCluster) -> bool:
    """Whether all masters agree which of them serves each slot."""
    views = [{slots: ports[0] for slots, ports in master.slot_map().items()} for master in cluster.masters()]
    return all(view == views[0] for view in views)


def settle(cluster: RedisCluster) -> None:
    """Waits until all masters agree. After many fast moves, with gossip messages under way, two masters may each report
    the other as a slot's owner. Redis leaves that to ``redis-cli --cluster fix``; this function repairs it."""

    def settled() -> bool:
        _adopt_orphans(cluster)
        return agree(cluster)

    eventually(settled, 20.0)


def _adopt_orphans(cluster: RedisCluster) -> None:
    """Give the slots that no master claims to the first master."""
    owner, *others = cluster.masters()
    claimed = {slot for master in (owner, *others) for slot, port in owners(master).items() if port == master.port}
    orphans = set(range(REDIS_CLUSTER_HASH_SLOTS)) - claimed
    if orphans:
        owner.cluster("BUMPEPOCH")  # older claims of other masters, still under way, have no effect then
    for slot in orphans:
        for master in (*others, owner):
            master.cluster("SETSLOT", slot, "NODE", owner.node_id)


# ---- what servers count


def errors(server: RedisServer, code: str) -> int:
    """How many requests were answered with this error: MOVED, ASK, TRYAGAIN, …"""
    count: int = server.ask("INFO", "errorstats").get(f"errorstat_{code}", {"count": 0})["count"]
    return count


def subscribers(server: RedisServer, name: str = "job") -> int:
    """How many connections wait for the release of ``name`` on its channel, plain or sharded."""
    counts = [server.ask("PUBSUB", command, keys_of(name).channel) for command in ("NUMSUB", "SHARDNUMSUB")]
    return sum(int(count[0][1]) if isinstance(count[0], tuple) else int(count[1]) for count in counts)


def keys(*servers: RedisServer) -> set[str]:
    """All keys except fencing counters and tombstones of withdrawn claims."""
    found: set[str] = {key for server in servers for key in server.ask("KEYS", "*")}
    return {key for key in found if ":gone:" not in key and not key.startswith("redisson_lock_token:")}


@contextmanager
def user(cluster: RedisCluster, *rights: str) -> Iterator[str]:
    """Creates a user with these rights on all nodes. Yields the URL of the cluster for this user."""
    for node in cluster.nodes:
        node.ask("ACL", "SETUSER", "app", "reset", "on", ">s3cr3t", "~*", "&*", *rights)
    try:
        yield cluster.url.replace("://", "://app:s3cr3t@")
    finally:
        for node in cluster.nodes:
            node.ask("ACL", "DELUSER", "app")
