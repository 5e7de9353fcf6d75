"""Multi-locks: their order, what cannot be acquired together, interrupts, a loss while a later lock is waited for."""

from __future__ import annotations

import gc
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import fencing
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.waiting import eventually


@pytest.fixture
def client() -> Any:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as client:
        yield client


def test_order_is_by_engine_and_name_whatever_the_list_is() -> None:
    with holdfast.connect("memory:y", namespace="n") as y, holdfast.connect("memory:z") as z:
        locks = [z.lock("a"), y.lock("b"), z.lock("c"), y.lock("a")]
        expected = [(y, "a"), (y, "b"), (z, "a"), (z, "c")]
        for given in (locks, locks[::-1], locks + locks):
            assert [(lock._client, lock.name) for lock in y.multi(given).locks] == expected


def test_locks_of_one_name_have_keys_with_their_engines() -> None:
    y, z = holdfast.connect("memory:y", namespace="n"), holdfast.connect("memory:z")
    with y, z, y.multi([y.lock("a"), z.lock("a"), z.lock("b")]) as lease:
        assert list(lease.tokens) == ["n:a at <memory engine 'y'>", "a at <memory engine 'z'>", "b"]
        assert {name: each.token for name, each in lease.leases.items()} == lease.tokens


def test_locks_of_a_file_and_of_memory_are_acquired_together(tmp_path: Path, client: holdfast.Client) -> None:
    with holdfast.connect(f"sqlite://{tmp_path}/locks.db") as other:
        with client.multi([client.lock("a"), other.lock("a")]):
            assert client.inspect("a").holders
            assert other.inspect("a").holders
        assert not client.inspect("a").holders
        assert not other.inspect("a").holders


def test_what_cannot_be_acquired_together_is_refused(client: holdfast.Client) -> None:
    lock: Any = client.lock("a")
    same = holdfast.connect(client._engine.__repr__().replace("<memory engine '", "memory:").replace("'>", ""))
    wrong: list[tuple[Any, str]] = [
        ([], "at least one"),
        (lock, "list of locks"),
        ([holdfast.aio.connect("memory:").lock("a")], "do not mix"),
        ([client.multi([lock])], "cannot be part"),
        (["a"], "not of str"),
        ([lock, client.lock("a", ttl=5)], "different options"),
        ([lock, same.lock("a")], "by two clients"),
    ]
    for locks, reason in wrong:
        with pytest.raises(holdfast.UsageError, match=reason):
            client.multi(locks)


def test_read_and_write_locks_take_part_but_not_both_of_one_name(client: holdfast.Client) -> None:
    one, two = client.rwlock("one"), client.rwlock("two")
    with client.multi([one.read, two.write, client.lock("plain")]) as lease:
        assert list(lease.tokens) == ["one", "plain", "two"]
        assert [holder.mode for holder in client.inspect("one").holders] == ["read"]
        assert [holder.mode for holder in client.inspect("two").holders] == ["write"]
    with pytest.raises(holdfast.UsageError, match="cannot be acquired together"):
        client.multi([one.read, one.write])
    semaphore: Any = client.semaphore("three", 2)
    with pytest.raises(holdfast.UsageError, match="cannot be part"):
        client.multi([semaphore])


def test_timeout_is_the_shortest_of_the_locks_unless_given(client: holdfast.Client) -> None:
    locks = [client.lock("a", timeout=5), client.lock("b", timeout="2s"), client.lock("c")]
    assert client.multi(locks)._timeout == 2
    assert client.multi(locks, timeout=None)._timeout is None
    assert client.multi(locks, timeout="3s")._timeout == 3


def test_token_and_owner_are_refused_and_a_fence_takes_the_lease_of_one_lock(client: holdfast.Client) -> None:
    fence: Any = fencing.MemoryFence()
    with client.multi([client.lock("a"), client.lock("b")]) as lease:
        with pytest.raises(holdfast.UsageError, match=r"lease\.tokens"):
            fence.check("x", lease)
        with pytest.raises(holdfast.UsageError, match="owner"):
            _ = lease.owner
        fence.check("x", lease.leases["a"])


