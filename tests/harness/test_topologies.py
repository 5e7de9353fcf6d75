"""The tests' own topologies of Redis: they start, fail and heal as the fault tests assume."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import redis
from redis.crc import key_slot

from tests.servers.clock import Clock
from tests.servers.cluster import RedisCluster
from tests.servers.group import Group
from tests.servers.masters import Masters
from tests.servers.process import ServerFailed
from tests.servers.redis import RedisServer
from tests.servers.replication import Replication, is_linked
from tests.servers.sentinel import SentinelSet
from tests.support.runs import assert_servers_end_with_a_killed_run, run_pytest
from tests.support.waiting import eventually

StartRedis = Callable[..., RedisServer]
StartReplication = Callable[..., Replication]

#: The timeout of WAIT for replicas that can acknowledge, in milliseconds.
WAIT = 4_000


# ---- groups


def test_five_masters_are_independent(five_masters: Masters) -> None:
    for place, server in enumerate(five_masters.servers):
        server.ask("SET", "place", place)
    assert [server.ask("GET", "place") for server in five_masters.servers] == ["0", "1", "2", "3", "4"]
    assert five_masters.url == "redlock://" + ",".join(f"127.0.0.1:{one.port}" for one in five_masters.servers)


def test_five_masters_are_empty_at_the_start_of_each_test(five_masters: Masters) -> None:
    assert [server.ask("DBSIZE") for server in five_masters.servers] == [0] * 5


@pytest.mark.needs_redis
@pytest.mark.parametrize("make", [lambda: Masters(2), lambda: Replication(1), SentinelSet, RedisCluster])
def test_closed_group_leaves_no_files_or_processes(make: Callable[[], Group[RedisServer]]) -> None:
    with make() as group:
        servers = list(group.servers)
        pids = [server.pid for server in servers]
    assert len(servers) > 1
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [server.directory for server in servers if server.directory.exists()]


@pytest.mark.needs_redis
def test_a_group_that_cannot_start_leaves_no_process_behind() -> None:
    group = Masters(2)
    group.servers.append(RedisServer("no-such-setting 1"))
    with pytest.raises(ServerFailed, match="no-such-setting"):
        group.start()
    assert not [server for server in group.servers if server.running]
    group.close()


@pytest.mark.needs_redis
def test_servers_of_a_group_end_with_a_killed_run(tmp_path: Path) -> None:
    start = (
        "from tests.servers.replication import Replication\n"
        "print(*(server.port for server in Replication(2).start().servers), flush=True)"
    )
    assert assert_servers_end_with_a_killed_run(tmp_path, start) == 3


# ---- replication


def test_replicas_replicate_right_after_the_start(start_replication: StartReplication) -> None:
    replication = start_replication(2, password="s3cr3t")
    client = replication.master.client()
    client.set("key", "value")
    assert client.wait(2, WAIT) == 2
    assert [replica.ask("GET", "key") for replica in replication.replicas] == ["value"] * 2


def test_R17_replica_behind_a_black_hole_is_stale_when_promoted(start_replication: StartReplication) -> None:
    replication = start_replication(1)
    (replica,), (link,) = replication.replicas, replication.links
    client = replication.master.client()
    client.set("before", 1)
    assert client.wait(1, WAIT) == 1
    link.black_hole_all()
    client.set("after", 1)
    assert client.wait(1, 50) == 0
    replication.promote(replica)
    assert (replica.ask("GET", "before"), replica.ask("GET", "after")) == ("1", None)
    link.heal()  # too late: the replica no longer replicates from the old master
    assert replica.ask("SET", "mine", 1)
    assert replica.ask("GET", "after") is None
    assert client.get("after") == b"1"  # the old master keeps serving
    replication.demote(replication.master, replica)
    assert replication.master.ask("GET", "after") is None


def test_writes_held_back_arrive_when_the_link_heals(start_replication: StartReplication) -> None:
    replication = start_replication(1)
    (replica,), (link,) = replication.replicas, replication.links
    client = replication.master.client()
    link.black_hole_all()
    for number in range(100):
        client.rpush("list", number)
    assert client.wait(1, 50) == 0
    link.heal()
    assert client.wait(1, WAIT) == 1
    assert replica.ask("LRANGE", "list", 0, -1) == [str(number) for number in range(100)]
    assert replica.ask("INFO", "stats")["sync_full"] == 0


def test_replica_behind_a_black_hole_does_not_detect_the_death_of_its_master(
    start_replication: StartReplication,
) -> None:
    replication = start_replication(1)
    (replica,), (link,) = replication.replicas, replication.links
    link.black_hole_all()
    replication.master.kill()
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        assert is_linked(replica)
    link.heal()
    eventually(lambda: not is_linked(replica))


# ---- Sentinel


def test_sentinels_elect_a_new_master(start_sentinels: Callable[..., SentinelSet]) -> None:
    sentinels = start_sentinels(password="s3cr3t", sentinel_password="0th3r")
    ports = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in sentinels.sentinels)
    assert sentinels.url == f"redis+sentinel://:s3cr3t@{ports}/mymaster"
    client = sentinels.master().client()
    client.set("key", "value")
    assert client.wait(2, WAIT) == 2
    old = sentinels.kill_master()
    new = sentinels.wait_for_new_master(old)
    assert new in sentinels.data_nodes
    assert new is not old
    assert sentinels.master() is new
    assert new.ask("GET", "key") == "value"
    assert new.ask("SET", "key", "other")


# ---- Cluster


def test_cluster_has_three_masters_with_a_replica_each(redis_cluster: RedisCluster) -> None:
    masters = redis_cluster.masters()
    replicas = [redis_cluster.replica_of(master) for master in masters]
    assert len({node.port for node in [*masters, *replicas]}) == 6
    assert redis_cluster.url.count(",") == 2
    for slot in (0, 8_000, 16_383):
        assert redis_cluster.master_of(slot) in masters
    key = "{x}1"
    master = redis_cluster.master_of(key)
    master.ask("SET", key, "value")
    assert master.ask("WAIT", 1, WAIT) == 1
    other = next(node for node in masters if node is not master)
    with pytest.raises(redis.exceptions.MovedError):
        other.ask("GET", key)


def test_migrated_slot_moves_with_its_keys(redis_cluster: RedisCluster) -> None:
    slot, keys = key_slot(b"{moving}"), [f"{{moving}}{number}" for number in range(50)]
    source = redis_cluster.master_of(slot)
    target = next(node for node in redis_cluster.masters() if node is not source)
    for key in keys:
        source.ask("SET", key, key)
    redis_cluster.migrate_slot(slot, target)
    assert redis_cluster.master_of(slot) is target
    assert [target.ask("GET", key) for key in keys] == keys
    with pytest.raises(redis.exceptions.MovedError):
        source.ask("GET", keys[0])
    redis_cluster.migrate_slot(slot, source)
    redis_cluster.wait_until_ok()
    assert redis_cluster.master_of(slot) is source
    assert source.ask("GET", keys[0]) == keys[0]


def test_cluster_redirects_during_a_migration_and_promotes_a_replica(
    start_cluster: Callable[..., RedisCluster],
) -> None:
    cluster = start_cluster(password="s3cr3t")
    slot, keys = key_slot(b"{moving}"), ("{moving}1", "{moving}2")
    source = cluster.master_of(slot)
    target = next(node for node in cluster.masters() if node is not source)
    for key in keys:
        source.ask("SET", key, key)
    cluster.begin_migration(slot, target)
    with pytest.raises(redis.exceptions.AskError):
        source.ask("GET", "{moving}new")
    assert cluster.move_keys(slot, target, 1) == 1
    with pytest.raises(redis.exceptions.TryAgainError):
        source.ask("MGET", *keys)
    assert cluster.move_keys(slot, target) == 1
    cluster.end_migration(slot, target)
    assert target.ask("MGET", *keys) == list(keys)

    assert target.ask("WAIT", 1, WAIT) == 1
    replica = cluster.replica_of(target)
    cluster.kill_master(target)
    cluster.wait_until_ok()
    assert cluster.master_of(slot) is replica
    assert replica.ask("MGET", *keys) == list(keys)
    target.restart()
    cluster.wait_until_ok()
    assert cluster.replica_of(replica) is target
    assert target.ask("CONFIG GET", "cluster-node-timeout") == {"cluster-node-timeout": "1000"}


# ---- clocks


def test_R19_R20_keys_expire_by_the_wall_clock(start_redis: StartRedis, server_clock: Clock) -> None:
    server = start_redis(clock=server_clock)
    server.ask("SET", "key", "value", "EX", 30)
    server_clock.move(60)
    assert server.ask("GET", "key") is None
    assert abs(float(server.ask("TIME")[0]) - time.time() - 60) < 5
    server.ask("SET", "key", "value", "EX", 30)
    server_clock.move(-3600)
    assert server.ask("PTTL", "key") > 3_500_000


def test_moved_clock_affects_one_server_only(start_masters: Callable[..., Masters], server_clock: Clock) -> None:
    masters = start_masters(3, clocks={1: server_clock})
    for server in masters.servers:
        server.ask("SET", "key", "value", "EX", 30)
    server_clock.move(60)
    assert [server.ask("GET", "key") for server in masters.servers] == ["value", None, "value"]


@pytest.mark.needs_redis
@pytest.mark.parametrize("ci", ["", "true"])
def test_without_a_compiler_the_clock_is_skipped_by_name_or_fails(tmp_path: Path, ci: str) -> None:
    server = shutil.which("redis-server")
    assert server is not None
    os.symlink(server, tmp_path / "redis-server")
    test = "tests/harness/test_topologies.py::test_R19_R20_keys_expire_by_the_wall_clock"
    done = run_pytest(test, PATH=str(tmp_path), CI=ci)
    assert done.returncode == bool(ci), done.stdout
    expected = "no C compiler is on PATH; with CI=true that is a failure" if ci else f"{test}: no C compiler is on PATH"
    assert expected in done.stdout
