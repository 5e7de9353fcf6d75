"""A client that is frozen at the wrong moment: fault K2a (between send and check) and fault K2b (after the check)."""

from __future__ import annotations

from pathlib import Path

import holdfast
from holdfast.engines.redis import scripts
from holdfast.fencing import FileFence
from tests.redis.redlock.support import LONG_TIMEOUT, Proxies, owners
from tests.servers.masters import Masters
from tests.support.child import Child
from tests.support.waiting import eventually

TTL = 1.5
NO_OWNERS = [None] * 5


def test_TK2a_majority_that_took_longer_than_the_lease_is_discarded_and_withdrawn(
    five_masters: Masters, proxies: Proxies
) -> None:
    """A majority has granted; the process is frozen before it knows; when it resumes, another client has the lock."""
    with (
        Child(proxies.url, ttl=TTL, unavailable_after=60) as victim,
        holdfast.connect(five_masters.url, request_timeout=LONG_TIMEOUT) as others,
    ):
        victim.do("locks.lock('warm').acquire().release()")
        held_back = [proxy.on(script=scripts.ACQUIRE).delay() for proxy in proxies]
        victim.send("error_of(lambda: locks.lock('k2a').acquire().release())")
        eventually(lambda: sum(rule.fired for rule in held_back) >= 3)  # a server that answered late is skipped
        victim.freeze()
        assert len({owner for owner in owners(five_masters, "k2a") if owner is not None}) == 1
        for rule in held_back:
            rule.release()
        eventually(lambda: owners(five_masters, "k2a") == NO_OWNERS, within=10)
        lease = others.lock("k2a").acquire(timeout=20)
        victim.wake()
        eventually(lambda: others.inspect("k2a").waiters == 1, within=10)  # it retries and queues
        assert owners(five_masters, "k2a") == [lease.owner] * 5, "the lock of the other client is untouched"
        assert lease.held
        lease.release()
        assert victim.answer() == "nothing", "granted again"
        eventually(lambda: owners(five_masters, "k2a") == NO_OWNERS, within=10)


def test_TK2a_acquire_without_contenders_retries_and_is_granted_again(five_masters: Masters, proxies: Proxies) -> None:
    with Child(proxies.url, ttl=TTL, unavailable_after=60) as victim:
        victim.do("locks.lock('warm').acquire().release()")
        held_back = [proxy.on(script=scripts.ACQUIRE).delay() for proxy in proxies]
        victim.send(
            "(lambda lease: keep.update(k=lease) or [lease.remaining, lease.owner])(locks.lock('k2a').acquire())"
        )
        eventually(lambda: sum(rule.fired for rule in held_back) >= 3)
        victim.freeze()
        for rule in held_back:
            rule.release()
        eventually(lambda: owners(five_masters, "k2a") == NO_OWNERS, within=10)
        victim.wake()
        remaining, owner = victim.answer()
        assert remaining > 0, "the new lease has not expired"
        assert owners(five_masters, "k2a").count(owner) >= 3


def test_TK2b_holder_frozen_after_the_check_sees_the_loss_and_its_late_write_is_refused(
    five_masters: Masters, tmp_path: Path
) -> None:
    fence = FileFence(tmp_path / "fence")
    with Child(five_masters.url, ttl=TTL) as victim, holdfast.connect(five_masters.url) as others:
        victim.do(f"keep.update(fence=holdfast.fencing.FileFence({str(tmp_path / 'fence')!r}))")
        victim.do("keep.update(lease=locks.lock('k2b').acquire())")
        assert victim.do("keep['lease'].held")
        victim.freeze()
        lease = others.lock("k2b").acquire(timeout=10)
        with fence.guard("file", lease):
            pass
        victim.send("[keep['lease'].held, keep['lease'].lost_reason, error_of(keep['lease'].check)]")
        victim.wake()
        held, reason, check = victim.answer()
        assert not held
        assert reason in ("expired", "stolen", "broken")
        assert check == f"LockLost:{reason}"
        assert victim.do("error_of(lambda: keep['fence'].guard('file', keep['lease']).__enter__())") == "StaleToken:"
        assert victim.do("error_of(keep['lease'].release)").startswith("LockLost")
        assert lease.token > victim.do("keep['lease'].token")
        assert lease.held
        lease.release()
