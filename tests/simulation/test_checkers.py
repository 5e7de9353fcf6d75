"""The checks of a world, where they must tell a bug from what is allowed: by steps that are written down here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.engines.base import READ, WRITE, Claim, Mode
from holdfast.engines.redis.attempt import RedisAttempt
from holdfast.engines.redis.dialect import leases, metadata, rwlocks, waiters
from holdfast.engines.redis.dialect.grants import AcquireEncoder
from holdfast.engines.redis.dialect.requests import Call
from tests.simulation.checkers.engine_view import EngineView
from tests.simulation.checkers.history import Violation
from tests.simulation.checkers.holder_view import HolderView
from tests.simulation.checkers.orphans import Orphans
from tests.simulation.client.wire import words_of
from tests.simulation.runner import run_seed
from tests.simulation.sharing.holders import SharingHolders
from tests.simulation.sharing.rwlock_view import RWLockView
from tests.simulation.sharing.view import SharingView
from tests.simulation.sharing.world import SharingWorld
from tests.simulation.world.faults import FaultPlan, Faults
from tests.simulation.world.node import Node
from tests.simulation.world.runtime import Simulator

_TTL = 5.0
_COUNTER_TTL = 60_000
_WIRE = "pab12"
#: Numbers of our owners are long: short ones are taken for threads of Java.
OWNER = "client:1000000000000000002"
OTHER = "other:1000000000000000001"
NEXT = "other:1000000000000000003"


class Server:
    """A server, and what it is asked, step by step."""

    def __init__(self, name: str) -> None:
        self.simulator = Simulator(7)
        self.faults = Faults(FaultPlan(), self.simulator.random)
        self.node = self.make_node(name)
        self.process = self.simulator.process("p")
        self.connection = self.node.model.connect(lambda push: None)

    def make_node(self, name: str) -> Node:
        return Node(self.simulator, "server", self.faults.part(FaultPlan()), [name], _TTL, rate=1.0)

    def run(self, call: Call) -> Any:
        self.wait(0.001)
        words = words_of(self.node.network, call, by_source=True)
        reply, error = self.node.network.execute(self.connection, words)
        assert error is None
        self.node.view.after(call.script.name, words, reply)
        self.node.model.drain()
        return reply

    def wait(self, seconds: float) -> None:
        self.simulator.run(self.simulator.time + seconds)


# -- I8: a lock without a caller -------------------------------------------------------------------------------------


class Lock(Server):
    """One lock. A connection listens to what is handed over."""

    def __init__(self) -> None:
        super().__init__("a")
        self.orphans = Orphans(HolderView(self.faults, _TTL, _TTL), [self.node], grace=0.5, skipped_for=0.0)
        self.orphans._processes["client"] = self.process
        self._subscribe()

    def _subscribe(self) -> None:
        self.connection = self.node.model.connect(lambda push: None)
        self.node.model.execute(self.connection, [b"SUBSCRIBE", f"holdfast_wake:{_WIRE[1:]}".encode()])

    def join(self, owner: str) -> tuple[Any, bytes]:
        """The answer, and the entry in the queue."""
        place = waiters.seat_at("5ea7", _WIRE, _TTL, 0.0)
        attempt = RedisAttempt(Claim("a", owner, _TTL))
        call, entry = AcquireEncoder(_COUNTER_TTL).encode_joining(attempt, place, ())
        return self.run(call), entry

    def release(self, owner: str, entry: bytes | None = None) -> int:
        """With an entry: the claim is withdrawn."""
        if entry is None:
            return int(self.run(leases.encode_release("a", owner, "PUBLISH")))
        call = leases.encode_release("a", owner, "PUBLISH", tombstone=60.0, waiter="5ea7", entry=entry)
        return int(self.run(call))

    def owner(self) -> str | None:
        assert isinstance(self.node.view, EngineView)
        return self.node.view.owner("a")

    def lose_all_keys(self, by: str) -> None:
        self.node.view.left_model(["a"], all_keys=True)
        if by == "flush":
            self.node.model.flush()
        else:
            self.node.model.restart(empty=True)
            self._subscribe()

    def withdrawn_claim_joins_late(self, *, after: str | None) -> None:
        """Then the lock is released. ``after``: what has removed all keys in between."""
        self.join(OTHER)
        answer, entry = self.join(OWNER)
        assert answer == -5
        self.release(OWNER, entry)
        if after is not None:
            self.lose_all_keys(after)
            self.join(OTHER)
        assert self.join(OWNER)[0] == -5  # it arrives once more
        assert self.release(OTHER) == 1

    def look_for(self, seconds: float) -> None:
        end = self.simulator.time + seconds
        while self.simulator.time < end:
            self.wait(min(0.1, end - self.simulator.time))
            self.orphans.look(self.simulator.time)


@pytest.fixture
def lock() -> Iterator[Lock]:
    lock = Lock()
    yield lock
    lock.simulator.close()


def test_withdrawn_claim_that_joins_late_is_not_handed_the_lock(lock: Lock) -> None:
    lock.withdrawn_claim_joins_late(after=None)
    assert lock.owner() is None


@pytest.mark.parametrize("after", ["flush", "restart"])
def test_after_the_loss_of_all_keys_a_withdrawn_claim_has_the_lock_for_two_seconds(lock: Lock, after: str) -> None:
    """Its tombstone is gone: it counts as a waiter that has died. Such a loss is outside the engine's model."""
    lock.withdrawn_claim_joins_late(after=after)
    lock.look_for(1.99)
    assert lock.owner() == OWNER
    lock.look_for(0.02)
    assert lock.owner() is None
    assert not isinstance(lock.join(NEXT)[0], int)


