"""The lists of rights in SECURITY.md cover the shipped scripts and are sufficient on real servers."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Final

import pytest
import redis
from redis.crc import key_slot

import holdfast
from tests.servers.cluster import RedisCluster
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication
from tests.servers.sentinel import MASTER_NAME, Sentinel

#: In a table cell '|' is escaped with a backslash.
TEXT: Final = (Path(__file__).parents[2] / "SECURITY.md").read_text("utf-8").replace("\\|", "|")

#: Commands besides scripts: the handshake, loading scripts, the reason for a refused key, and the pub/sub fallback.
PLAIN: Final = {"hello", "auth", "select", "evalsha", "eval", "type", "subscribe", "unsubscribe"}
#: Known to servers only since Redis 7, so they are listed in the table for clusters.
SHARDED: Final = {"spublish"}
#: Of a release that hands the lock over to a waiter, which have a row of their own.
HANDING_OVER: Final = {"hdel", "hrandfield", "info", "lpush", "lset", "pubsub", "rpop"}
#: Of conditions, monitors, latches and barriers, which have a row of their own.
REGISTERS: Final = {"hmget", "zadd", "zrangebyscore", "zremrangebyscore", "zscore"}
#: Of read-write locks and semaphores.
SHARED: Final = {
    *("hdel", "hget", "hmget", "incrby", "llen", "persist"),
    *("zadd", "zcard", "zmscore", "zrange", "zrangebyscore", "zrem"),
}


def rule(user: str = "app") -> str:
    """The ACL rule of ``user`` as one line of redis.conf."""
    block = re.search(rf"```\n(user {user} .*?)```", TEXT, re.DOTALL)
    assert block is not None
    return " ".join(block[1].split()).replace("CHANGE-ME", "pw")


def more(*beginnings: str) -> str:
    """Returns the rights in those rows of the tables that begin with one of ``beginnings``."""
    rows = {first: re.findall(rf"^\| `({re.escape(first)}[^`]*)` \|", TEXT, re.MULTILINE) for first in beginnings}
    assert all(len(found) == 1 for found in rows.values())
    return " ".join(rights for (rights,) in rows.values())


def test_listed_commands_are_exactly_those_of_the_scripts() -> None:
    scripts = resources.files("holdfast.engines.redis").joinpath("scripts")
    used = {
        command.lower()
        for script in scripts.iterdir()
        if script.name.endswith(".lua")
        for command in re.findall(r"\bp?call\(\s*['\"](\w+)['\"]", script.read_text("utf-8"))
    }
    assert used >= {"pexpire"} | SHARDED
    assert {
        word.removeprefix("+") for word in rule().split() if word.startswith("+")
    } == used - SHARDED - REGISTERS - SHARED - HANDING_OVER | PLAIN
    listed = {word.partition("|")[0] for word in more("+hrandfield").split()}
    assert {f"+{command}" for command in HANDING_OVER} <= listed
    assert {f"+{command}" for command in REGISTERS} <= set(more("+hmget").split())
    assert {f"+{command}" for command in SHARED} <= set(more("+hdel").split())
    assert {f"+{command}" for command in SHARDED} <= set(more("+spublish").split())


def use_all(url: str) -> None:
    """Uses every operation on locks in the namespace ``app``."""
    with holdfast.connect(url, namespace="app") as locks:
        locks.ping()
        with locks.lock("order:42") as lease:
            assert lease.token > 0
            assert locks.inspect("order:42").holders
            lease.renew()
            # Waiting, a timeout and leaving the queue, all within these rights.
            assert locks.lock("order:42", reentrant=False).try_acquire(timeout=0.5) is None
        assert locks.inspect("order:42").holders == ()
        abandoned = locks.lock("order:43").acquire()
        assert locks.break_("order:43")
        with pytest.raises(holdfast.LockLost):
            abandoned.release()
    with holdfast.connect(url) as outside, pytest.raises(holdfast.EngineRefused):
        outside.lock("other").acquire(timeout=5)


@pytest.mark.parametrize("beginnings", [(), ("+client|tracking", "+client|setname")], ids=["least", "more"])
def test_listed_rights_allow_locks_and_nothing_else(
    start_redis: Callable[..., RedisServer], beginnings: tuple[str, ...]
) -> None:
    server = start_redis(f"{rule()} {more(*beginnings)}")
    use_all(server.url_as("app", "pw"))
    with pytest.raises(redis.exceptions.NoPermissionError):
        server.client(server.url_as("app", "pw")).set("other", 1)


def test_listed_rights_suffice_on_a_redlock(start_masters: Callable[..., Masters]) -> None:
    use_all(start_masters(3, rule()).url.replace("://", "://app:pw@"))


def test_listed_rights_suffice_behind_a_sentinel_and_for_replicas(
    start_replication: Callable[..., Replication],
) -> None:
    data = start_replication(1, f"{rule()} {more('+wait')}", links=False)
    with Sentinel(data.master, "user default off", rule("watcher")) as sentinel:
        url = f"redis+sentinel://app:pw@{sentinel.address}/{MASTER_NAME}?sentinel_username=watcher&sentinel_password=pw"
        use_all(url)
        with holdfast.connect(url, namespace="app", replicas=1) as locks, locks.lock("order:44") as lease:
            lease.renew()


def test_listed_rights_suffice_on_a_cluster(redis_cluster: RedisCluster) -> None:
    rights = f"{rule()} {more('+client|tracking', '+hrandfield', '+cluster', '+spublish')}".split()
    for node in redis_cluster.nodes:
        node.ask("ACL", "LOG", "RESET")
        node.ask("ACL", "SETUSER", "app", "reset", *rights[2:])
    try:
        url = redis_cluster.url.replace("://", "://app:pw@")
        use_all(url)
        _renew_while_the_slot_moves(redis_cluster, url)
        # Publishing may fail silently, so ask the servers: they have refused only keys outside of the namespace.
        refused = [entry for node in redis_cluster.nodes for entry in node.ask("ACL", "LOG")]
        assert {entry["reason"] for entry in refused} == {"key"}
    finally:
        for node in redis_cluster.nodes:
            node.ask("ACL", "DELUSER", "app")


def _renew_while_the_slot_moves(cluster: RedisCluster, url: str) -> None:
    slot = key_slot(b"app:order:44")
    target = next(node for node in cluster.masters() if node is not cluster.master_of(slot))
    with holdfast.connect(url, namespace="app") as locks, locks.lock("order:44") as lease:
        cluster.begin_migration(slot, target)
        try:
            while cluster.move_keys(slot, target):
                pass
            lease.renew()
        finally:
            cluster.end_migration(slot, target)
