"""Elections as Curator's LeaderLatch lays them out: checked with a plain client."""

from __future__ import annotations

import json
import re
import uuid

import pytest
from kazoo.client import KazooClient

import holdfast
from tests.servers.zookeeper import BASE
from tests.support.calls import Call
from tests.support.waiting import eventually
from tests.zookeeper.conftest import Connect
from tests.zookeeper.support import SOON

ID = r"_c_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-"


def java(plain: KazooClient, name: str, marker: str, data: bytes = b"") -> str:
    """Create a node as Curator does; return its path."""
    path = f"{BASE}/{name}/_c_{uuid.uuid4()}-{marker}"
    made: str = plain.create(path, data, ephemeral=True, sequence=True, makepath=True)
    return made


def test_a_candidate_has_the_node_of_a_leader_latch_and_its_transaction_as_token(
    connect: Connect, plain: KazooClient
) -> None:
    locks = connect()
    with locks.election("a", value="here").campaign(timeout=SOON) as lease:
        (node,) = plain.get_children(f"{BASE}/a")
        assert re.fullmatch(f"{ID}latch-[0-9]{{10}}", node)
        data, stat = plain.get(f"{BASE}/a/{node}")
        assert (stat.czxid, json.loads(data)["value"]) == (lease.token, "here")
        assert locks.inspect("a").kind == "election"
    assert plain.get_children(f"{BASE}/a") == []


def test_candidates_of_java_lead_in_their_turn_and_are_known_by_their_ids(connect: Connect, plain: KazooClient) -> None:
    locks = connect()
    election = locks.election("a", value="here")
    theirs, odd = java(plain, "a", "latch-", "Zoë".encode()), java(plain, "a", "latch-", b"\xff")
    campaign = Call(lambda: election.campaign(timeout=SOON))
    eventually(lambda: locks.inspect("a").waiters == 2)
    leader = election.leader()
    assert leader is not None
    assert (leader.value, theirs.endswith(leader.owner)) == ("Zoë", True)
    behind = java(plain, "a", "latch-", b"last")
    assert [waiter.value for waiter in locks.inspect("a").queue] == [None, "here", "last"]
    for node in (theirs, odd):
        assert not campaign.done
        plain.delete(node)
    lease = campaign.result()
    assert lease.held
    election.resign()
    leader = election.leader()
    assert leader is not None
    assert behind.endswith(leader.owner)


def test_an_election_and_a_lock_of_one_name_are_refused(connect: Connect) -> None:
    locks = connect()
    with locks.lock("a"), pytest.raises(holdfast.EngineRefused, match="in use as a lock, not as an election"):
        locks.election("a").campaign(timeout=SOON)
    with locks.election("a").campaign(timeout=SOON) as lease:
        with pytest.raises(holdfast.EngineRefused, match="in use as an election, not as a lock"):
            locks.lock("a").acquire(timeout=SOON)
        assert lease.held