def test_multi_locks_and_their_leases_refuse_pickle_and_name_their_locks(client: holdfast.Client) -> None:
    multi = client.multi([client.lock("b"), client.lock("a")])
    assert repr(multi) == "<MultiLock 'a, b'>"
    with multi as lease:
        assert repr(lease) == "<MultiLease 'a, b' held>"
        for thing in (multi, lease):
            with pytest.raises(holdfast.UsageError, match="cannot be pickled"):
                thing.__reduce_ex__(2)
    assert repr(lease) == "<MultiLease 'a, b' released>"
    with pytest.raises(AttributeError, match=r"lease\.release"):
        multi.release  # type: ignore[attr-defined]  # noqa: B018


def test_lock_lost_while_a_later_one_was_waited_for_fails_the_acquire(client: holdfast.Client) -> None:
    held = client.lock("b").acquire()
    outcome: list[Any] = []

    def wait() -> None:
        try:
            outcome.append(client.multi([client.lock("a"), client.lock("b")]).acquire(timeout=10))
        except holdfast.LockError as error:
            outcome.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    core = client._opened
    assert core is not None
    eventually(lambda: core.queue.waiting("b") == 1)
    assert client.break_("a")
    held.release()
    thread.join()
    (error,) = outcome
    assert isinstance(error, holdfast.LockLost)
    assert (error.name, error.reason) == ("a", "broken")
    for name in "ab":
        lease = client.lock(name).try_acquire(timeout=5)
        assert lease is not None
        lease.release()


def test_forgotten_lease_releases_every_lock(client: holdfast.Client) -> None:
    with pytest.warns(ResourceWarning) as warned:
        client.multi([client.lock("a"), client.lock("b")]).acquire()
    assert len([each for each in warned if "dropped without release" in str(each.message)]) == 2
    eventually(lambda: not client.inspect("a").holders and not client.inspect("b").holders)


def test_callback_for_the_loss_does_not_keep_a_forgotten_lease(client: holdfast.Client) -> None:
    called: list[Any] = []
    with pytest.warns(ResourceWarning):
        client.multi([client.lock("a"), client.lock("b")], on_lost=called.append).acquire()
    eventually(lambda: not client.inspect("a").holders)
    assert called == []


def interrupt_everywhere(scenario: Callable[[holdfast.MultiLock, SignalInjector], None]) -> int:
    """Run it with a signal at its first place, its second, …, until it runs without one. Returns the number of places.

    After each run both locks are free, long before their ttl.
    """
    number = 0
    while True:
        url = f"memory:{uuid.uuid4().hex}"
        injector = SignalInjector(number)
        with holdfast.connect(url) as other, holdfast.connect(url) as client:
            client.ping()
            try:
                scenario(client.multi([client.lock("a"), client.lock("b")]), injector)
            except InjectedInterrupt:
                gc.collect(0)
            for name in "ab":
                free = other.lock(name).try_acquire(timeout=5)
                assert free is not None, f"{name} is left held by a signal at {injector.interrupted_at}"
                free.release()
        if not injector.interrupted_at:
            return number
        number += 1


@pytest.mark.usefixtures("no_warnings_of_dropped_objects")
class TestInterrupts:
    def test_interrupted_acquire_leaves_all_locks_free(self) -> None:
        def scenario(multi: holdfast.MultiLock, injector: SignalInjector) -> None:
            with injector:
                lease = multi.acquire(timeout=5)
            lease.release()

        assert interrupt_everywhere(scenario) > 100

    def test_interrupted_release_leaves_all_locks_free(self) -> None:
        def scenario(multi: holdfast.MultiLock, injector: SignalInjector) -> None:
            lease = multi.acquire(timeout=5)
            with injector:
                lease.release()

        assert interrupt_everywhere(scenario) > 30

    def test_interrupted_release_can_be_repeated(self) -> None:
        leases = list[Any]()

        def scenario(multi: holdfast.MultiLock, injector: SignalInjector) -> None:
            leases.append(multi.acquire(timeout=5))  # kept: it does not become garbage
            with injector, suppress(InjectedInterrupt):
                leases[-1].release()
            leases[-1].release()

        assert interrupt_everywhere(scenario) > 30

    def test_interrupted_with_statement_leaves_all_locks_free(self) -> None:
        def scenario(multi: holdfast.MultiLock, injector: SignalInjector) -> None:
            with injector, multi:
                pass

        assert interrupt_everywhere(scenario) > 120
