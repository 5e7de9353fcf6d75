"""Java's LeaderLatch and Python's election: one leader, in one queue; changes, ids, deaths of leaders."""

from __future__ import annotations

import json
import os
from typing import Final

import pytest

import holdfast
from tests.interop.curator import PEER as PEER
from tests.interop.curator import Java, path_of
from tests.interop.curator.turns import PythonTurn, queued
from tests.servers.zookeeper import ZooKeeperServer
from tests.support.waiting import eventually

if not os.environ.get("INTEROP"):
    pytest.skip("INTEROP is not set", allow_module_level=True)

pytestmark = pytest.mark.timeout(400)  # the first run downloads the jars

LATCH: Final = "LeaderLatch"
NAMES: Final = {"{shop}:cart": "{shop}:cart", "a/b": "a%2Fb", "名前": "名前", "🔒": "%F0%9F%94%92", "latch-": "latch-"}


@pytest.mark.interop(LATCH, "exclusion")
@pytest.mark.interop(LATCH, "order of grants")
@pytest.mark.interop(LATCH, "leader changes")
@pytest.mark.interop(LATCH, "tokens in the order of grants")
def test_candidates_of_both_languages_lead_in_one_order(java: Java, locks: holdfast.Client) -> None:
    path, election = path_of("chief"), locks.election("chief", value="python")
    java.lead("j1", path)
    first = java.held("j1")
    assert first is not None
    second = PythonTurn(lambda: election.campaign(timeout=30))
    queued(locks, "chief", 2)
    java.lead("j2", path)
    queued(locks, "chief", 3)
    leader = election.leader()
    assert leader is not None
    assert (leader.value, leader.token) == ("j1", first.token), "Java's id"
    assert java.leads("j1")
    assert second.waits
    java.resign("j1")
    _, token = second.held()
    assert token > first.token
    assert json.loads(java.leader(path))["value"] == "python"
    assert not java.leads("j2")
    second.release()
    third = java.held("j2")
    assert third is not None
    assert third.token > token
    java.resign("j2")
    eventually(lambda: election.leader() is None)


@pytest.mark.interop(LATCH, "leader changes")
def test_observer_sees_leaders_of_both_languages(java: Java, locks: holdfast.Client) -> None:
    election = locks.election("chief", value="python")
    seen = election.observe()
    assert next(seen) is None
    java.lead("j", path_of("chief"))
    assert java.held("j") is not None
    leader = next(seen)
    assert leader is not None
    assert leader.value == "j"
    following = PythonTurn(lambda: election.campaign(timeout=30))
    queued(locks, "chief", 2)
    java.resign("j")
    following.held()
    leader = next(seen)
    assert leader is not None
    assert leader.value == "python"
    following.release()


@pytest.mark.interop(LATCH, "`break_` and forced deletion")
def test_broken_and_deleted_leaders_are_followed(
    java: Java, locks: holdfast.Client, zookeeper_server: ZooKeeperServer
) -> None:
    path, election = path_of("chief"), locks.election("chief")
    java.lead("j", path)
    first = java.held("j")
    assert first is not None
    following = PythonTurn(lambda: election.campaign(timeout=30))
    queued(locks, "chief", 2)
    assert locks.break_("chief", token=first.token)
    _, token = following.held()
    assert token > first.token
    java.resign("j")
    following.release()

    leading = election.campaign(timeout=5)
    java.lead("k", path)
    queued(locks, "chief", 2)
    zookeeper = zookeeper_server.client()
    (node,) = [node for node in java.participants(path) if zookeeper.exists(node).czxid == leading.token]
    java.delete(node)
    assert java.held("k") is not None
    eventually(lambda: leading.lost)
    java.resign("k")


@pytest.mark.interop(LATCH, "awkward names")
@pytest.mark.parametrize("name, node", NAMES.items(), ids=map(ascii, NAMES))
def test_names_map_to_the_same_nodes(java: Java, locks: holdfast.Client, name: str, node: str) -> None:
    election = locks.election(name)
    with election.campaign(timeout=5):
        java.lead("j", path_of(node), timeout=0.2)
        assert java.held("j") is None
    java.lead("j", path_of(node))
    assert java.held("j") is not None
    with pytest.raises(holdfast.AcquireTimeout):
        election.campaign(timeout=1)
    java.resign("j")
