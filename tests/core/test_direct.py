"""Requests without an attempt (``Core.direct``): the same outcomes as with one."""

from __future__ import annotations

import queue
import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast._core.core import Core
from holdfast._core.grant import DirectGrant
from holdfast._core.local_queue import may_hand_on
from holdfast.engines.base import RequestFailed
from tests.servers.redis import RedisServer
from tests.support.waiting import LASTING, eventually, renewed

#: What is asked for: two locks, a read-write lock and a semaphore.
KINDS = ("a", "b", "read", "write", "permit")
NAMES = ("a", "b", "shared", "semaphore")


class InTurn:
    """A thread that does one thing after another. (A job of a pool would be a caller of its own.)"""

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[tuple[Any, Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True).start()

    def do(self, call: Any) -> Any:
        future: Future[Any] = Future()
        self._calls.put((call, future))
        return future.result(20)

    def end(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)
            del given, call, future


class Program:
    """A random program of several callers on two clients, one step after another, and what came of each step."""

    def __init__(self, url: str, seed: int, *, direct: bool) -> None:
        self._dice = random.Random(seed)
        self._clients = [holdfast.connect(url, ttl=30), holdfast.connect(url, ttl=30)]
        self._callers = [InTurn() for _ in range(3)]
        self._leases: list[tuple[InTurn, holdfast.Lease]] = []
        self.outcomes: list[object] = []
        self.direct_grants: Counter[str] = Counter()
        for client in self._clients:
            client.ping()
            if not direct:
                assert client._opened is not None
                client._opened.direct = None

    def run(self, steps: int) -> None:
        try:
            for _ in range(steps):
                step = self._dice.choices((self._acquire, self._release, self._break, self._look), (5, 5, 1, 2))[0]
                self.outcomes.append((step.__name__, step()))
        finally:
            for caller, lease in self._leases:
                self._outcome(caller, lease.release)
            for caller in self._callers:
                caller.end()
            for client in self._clients:
                client.close()

    def _outcome(self, caller: InTurn, call: Any) -> object:
        try:
            return caller.do(call)
        except holdfast.LockError as error:
            return type(error).__name__

    def _acquire(self) -> object:
        client, caller = self._dice.choice(self._clients), self._dice.choice(self._callers)
        kind = self._dice.choices(KINDS, (3, 3, 2, 1, 3))[0]
        options = self._dice.choice(({}, {}, {"reentrant": False}, {"renew": False}, {"max_hold": 20.0}))
        lock: Any
        if kind == "permit":
            lock = client.semaphore("semaphore", 3)
        elif kind in ("read", "write"):
            lock = getattr(client.rwlock("shared"), kind)
        else:
            lock = client.lock(kind, **options)
        arguments = (self._dice.choice((1, 1, 2)),) if kind == "permit" else ()
        lease = self._outcome(caller, lambda: lock.try_acquire(*arguments))
        if not isinstance(lease, holdfast.Lease):
            return lease
        self._leases.append((caller, lease))
        self.direct_grants[kind] += lease._hold.grant.__class__ is DirectGrant
        return lease.held, len(lease._hold.handles), lease._hold.grant.size

    def _release(self) -> object:
        if not self._leases:
            return None
        place = self._dice.randrange(len(self._leases))
        _, lease = self._leases.pop(place)
        releaser = self._dice.choice(self._callers)  # any thread may
        # (Not why it was lost: that depends on whether the watchdog has noticed it before.)
        return self._outcome(releaser, lease.release), lease.held, lease.released, lease.lost_reason is None

    def _break(self) -> object:
        client, caller = self._dice.choice(self._clients), self._dice.choice(self._callers)
        name = self._dice.choice(NAMES)
        broken = self._outcome(caller, lambda: client.break_(name))
        # The holder learns of it a little later: before that, its caller would re-enter what it has lost.
        eventually(lambda: not any(lease.held for _, lease in self._leases if lease.name == name))
        return broken

    def _look(self) -> object:
        return len(self._clients[0].inspect(self._dice.choice(NAMES)).holders)


def outcomes(url: str, seed: int, *, direct: bool) -> tuple[list[object], Counter[str]]:
    program = Program(url, seed, direct=direct)
    program.run(60)
    return program.outcomes, program.direct_grants


@pytest.mark.parametrize("engine", ["memory", "sqlite", "redis"])
def test_random_programs_come_to_the_same_with_and_without_attempts(
    engine: str, tmp_path: Path, redis_server: RedisServer
) -> None:
    granted_directly: Counter[str] = Counter()
    for seed in range(12 if engine == "memory" else 4):

        def url() -> str:
            if engine == "memory":
                return f"memory:{uuid.uuid4().hex}"
            if engine == "sqlite":
                return f"sqlite://{tmp_path}/{uuid.uuid4().hex}.db"
            redis_server.client().flushall()
            return redis_server.url

        with_attempts, none = outcomes(url(), seed, direct=False)
        directly, count = outcomes(url(), seed, direct=True)
        assert directly == with_attempts, f"seed {seed}"
        assert none.total() == 0
        granted_directly += count
    assert granted_directly.total() > 20
    assert engine != "redis" or granted_directly.keys() == set(KINDS)


class Unanswered:
    """A session whose first direct acquire is granted, and the answer is lost."""

    def __init__(self, session: Any) -> None:
        self._session = session
        self.lost = 0

    def acquire_directly(self, *args: Any) -> Any:
        answer = self._session.acquire_directly(*args)
        if self.lost == 0:
            self.lost += 1
            raise RequestFailed("the reply was lost", may_have_happened=True)
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def test_lost_answer_to_a_direct_acquire_is_asked_for_again_by_the_same_owner() -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        client.ping()
        core = client._opened
        assert core is not None
        core.direct = lossy = Unanswered(core.session)
        with client.lock("a").acquire(timeout=5) as lease:
            assert lossy.lost == 1
            assert [holder.owner for holder in client.inspect("a").holders] == [lease.owner]


class Observed:
    """A session whose direct acquires are looked at before they are answered, as by another thread."""

    def __init__(self, session: Any, look: Callable[[], object]) -> None:
        self._session = session
        self._look = look

    def acquire_directly(self, *args: Any) -> Any:
        answer = self._session.acquire_directly(*args)
        self._look()
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.mark.parametrize("look", ["inspect", "locks", "break_", "repair"])
def test_hold_that_is_looked_at_before_it_is_granted_is_renewed_all_the_same(look: str) -> None:
    """It has no grant then, and must not make one: that would be none of those which are renewed."""
    seen: list[object] = []
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=LASTING) as client:
        client.ping()
        core = client._opened
        assert core is not None
        looks: dict[str, Callable[[], object]] = {
            "inspect": lambda: [holder.token for holder in client.inspect("a").holders],
            "locks": lambda: [holder.token for state in client.locks() for holder in state.holders],
            "break_": lambda: client.break_("a", token=1),
            "repair": lambda: core.repair_slot("a"),
        }
        core.direct = Observed(core.session, lambda: seen.append(looks[look]()))
        with client.lock("a").acquire(timeout=5) as lease:
            assert seen == {"break_": [False], "repair": [None]}.get(look, [[lease.token]])
            eventually(renewed(lease))
            assert list(core.live) == [lease._hold.grant]