@pytest.mark.parametrize("after", ["flush", "restart"])
def test_after_the_loss_of_all_keys_a_withdrawn_claim_that_is_renewed_is_noticed(lock: Lock, after: str) -> None:
    lock.withdrawn_claim_joins_late(after=after)
    lock.run(leases.encode_renew([("a", OWNER)], _TTL, 0))
    lock.look_for(1.95)
    with pytest.raises(Violation, match="I8: a: p gave …0002 up"):
        lock.look_for(0.1)


def test_claim_that_was_given_up_after_the_loss_of_all_keys_is_noticed(lock: Lock) -> None:
    """Its withdrawal had to end it, and has nothing to do with the loss."""
    lock.lose_all_keys("flush")
    lock.join(OTHER)
    assert lock.join(OWNER)[0] == -5
    lock.release(OTHER)
    with pytest.raises(Violation, match="I8"):
        lock.look_for(0.6)


def test_seed_with_a_late_duplicate_after_a_flush() -> None:
    run_seed(1870)


# -- I6: a waiter beside room ----------------------------------------------------------------------------------------


class RWLock(Server):
    """One read-write lock, its holders, and waiters that cannot track keys."""

    def __init__(self) -> None:
        super().__init__("rw")
        self.holders = SharingHolders(self.faults, _TTL, _TTL)
        assert isinstance(self.node.view, SharingView)
        self.holders.watch(self.node.view)
        self.wait(10.0)  # the beginning is no fault

    def make_node(self, name: str) -> Node:
        return Node(
            self.simulator,
            "server",
            self.faults.part(FaultPlan()),
            [name],
            _TTL,
            rate=1.0,
            view=lambda model, names: SharingView([RWLockView(model, each) for each in names]),
        )

    def claim(self, owner: str, mode: Mode) -> Claim:
        return Claim("rw", owner, _TTL, mode=mode)

    def acquire(self, owner: str, mode: Mode) -> Any:
        return self._look(rwlocks.encode_acquire(self.claim(owner, mode), owner, None, _COUNTER_TTL, None))

    def release(self, owner: str, mode: Mode, waiter: str | None = None) -> Any:
        """With a waiter: the claim is withdrawn."""
        tombstone = None if waiter is None else 60.0
        return self._look(rwlocks.encode_release(self.claim(owner, mode), owner, "PUBLISH", tombstone, waiter))

    def queue(self, owner: str, mode: Mode, waiter: str) -> None:
        about = metadata.waiter_about(owner, b"{}")
        attempt = self.holders.attempt(self.process, "rw", None)
        claimed = attempt.claimed = RedisAttempt(self.claim(owner, mode))
        claimed.waiter = waiter
        self._look(waiters.encode_enqueue("rw", waiter, front=1, about=about, reader=mode is READ))

    def gives_up(self, waiter: str) -> None:
        """The caller, whose withdrawal is another step."""
        for attempt in list(self.holders.waiting):
            if isinstance(attempt.claimed, RedisAttempt) and attempt.claimed.waiter == waiter:
                self.holders.failed(attempt)

    def _look(self, call: Call) -> Any:
        reply = self.run(call)
        self.look()
        return reply

    def look(self) -> None:
        self.holders.look(self.simulator.time)


@pytest.fixture
def rwlock() -> Iterator[RWLock]:
    rwlock = RWLock()
    yield rwlock
    rwlock.simulator.close()


def test_reader_that_a_release_makes_room_for_is_served_at_once(rwlock: RWLock) -> None:
    rwlock.acquire("client:1", WRITE)
    rwlock.queue("client:2", READ, "r2")
    rwlock.release("client:1", WRITE)
    rwlock.wait(0.04)
    rwlock.look()
    rwlock.wait(0.02)
    with pytest.raises(Violation, match="I6: r2 could have been served"):
        rwlock.look()


def test_reader_behind_a_writer_that_has_left_looks_within_a_second(rwlock: RWLock) -> None:
    """A reader that is released later, beside another one, does not make the room, and wakes no waiter."""
    rwlock.acquire("client:1", READ)
    rwlock.acquire("client:2", READ)
    rwlock.queue("client:3", WRITE, "w3")
    rwlock.queue("client:4", READ, "r4")
    frozen = rwlock.simulator.process("frozen")
    rwlock.faults.lasts_until(rwlock.simulator.time + 1.0, frozen)  # an excuse, while a caller of it waits
    waits = rwlock.holders.attempt(frozen, "rw", None)
    rwlock.gives_up("w3")
    assert rwlock.release("client:3", WRITE, "w3") == -1
    rwlock.holders.failed(waits)
    assert rwlock.release("client:2", READ) == 1
    rwlock.wait(0.9)
    rwlock.look()
    rwlock.wait(0.2)
    with pytest.raises(Violation, match="I6: r4 could have been served"):
        rwlock.look()


def test_seed_with_a_reader_behind_a_writer_that_has_left() -> None:
    run_seed(669, make=SharingWorld)
