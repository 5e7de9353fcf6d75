"""The tests' own ensemble: it elects, fails and heals as the fault tests assume.

Also the fact on which the validity of a lease rests: what the leader knows of a session whose client is connected to a
follower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue

import pytest

from tests.servers.ensemble import Ensemble, Member
from tests.servers.silent_session import SilentSession
from tests.support.leaks import new_threads
from tests.support.waiting import eventually

#: Session timeout in seconds; the session survives the pauses of the tests and a scheduler stall.
SESSION = 1.5


def test_ensemble_has_one_leader_and_two_followers(ensemble: Ensemble) -> None:
    leader, followers = ensemble.leader(), ensemble.followers()
    assert {leader, *followers} == set(ensemble.members)
    assert ensemble.url == "zookeeper://" + ",".join(one.address for one in ensemble.members) + "/holdfast?tick=0.1"
    followers[0].client().create("/x")
    followers[1].client().sync("/x")
    assert followers[1].client().exists("/x")


def test_members_connect_to_each_other_only_through_the_relays(ensemble: Ensemble) -> None:
    ports = {port for member in ensemble.members for port in (member.quorum_port, member.election_port)}
    found = connected_to(ports)
    assert len(found) >= 4  # two followers, each with a link to its leader and one for elections
    assert set(found) <= own_sockets()


def test_follower_that_is_cut_off_serves_its_clients_until_it_detects_the_cut(ensemble: Ensemble) -> None:
    follower, other = ensemble.followers()
    client = other.client()
    with SilentSession(follower.host, follower.port, 10.0) as session:
        session.create("/mine")
        ensemble.cut_off(follower)
        client.create("/unseen")
        assert session.ping().error == 0
        assert session.get_data("/mine").error == 0
        assert session.get_data("/unseen").error != 0
        ensemble.wait_until_silent(follower)
        with pytest.raises(ConnectionResetError):
            session.ping()
    assert ensemble.leader() is not follower
    ensemble.heal()
    ensemble.wait_until_complete()
    eventually(lambda: follower.client().exists("/unseen"))


def test_leader_that_is_cut_off_steps_down(ensemble: Ensemble) -> None:
    old = ensemble.leader()
    ensemble.cut_off(old)
    ensemble.wait_until_silent(old)
    new = ensemble.wait_for_leader()
    assert new is not old
    new.client().create("/x")
    ensemble.heal()
    ensemble.wait_until_complete()
    assert old in ensemble.followers()
    assert old.client().exists("/x")


def test_killed_leader_is_replaced_and_rejoins_as_a_follower(ensemble: Ensemble) -> None:
    old = ensemble.leader()
    client = ensemble.client()
    client.create("/x")
    ensemble.kill(old)
    assert ensemble.wait_for_leader() is not old
    assert client.retry(client.exists, "/x")
    ensemble.restart(old)
    assert old in ensemble.followers()


def test_one_member_of_three_does_not_serve(ensemble: Ensemble) -> None:
    *two, third = ensemble.members
    third.client().create("/x")
    ensemble.kill(*two)
    ensemble.wait_until_silent(third)
    ensemble.restart(*two)
    assert third.client().exists("/x")


@pytest.mark.parametrize("turn", [1, 2])
def test_ensemble_is_complete_and_empty_at_the_start_of_each_test(ensemble: Ensemble, turn: int) -> None:
    assert ensemble.client().get_children("/") == ["zookeeper"]
    ensemble.client().create("/left behind")
    first, second, third = ensemble.members
    first.kill()
    second.pause()
    ensemble.cut_off(third)


@pytest.mark.needs_zookeeper
def test_closed_ensemble_leaves_no_files_processes_or_threads() -> None:
    before = set(threading.enumerate())
    with Ensemble() as ensemble:
        pids = [member.pid for member in ensemble.members]
        ensemble.client()
        ensemble.cut_off(ensemble.leader())
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert not [member for member in ensemble.members if member.directory.exists()]
    eventually(lambda: not new_threads(before))


# ---- what the leader knows


def test_answer_from_the_leader_does_not_renew_the_session(ensemble: Ensemble) -> None:
    """A follower reports live sessions to its leader when the leader pings it, twice a tick. A request that it forwards
    and that the leader answers does not count: if the follower is cut off right after, the session ends as counted
    from the packet *before*. (It counts if the leader's ping comes in between, hence several attempts.)"""
    assert any(after_the_last < SESSION for _, after_the_last in sessions_cut_off(ensemble, 0.4, attempts=5))


def test_packet_sent_three_ticks_before_an_answered_request_renews_the_session(ensemble: Ensemble) -> None:
    """The leader knows a packet that its follower received three ticks before a request that it answered."""
    for after_the_first, _ in sessions_cut_off(ensemble, 0.3, attempts=2):
        assert after_the_first >= SESSION


def test_session_resumed_on_another_connection_is_renewed(ensemble: Ensemble) -> None:
    """A resumed session is confirmed by the leader itself, and lasts for the full timeout from then on."""
    lasting = 2.0
    follower, other = ensemble.followers()
    with SilentSession(follower.host, follower.port, lasting) as session:
        gone = disappearance(other, session)
        time.sleep(1.0)
        began = time.monotonic()
        with SilentSession(follower.host, follower.port, lasting, resume=session) as again:
            assert again.timeout == lasting
            ensemble.cut_off(follower)
            assert gone() - began >= lasting


def sessions_cut_off(ensemble: Ensemble, silence: float, attempts: int) -> Iterator[tuple[float, float]]:
    """A session pings its follower, and after ``silence`` has a request answered by the leader; right after that the
    follower is cut off. Yields how long after each of the two the session ended."""
    while attempts:
        follower, other = ensemble.followers()
        with SilentSession(follower.host, follower.port, SESSION) as session:
            try:
                gone = disappearance(other, session)
                time.sleep(0.3)
                first = time.monotonic()
                session.ping()
                time.sleep(silence)
                last = time.monotonic()
                assert session.sync("/mine").error == 0
            except ConnectionResetError:
                continue  # a scheduler stall ended the session before the cut
            ensemble.cut_off(follower)
            end = gone()
        attempts -= 1
        yield end - first, end - last
        ensemble.heal()
        ensemble.wait_until_complete()


def disappearance(member: Member, session: SilentSession) -> Callable[[], float]:
    """The session creates a node; the result waits until ``member`` reports its removal, and returns the time."""
    client, moments = member.client(), SimpleQueue[float]()
    assert session.create("/mine").error == 0
    client.sync("/mine")
    if not client.exists("/mine", watch=lambda _: moments.put(time.monotonic())):
        raise ConnectionResetError("its session has ended already")
    return lambda: moments.get(timeout=10.0)


def connected_to(ports: set[int]) -> list[str]:
    """The sockets on this machine that are connected to one of these ports, as inode numbers."""
    lines = [line.split() for table in ("tcp", "tcp6") for line in Path("/proc/net", table).read_text().splitlines()]
    established = [(fields[2], fields[9]) for fields in lines if fields[3] == "01"]
    return [inode for remote, inode in established if int(remote.rpartition(":")[2], 16) in ports]


def own_sockets() -> set[str]:
    """The sockets of this process, as inode numbers."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # closed meanwhile, such as the directory itself
            found.add(str(entry.stat().st_ino))
    return found