def test_number_after_that_of_an_owner_is_not_the_next_owners() -> None:
    """An attempt on Redis that too few replicas have acknowledged goes on under the next number."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        client.ping()
        assert client._opened is not None
        owners = [client._opened.new_owner().rpartition(":") for _ in range(1000)]
        numbers = {int(number) for _, _, number in owners}
        assert len(numbers) == 1000
        assert not {number + 1 for number in numbers} & numbers


def test_renewal_and_loss_of_a_direct_grant_are_those_of_any_other() -> None:
    url = f"memory:{uuid.uuid4().hex}"
    with holdfast.connect(url, ttl=1.5) as client, holdfast.connect(url) as operator:
        lease = client.lock("a").acquire()
        assert lease._hold.grant.__class__ is DirectGrant
        assert not lease.lost.wait(2.0), "it was not renewed"
        operator.break_("a")
        assert lease.lost.wait(5)
        assert lease.lost_reason == "broken"


def test_a_direct_grant_has_no_token_for_a_second_hold() -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client, client.lock("a") as lease:
        grant = lease._hold.grant
        assert grant.__class__ is DirectGrant
        assert grant.last_token == lease.token
        assert not may_hand_on(grant, grant.policy, grant.since)


def test_an_observer_sees_every_request_so_none_is_direct() -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", observer=lambda event: None) as client:
        client.ping()
        core = client._opened
        assert isinstance(core, Core)
        assert core.direct is None
