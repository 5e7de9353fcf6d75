"""How a policy presents itself."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

import holdfast


@pytest.fixture
def store() -> str:
    return f"memory:{uuid.uuid4().hex}"


@pytest.fixture
def locks(store: str) -> Iterator[holdfast.Client]:
    with holdfast.connect(store) as client:
        yield client


def test_repr_has_the_mode_unless_it_is_the_usual_one(locks: holdfast.Client) -> None:
    rwlock = locks.rwlock("b")
    assert repr(locks.lock("a")).startswith("<Lock 'a' of ")
    assert repr(rwlock.read).startswith("<Lock 'b' (read) of ")
    with rwlock.write as lease:
        assert repr(lease) == f"<Lease 'b' (write) token={lease.token} held>"
    with locks.semaphore("s", 3) as permit:
        assert repr(permit) == f"<Lease 's' (permits) token={permit.token} held>"


Take = Callable[[holdfast.Client], holdfast.Lease]

KINDS = pytest.mark.parametrize(
    "take, title, share",
    [
        (lambda locks: locks.lock("a").acquire(timeout=0), "lock 'a'", "lock 'a'"),
        (lambda locks: locks.rwlock("a").read.acquire(timeout=0), "read lock 'a'", "read lock 'a'"),
        (lambda locks: locks.rwlock("a").write.acquire(timeout=0), "write lock 'a'", "write lock 'a'"),
        (lambda locks: locks.semaphore("a", 1).acquire(timeout=0), "semaphore 'a'", "a permit of semaphore 'a'"),
        (lambda locks: locks.election("a").campaign(timeout=0), "election 'a'", "the leadership of election 'a'"),
    ],
    ids=["lock", "read lock", "write lock", "semaphore", "election"],
)


@KINDS
def test_errors_of_a_lease_name_what_it_was_on(locks: holdfast.Client, take: Take, title: str, share: str) -> None:
    lease = take(locks)
    locks.break_("a")
    with pytest.raises(holdfast.LockLost) as lost:
        lease.release()
    assert str(lost.value).startswith(f"{share} was lost (broken): ")
    with pytest.raises(holdfast.NotHeld) as released:
        lease.check()
    assert str(released.value) == f"this lease on {title} was released"


@KINDS
def test_note_about_a_loss_names_what_was_lost(locks: holdfast.Client, take: Take, title: str, share: str) -> None:
    lease = take(locks)
    locks.break_("a")
    error = ZeroDivisionError()
    lease.__exit__(ZeroDivisionError, error, None)
    assert error.__notes__ == [f"{share} lost: broken"]


@pytest.mark.parametrize(
    "take, title",
    [
        (lambda locks: locks.lock("a").acquire(timeout=0), "lock"),
        (lambda locks: locks.rwlock("b").read.acquire(timeout=0), "read lock"),
        (lambda locks: locks.semaphore("s", 1).acquire(timeout=0), "semaphore"),
        (lambda locks: locks.election("a").campaign(timeout=0), "election"),
    ],
)
def test_timeout_names_what_was_waited_for(locks: holdfast.Client, store: str, take: Take, title: str) -> None:
    with (
        locks.lock("a"),
        locks.rwlock("b").write,
        locks.semaphore("s", 1),
        holdfast.connect(store) as other,
        pytest.raises(holdfast.AcquireTimeout) as busy,
    ):
        take(other)
    assert str(busy.value) == f"{title} {busy.value.name!r} is busy"


def test_barrier_calls_a_lost_permit_its_membership(locks: holdfast.Client) -> None:
    barrier = locks.barrier("a", 1)
    assert barrier.enter()
    locks.break_("a")
    with pytest.raises(holdfast.LockLost, match=r"^the membership of barrier 'a' was lost "):
        barrier.leave()
