"""A process is frozen (SIGSTOP) for longer than its session lives: while holding, while waiting, and in between."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

import holdfast
from tests.servers.zookeeper import ZooKeeperServer
from tests.servers.zookeeper_proxy import ZooKeeperProxy
from tests.servers.zookeeper_wire import Op
from tests.support.child import Child
from tests.support.register import Register
from tests.support.waiting import eventually
from tests.zookeeper.queue_nodes import QueueNodes

#: Long enough that a scheduler stall does not end the session early.
TTL = 2.0
#: Additional delay on a busy machine, beside the session itself.
GRACE = 3.0


@pytest.fixture
def locks(zookeeper_server: ZooKeeperServer) -> Iterator[holdfast.Client]:
    with holdfast.connect(zookeeper_server.url, ttl=10.0) as client:
        client.ping()
        yield client


def test_frozen_holder_reports_its_loss_immediately_and_its_late_write_is_refused(
    zookeeper_server: ZooKeeperServer, locks: holdfast.Client, tmp_path: Path
) -> None:
    fenced, unfenced = Register(tmp_path / "fenced", fenced=True), Register(tmp_path / "unfenced", fenced=False)
    with Child(zookeeper_server.url, ttl=TTL) as victim:
        victim.do(registers_in(tmp_path))
        victim.do("keep.update(lease=locks.lock('job').acquire())")
        victim.do("keep.update(numbers=[each.load(keep['lease']) for each in keep['registers']])")
        victim.freeze()
        with locks.lock("job").acquire(timeout=TTL + GRACE) as lease:
            for register in (fenced, unfenced):
                register.store(lease, register.load(lease) | {1})
            victim.send("[keep['lease'].held, keep['lease'].lost_reason, error_of(keep['lease'].check)]")
            victim.wake()
            held, reason, check = victim.answer()
            assert not held
            assert reason in ("expired", "session", "unreachable")
            assert check == f"LockLost:{reason}"
            store = "error_of(lambda: keep['registers'][{0}].store(keep['lease'], set(keep['numbers'][{0}]) | {{2}}))"
            assert victim.do(store.format(0)) == "StaleToken:"
            assert victim.do(store.format(1)) == "nothing"
            assert victim.do("error_of(keep['lease'].release)") == f"LockLost:{reason}"
            assert lease.held
            assert lease.token > victim.do("keep['lease'].token")
    assert fenced.numbers() == {1}
    assert unfenced.numbers() == {2}, "without a fence the late write wins, and the newer one is lost"


def registers_in(directory: Path) -> str:
    register = "__import__('tests.support.register', fromlist=['Register']).Register"
    path = f"__import__('pathlib').Path({str(directory)!r})"
    made = ", ".join(f"{register}({path} / {kind!r}, fenced={kind == 'fenced'})" for kind in ("fenced", "unfenced"))
    return f"keep.update(registers=[{made}])"


def test_frozen_waiter_goes_to_the_end_of_the_queue(
    zookeeper_server: ZooKeeperServer, locks: holdfast.Client, zookeeper: KazooClient
) -> None:
    queue = QueueNodes(zookeeper, "job")
    with Child(zookeeper_server.url, ttl=TTL) as victim, Child(zookeeper_server.url, ttl=10.0) as other:
        holder = locks.lock("job").acquire()
        victim.send(TAKE)
        eventually(lambda: len(queue.nodes()) == 2)
        _, first_token = queue.tokens()
        other.send(TAKE)
        eventually(lambda: len(queue.nodes()) == 3)
        victim.freeze()
        eventually(lambda: first_token not in queue.tokens())
        victim.wake()
        eventually(lambda: len(queue.nodes()) == 3)
        _, next_token, last = queue.tokens()
        holder.release()
        assert other.answer() == next_token
        eventually(lambda: queue.tokens() == [next_token, last])
        other.do("keep['lease'].release()")
        assert victim.answer() == last
        assert victim.do("keep['lease'].held")
        victim.do("keep['lease'].release()")


TAKE = "keep.update(lease=locks.lock('job').acquire(timeout=20)) or keep['lease'].token"


def test_client_frozen_before_the_answer_to_its_create_gets_a_new_grant(
    zookeeper_server: ZooKeeperServer, proxy: ZooKeeperProxy, proxied: str, zookeeper: KazooClient
) -> None:
    """The answer waits in the socket while its node is removed: such a grant must not be used."""
    queue = QueueNodes(zookeeper, "job")
    with Child(proxied, ttl=TTL) as victim:
        victim.do("locks.lock('job').acquire().release()")
        held_back = proxy.on(Op.CREATE2).delay()
        victim.send(f"{TAKE}, keep['lease'].remaining")
        assert held_back.wait(5)
        victim.freeze()
        held_back.release()
        (dead,) = queue.tokens()
        eventually(lambda: not queue.nodes())
        victim.wake()
        token, remaining = victim.answer()
        assert token > dead
        assert remaining > 0
        assert queue.tokens() == [token]
        assert victim.do("keep['lease'].held")
        victim.do("keep['lease'].release()")
