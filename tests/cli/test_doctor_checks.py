"""The checks of the doctor without any server: every check in good and in bad states. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast._config.options import ClientOptions
from holdfast.cli.doctor import checks
from holdfast.cli.doctor.facts import RIGHTS, Clock, Cluster, Facts, Lack, Member, Node, Purpose, Sentinel
from holdfast.cli.doctor.finding import EXIT_CODES, Finding, Level, worst

INFO: Final = {
    "redis_version": "7.0.15", "role": "master", "cluster_enabled": "0", "run_id": "a", "uptime_in_seconds": "86400",
    "maxmemory": "1000000", "maxmemory_policy": "noeviction", "used_memory": "5000", "evicted_keys": "0",
    "aof_enabled": "1", "aof_last_write_status": "ok", "rdb_last_bgsave_status": "ok",
    "connected_clients": "10", "maxclients": "1000", "master_repl_offset": "500",
}  # fmt: skip
CONFIG: Final = {
    "appendfsync": "always", "save": "", "timeout": "0", "min-replicas-to-write": "0", "min-replicas-max-lag": "10",
}  # fmt: skip
WELL: Final = Node("h:1", info=INFO, config=CONFIG, clock=Clock(0.0, 0.001), script_seconds=0.001, way="tracking")
ONLINE: Final = {"slave0": "ip=10.0.0.2,port=6379,state=online,offset=490,lag=0"}
FOLLOWS: Final = {"role": "slave", "master_host": "m", "master_port": "6379", "master_link_status": "up"}
SENTINEL: Final = Sentinel("s:1", "", "h:1", frozenset({"master"}), quorum=2, sentinels=3, replicas=2)
SLOTS: Final = ((0, 5461), (5462, 10922), (10923, 16383))
MASTERS: Final = tuple(Member(f"m{at}", f"h:{at}", frozenset({"master"}), "", (SLOTS[at],), 0) for at in range(3))
REPLICAS: Final = tuple(Member(f"r{at}", f"h:{at + 3}", frozenset({"slave"}), f"m{at}", (), 0) for at in range(3))
CLUSTER: Final = Cluster(MASTERS + REPLICAS, "ok")


def server(info: dict[str, str] | None = None, config: dict[str, str] | None = None, **changes: Any) -> Facts:
    """A healthy server except for these changes."""
    node = replace(WELL, info=INFO | (info or {}), config=CONFIG | (config or {}), **changes)
    return Facts("redis", ClientOptions(), (node,))


def asking_for(replicas: int, facts: Facts) -> Facts:
    return replace(facts, options=ClientOptions(replicas=replicas))


def redlock(*nodes: Node) -> Facts:
    return Facts("redlock", ClientOptions(), tuple(replace(node, part="redlock") for node in nodes))


def different(count: int, **changes: Any) -> list[Node]:
    return [
        replace(WELL, name=f"h:{at}", info=INFO | {"run_id": str(at)} | changes.get("info", {})) for at in range(count)
    ]


def sentinels(*seen: Sentinel) -> Facts:
    master = replace(WELL, part="master", info=INFO | ONLINE)
    return Facts("sentinel", ClientOptions(replicas=1), (master,), seen)


def cluster(**changes: Any) -> Facts:
    node = replace(WELL, part="master", info=INFO | {"cluster_enabled": "1"})
    return Facts("cluster", ClientOptions(), (node,), cluster=replace(CLUSTER, **changes))


def in_cluster(*members: Member) -> Facts:
    return cluster(members=members)


NO_AOF: Final = {"aof_enabled": "0"}
OK, NOTICE, WARNING, PROBLEM = Level

#: The fault, the check that reports it, and its level.
CASES: Final[dict[str, tuple[Facts, str, Level]]] = {
    "too old": (server({"redis_version": "6.0.16"}), "version", PROBLEM),
    "recent": (server({"redis_version": "6.2.0"}), "version", OK),
    "valkey": (server({"redis_version": "7.2.4", "valkey_version": "8.1.0"}), "version", OK),
    "a cluster's node under redis://": (server({"cluster_enabled": "1"}), "mode", PROBLEM),
    "no cluster under redis+cluster://": (replace(server(), engine="cluster"), "mode", PROBLEM),
    "a replica under redis://": (server(FOLLOWS), "role", PROBLEM),
    "a replica that is called the master": (server(FOLLOWS, part="master"), "role", PROBLEM),
    "a master that is called a replica": (server(part="replica"), "role", PROBLEM),
    "a replica where one is expected": (server(FOLLOWS, part="replica"), "role", OK),
    "full": (server(write_error="OOM command not allowed"), "writing", PROBLEM),
    "scripts refused": (server(script_seconds=None, script_error="no"), "scripts", PROBLEM),
    "far away": (server(script_seconds=0.3), "scripts", WARNING),
    "pushes swallowed": (server(way="channel"), "waking", NOTICE),
    "nothing wakes": (server(way="polling"), "waking", WARNING),
    "may not take": (server(lacks=(Lack(Purpose.LOCKS, "+hset"),)), "rights", PROBLEM),
    "may not wait": (server(lacks=(Lack(Purpose.WAITING, "+rpush"),)), "rights", PROBLEM),
    "may not inspect": (server(lacks=(Lack(Purpose.INSPECTING, "+hgetall"),)), "rights", WARNING),
    "may not track": (server(way="channel", lacks=(Lack(Purpose.PUSHES, "+client|tracking"),)), "rights", NOTICE),
    "may not listen": (server(lacks=(Lack(Purpose.CHANNEL, "+subscribe"),)), "rights", NOTICE),
    "may not listen for shares": (server(lacks=(Lack(Purpose.FURTHER_CHANNELS, "&x"),)), "rights", NOTICE),
    "ttl above that of Redisson's watchdog": (
        replace(server(), options=ClientOptions(ttl=60.0)), "redisson", NOTICE,
    ),
    "may not list": (server(lacks=(Lack(Purpose.LISTING, "+scan"),)), "rights", NOTICE),
    "may not WAIT": (server(ONLINE, lacks=(Lack(Purpose.REPLICAS, "+wait"),)), "rights", NOTICE),
    "may not WAIT and must": (
        asking_for(1, server(ONLINE, lacks=(Lack(Purpose.REPLICAS, "+wait"),))), "rights", PROBLEM,
    ),
    "volatile-lru": (server({"maxmemory_policy": "volatile-lru"}), "eviction", PROBLEM),
    "allkeys-lru, unlimited": (server({"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}), "eviction", NOTICE),
    "nearly full": (server({"used_memory": "950000"}), "memory", WARNING),
    "nothing persisted": (server(NO_AOF), "persistence", WARNING),
    "snapshots only": (server(NO_AOF, {"save": "3600 1"}), "persistence", WARNING),
    "nothing persisted, replica": (server(FOLLOWS | NO_AOF, part="replica"), "persistence", NOTICE),
    "everysec": (server(config={"appendfsync": "everysec"}), "persistence", OK),
    "fsync by the kernel": (server(config={"appendfsync": "no"}), "persistence", WARNING),
    "disk full": (server({"aof_last_write_status": "err"}), "saving", PROBLEM),
    "snapshot failed": (server({"rdb_last_bgsave_status": "err"}), "saving", PROBLEM),
    "redlock, nothing persisted": (redlock(*different(3, info=NO_AOF)), "persistence", NOTICE),
    "redlock, durable": (redlock(*different(3)), "persistence", OK),
    "redlock, just restarted": (
        redlock(*different(3, info=NO_AOF | {"uptime_in_seconds": "3"})), "restart", WARNING,
    ),
    "master lost": (server(FOLLOWS | {"master_link_status": "down"}, part="replica"), "replication", PROBLEM),
    "follows": (server(FOLLOWS, part="replica"), "replication", OK),
    "replica online": (server(ONLINE), "replicas", OK),
    "replica syncing": (server({"slave0": "ip=r,port=1,state=wait_bgsave,offset=0,lag=0"}), "replicas", WARNING),
    "replica silent": (server({"slave0": "ip=r,port=1,state=online,offset=500,lag=11"}), "replicas", WARNING),
    "replica far behind": (
        server({"master_repl_offset": "9000000", "slave0": "ip=r,port=1,state=online,offset=9,lag=0"}),
        "replicas", WARNING,
    ),
    "no replica acknowledges": (server(ONLINE), "acknowledgement", WARNING),
    "min-replicas-to-write": (server(ONLINE, {"min-replicas-to-write": "1"}), "acknowledgement", NOTICE),
    "too few to acknowledge": (asking_for(2, server(ONLINE)), "acknowledgement", PROBLEM),
    "just enough": (asking_for(1, server(ONLINE)), "acknowledgement", NOTICE),
    "one to spare": (
        asking_for(1, server(ONLINE | {"slave1": "ip=s,port=1,state=online,offset=490,lag=0"})),
        "acknowledgement", OK,
    ),
    "redlock with replicas": (redlock(*different(2), replace(WELL, info=INFO | ONLINE)), "replicas", WARNING),
    "nearly all connections": (server({"connected_clients": "950"}), "connections", WARNING),
    "idle clients cut": (server(config={"timeout": "300"}), "idle", NOTICE),
    "idle clients cut between renewals": (server(config={"timeout": "5"}), "idle", WARNING),
    "clock ahead": (server(clock=Clock(60.0, 0.01)), "clock", NOTICE),
    "clock not known well enough": (server(clock=Clock(0.9, 0.6)), "clock", OK),
    "redlock, clock behind": (
        redlock(*different(2), replace(WELL, clock=Clock(-60.0, 0.01))), "clock", WARNING,
    ),
    "clocks differ": (
        redlock(*different(2), replace(WELL, clock=Clock(-60.0, 0.01))), "clocks", WARNING,
    ),
    "clocks agree": (redlock(*different(3)), "clocks", OK),
    "CONFIG refused": (server(withheld={"CONFIG GET": "no right"}), "withheld", NOTICE),
    "dead": (redlock(*different(2), Node("dead:1", failure="no answer")), "reachable", PROBLEM),
    "three nodes": (redlock(*different(3)), "nodes", OK),
    "four nodes": (redlock(*different(4)), "nodes", WARNING),
    "one node": (redlock(WELL), "nodes", WARNING),
    "one server by two names": (redlock(WELL, replace(WELL, name="alias:1"), WELL), "nodes", PROBLEM),
    "no majority": (redlock(WELL, Node("x:1", failure="x"), Node("y:1", failure="y")), "majority", PROBLEM),
    "sentinels agree": (sentinels(SENTINEL, replace(SENTINEL, name="s:2")), "agreement", OK),
    "sentinels disagree": (sentinels(SENTINEL, replace(SENTINEL, master="other:1")), "agreement", PROBLEM),
    "a sentinel is away": (sentinels(SENTINEL, Sentinel("s:2", "no answer")), "sentinel", PROBLEM),
    "master down": (sentinels(replace(SENTINEL, flags=frozenset({"master", "s_down"}))), "sentinel", PROBLEM),
    "the least of a sentinel": (sentinels(Sentinel("s:1", master="h:1", withheld="no right")), "sentinel", NOTICE),
    "quorum": (sentinels(SENTINEL), "quorum", OK),
    "quorum out of reach": (sentinels(replace(SENTINEL, quorum=4)), "quorum", PROBLEM),
    "NOQUORUM": (sentinels(replace(SENTINEL, ckquorum="NOQUORUM 1 usable")), "quorum", PROBLEM),
    "two sentinels": (sentinels(replace(SENTINEL, sentinels=2)), "sentinels", WARNING),
    "no replica": (sentinels(replace(SENTINEL, replicas=0)), "replicas", WARNING),
    "cluster ok": (cluster(), "cluster", OK),
    "cluster down": (cluster(state="fail"), "cluster", PROBLEM),
    "the least of a cluster": (cluster(state="", withheld="no right"), "cluster", NOTICE),
    "all slots": (cluster(), "slots", OK),
    "slots missing": (in_cluster(MASTERS[0]._replace(slots=((5, 5461),)), *MASTERS[1:], *REPLICAS), "slots", PROBLEM),
    "slots moving": (in_cluster(MASTERS[0]._replace(moving=1), *MASTERS[1:], *REPLICAS), "slots", NOTICE),
    "master alone": (in_cluster(*MASTERS, *REPLICAS[1:]), "replicas", WARNING),
    "its replica is dead": (
        in_cluster(*MASTERS, REPLICAS[0]._replace(flags=frozenset({"slave", "fail"})), *REPLICAS[1:]),
        "replicas", WARNING,
    ),
    "node failed": (
        in_cluster(*MASTERS, *REPLICAS[1:], REPLICAS[0]._replace(flags=frozenset({"fail"}))), "cluster", PROBLEM,
    ),
    "two masters": (in_cluster(MASTERS[0]._replace(slots=SLOTS[:2]), MASTERS[2], *REPLICAS), "masters", WARNING),
    "another cluster's seed": (cluster(strangers=("x:1",)), "cluster", PROBLEM),
}  # fmt: skip


def levels(facts: Facts, check: str) -> list[Level]:
    return [finding.level for finding in checks.judge(facts) if finding.check == check]


@pytest.mark.parametrize("facts, check, level", CASES.values(), ids=CASES.keys())
def test_check_reports_the_expected_level(facts: Facts, check: str, level: Level) -> None:
    assert max(levels(facts, check)) is level


def test_every_check_can_complain() -> None:
    """A check that no case puts into a bad state is untested."""
    every = [facts for facts, _, _ in CASES.values()]
    for check in checks.TOGETHER:
        assert any(finding.level > OK for facts in every for finding in check(facts)), check.__name__
    for each in checks.EACH:
        found = (finding for facts in every for node in facts.alive for finding in each(node, facts))
        assert any(finding.level > OK for finding in found), each.__name__


@pytest.mark.parametrize(
    "facts", [server(), redlock(*different(3)), cluster()], ids=["one server", "redlock", "cluster"]
)
def test_healthy_facts_have_no_complaint(facts: Facts) -> None:
    findings = checks.judge(facts)
    assert [finding for finding in findings if finding.level > OK] == []
    assert len(findings) > 5


def test_every_complaint_has_a_remedy() -> None:
    for facts, _, _ in CASES.values():
        for finding in checks.judge(facts):
            assert finding.sentence
            assert finding.remedy or finding.level is OK or finding.check == "idle"


def test_rights_for_what_redlock_does_not_have_are_not_asked_for() -> None:
    lacks = tuple(Lack(purpose, "+x") for purpose in (Purpose.SHARED, Purpose.REGISTERS, Purpose.FURTHER_CHANNELS))
    facts = redlock(*(replace(node, lacks=lacks) for node in different(3)))
    assert levels(facts, "rights") == []
    assert levels(server(lacks=lacks), "rights") == [NOTICE] * 3


def test_unknown_facts_are_not_judged() -> None:
    """For a server that reports no details, no check takes a missing value for a fault."""
    silent = Node("h:1", script_seconds=0.001, withheld={"INFO": "no", "CONFIG GET": "no", RIGHTS: "no"})
    findings = checks.judge(Facts("redis", ClientOptions(), (silent,)))
    assert {(finding.check, finding.level) for finding in findings} == {("scripts", OK), ("withheld", NOTICE)}


def test_servers_with_differing_clocks_are_named() -> None:
    early, right, late = (
        replace(node, clock=Clock(offset, 0.01)) for node, offset in zip(different(3), (-60.0, 0.0, 5.0), strict=True)
    )
    (found,) = [finding for finding in checks.judge(redlock(right, late, early)) if finding.check == "clocks"]
    assert found.level is WARNING
    assert f"{early.name} is behind, {late.name} ahead" in found.sentence


def test_restart_delay_is_the_longer_of_ttl_and_clock_difference() -> None:
    near, far = different(2, info=NO_AOF)
    for difference, delay in ((0.0, "30 s"), (100.0, "101 s")):
        facts = redlock(near, replace(far, clock=Clock(difference, 0.6)))
        assert {delay in finding.remedy for finding in checks.judge(facts) if finding.check == "persistence"} == {True}


def test_exit_codes() -> None:
    assert {level.word: EXIT_CODES[level] for level in Level} == {"ok": 0, "notice": 0, "warning": 3, "problem": 4}
    assert worst([]) is OK
    assert worst([Finding(NOTICE, "a", "", "b"), Finding(PROBLEM, "a", "", "b"), Finding(OK, "a", "", "b")]) is PROBLEM


def test_findings_contain_no_terminal_escapes() -> None:
    evil = "\x1b[31mred\x07\r\n\u202egnissim\x9b2J"
    finding = Finding(OK, evil, evil, evil, evil)
    for text in (finding.check, finding.node, finding.sentence, finding.remedy):
        assert text == r"\x1b[31mred\x07\r\n\u202egnissim\x9b2J"


def test_every_check_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "command.md").read_text("utf-8")
    listed = set(
        re.findall(r"`([a-z]+)`", "".join(line.split("|")[1] for line in text.splitlines() if line[:2] == "| "))
    )
    assert {finding.check for facts, _, _ in CASES.values() for finding in checks.judge(facts)} <= listed
