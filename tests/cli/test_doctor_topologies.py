"""The doctor on several servers: replicas, sentinels, a cluster, a redlock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.cli.doctor.rights import needs
from tests.cli.doctor import Doctor
from tests.servers.clock import Clock
from tests.servers.cluster import RedisCluster
from tests.servers.masters import Masters
from tests.servers.replication import Replication, is_linked
from tests.servers.sentinel import SentinelSet
from tests.support.waiting import eventually

SECRET = "s3cr3t-p4ss"
DURABLE = ("appendonly yes", "appendfsync always")
#: Dead servers refuse immediately; live ones may be slow on a loaded machine.
LONG_TIMEOUT = "request_timeout=8"


def test_master_with_replicas(start_replication: Callable[..., Replication], doctor: Doctor) -> None:
    servers = start_replication(2, *DURABLE)
    found = doctor(servers.url)
    assert (found.code, found.worse_than_ok()) == (3, {"acknowledgement": "warning"})
    assert [finding["level"] for finding in found.of("replicas")] == ["ok", "ok"]
    assert doctor(f"{servers.url}?replicas=1").worse_than_ok() == {}
    assert doctor(f"{servers.url}?replicas=2").worse_than_ok() == {"acknowledgement": "notice"}
    assert doctor(f"{servers.url}?replicas=3").worse_than_ok() == {"acknowledgement": "problem"}
    servers.master.ask("CONFIG", "SET", "min-replicas-to-write", 1)
    assert doctor(servers.url).worse_than_ok() == {"acknowledgement": "notice"}


def test_plain_url_of_a_replica_is_a_problem(start_replication: Callable[..., Replication], doctor: Doctor) -> None:
    servers = start_replication(1, *DURABLE)
    found = doctor(servers.replicas[0].url)
    assert (found.code, found.worse_than_ok()) == (4, {"role": "problem"})
    servers.links[0].close()
    eventually(lambda: not is_linked(servers.replicas[0]))
    assert doctor(servers.replicas[0].url).level("replication") == "problem"


def test_server_names_contain_no_terminal_escapes(
    start_replication: Callable[..., Replication], doctor: Doctor
) -> None:
    """A replica announces its own name to the master, which reports it to the doctor."""
    found = doctor(start_replication(1, 'replica-announce-ip "\\x1b[31mevil"').url)
    (replica,) = found.of("replicas")
    assert r"replica \x1b[31mevil:" in replica["sentence"]


def test_sentinels(start_sentinels: Callable[..., SentinelSet], doctor: Doctor) -> None:
    servers = start_sentinels(*DURABLE, password=SECRET, sentinel_password=f"{SECRET}2")
    url = f"{servers.url}?replicas=1&{LONG_TIMEOUT}&sentinel_password={SECRET}2"
    well = doctor(url)
    assert (well.code, well.worse_than_ok()) == (0, {})
    assert len(well.of("sentinel")) == 3
    assert sorted(finding["sentence"] for finding in well.of("role")) == ["master", "replica", "replica"]
    assert {well.level("agreement"), well.level("quorum"), well.level("clocks")} == {"ok"}
    unknown = doctor(servers.url.replace("/mymaster", "/unknown") + f"?sentinel_password={SECRET}2")
    refused = doctor(servers.url)
    assert (unknown.code, refused.code) == (69, 69)
    assert "No such master" in unknown.err

    sentinel, replica = servers.sentinels[0], servers.data_nodes[2]
    sentinel.kill()
    replica.kill()
    hurt = doctor(url)
    assert hurt.code == 4
    assert hurt.level("sentinel", sentinel.address) == "problem"
    assert hurt.level("reachable", replica.address) == "problem"
    assert hurt.level("role", servers.data_nodes[0].address) == "ok", "the other nodes are still examined"
    assert SECRET not in well.out + unknown.err + refused.err + hurt.out


def test_sentinels_that_only_report_the_master_address(
    start_sentinels: Callable[..., SentinelSet], doctor: Doctor
) -> None:
    """The sentinels accept the user of the data nodes, so no second password is needed."""
    servers = start_sentinels(*DURABLE, password=SECRET, sentinel_password=SECRET)
    for sentinel in servers.sentinels:
        sentinel.ask("ACL", "SETUSER", "default", "-@all", "+sentinel|get-master-addr-by-name", "+acl")
    found = doctor(f"{servers.url}?replicas=1")
    assert (found.code, found.worse_than_ok()) == (0, {"sentinel": "notice"})
    assert [finding["sentence"] for finding in found.of("role")] == ["master"]
    for sentinel in servers.sentinels:
        sentinel.ask("ACL", "SETUSER", "default", "+@all")
    assert doctor(f"{servers.url}?replicas=1").worse_than_ok() == {}


def test_sentinels_without_a_live_data_node_are_a_problem(sentinel_set: SentinelSet, doctor: Doctor) -> None:
    """The sentinels answer, so the result is a problem, not a failed examination."""
    for node in sentinel_set.data_nodes:
        node.kill()
    found = doctor(f"{sentinel_set.url}?{LONG_TIMEOUT}")
    assert found.code == 4
    assert [finding["level"] for finding in found.of("reachable")] == ["problem"] * 3


def test_cluster(redis_cluster: RedisCluster, doctor: Doctor) -> None:
    found = doctor(f"{redis_cluster.url}?replicas=1")
    assert found.worse_than_ok() == {"persistence": "warning", "acknowledgement": "notice"}
    assert len(found.of("version")) == 6
    assert [finding["level"] for finding in found.of("waking")] == ["ok"] * 3
    assert {found.level("cluster"), found.level("slots")} == {"ok"}


def test_cluster_user_with_least_rights(redis_cluster: RedisCluster, doctor: Doctor) -> None:
    """CLUSTER NODES and INFO are refused: the doctor finds the nodes the way the engine does."""
    rights = dict.fromkeys(need.right for need in needs("x", "", clustered=True) if need.right != "+info")
    for node in redis_cluster.nodes:
        node.ask("ACL", "SETUSER", "locker", "on", f">{SECRET}", "~*", "&*", *rights)
    found = doctor(redis_cluster.url.replace("://", f"://locker:{SECRET}@"))
    for node in redis_cluster.nodes:
        node.ask("ACL", "DELUSER", "locker")
    assert (found.code, found.level("cluster"), found.level("slots")) == (0, "notice", "ok")
    assert len(found.of("scripts")) == 6
    assert [finding["level"] for finding in found.of("rights")] == ["notice"] * 3, "tried at the masters"
    assert all("hand the lock over" in finding["sentence"] for finding in found.of("rights"))
    assert SECRET not in found.out
    redis_cluster.wait_until_ok()


def test_cluster_with_a_failed_node(start_cluster: Callable[..., RedisCluster], doctor: Doctor) -> None:
    cluster = start_cluster(node_timeout=1.0)
    master = cluster.masters()[0]
    replica = cluster.replica_of(master)
    replica.kill()
    cluster.kill_master(master)
    url = f"{cluster.url}?{LONG_TIMEOUT}"
    assert doctor(url).level("reachable", master.address) == "problem"
    # Once the other nodes have noticed the failure, they report it too.
    eventually(lambda: all(doctor(url).of("cluster", node.address) for node in (master, replica)), within=20)
    found = doctor(url)
    assert (found.code, found.level("cluster", master.address)) == (4, "problem")
    assert found.level("cluster", replica.address) == "problem"


def test_redlock(start_masters: Callable[..., Masters], clock_shim: Path, tmp_path: Path, doctor: Doctor) -> None:
    clock = Clock(clock_shim, tmp_path)
    masters = start_masters(3, *DURABLE, password=SECRET, clocks={2: clock})
    well = doctor(masters.url)
    assert (well.code, well.worse_than_ok()) == (0, {})
    clock.move(10)
    skewed = doctor(masters.url)
    assert (skewed.code, skewed.worse_than_ok()) == (3, {"clocks": "warning", "clock": "warning"})
    masters.servers[2].kill()
    hurt = doctor(f"{masters.url}?{LONG_TIMEOUT}")
    assert (hurt.code, hurt.worse_than_ok()) == (4, {"reachable": "problem"})
    assert len(hurt.of("version")) == 2, "the other servers are still examined"
    masters.servers[1].kill()
    assert doctor(f"{masters.url}?{LONG_TIMEOUT}").level("majority") == "problem"
    masters.servers[0].kill()
    assert doctor(f"{masters.url}?{LONG_TIMEOUT}").code == 69
    assert SECRET not in well.out + skewed.out + hurt.out
    clock.close()


def test_one_server_under_two_names_is_reported(five_masters: Masters, doctor: Doctor) -> None:
    first, second = (server.port for server in five_masters.servers[:2])
    found = doctor(f"redlock://127.0.0.1:{first},localhost:{first},127.0.0.1:{second}")
    assert found.code == 4
    assert [finding["level"] for finding in found.of("nodes")] == ["ok", "problem"]
    # New servers without persistence: they may have been restarted just now.
    assert {finding["level"] for finding in found.of("restart")} == {"warning"}
    assert {finding["level"] for finding in found.of("persistence")} == {"notice"}
