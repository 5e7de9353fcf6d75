"""Servers that restart without their data, and clocks that jump: what a majority survives and what it does not.

The double holds shown here are documented properties of Redlock (faults K1, K3). A fence refuses the older holder.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Found, Granted, RequestFailed
from holdfast.engines.redis import scripts
from holdfast.engines.redis.redlock import connect
from holdfast.fencing import MemoryFence
from tests.redis.redlock.support import LASTING, LONG_TIMEOUT, REPAIR_TIME, Proxies, owners
from tests.redis.support import make_attempt
from tests.servers.clock import Clock
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually


def grant_of(server: RedisServer, name: str) -> tuple[int, str]:
    """Returns token and owner of the current grant on the server."""
    token, _, _, owner, _ = server.ask("GET", f"holdfast_owner:{{{name}}}").split(" ", 4)
    return int(token), owner


def counter(server: RedisServer, name: str) -> int:
    return int(server.ask("GET", f"redisson_lock_token:{{{name}}}"))


# ---- what a majority survives


def test_hold_survives_a_rolling_restart_of_all_servers(start_masters: Callable[..., Masters]) -> None:
    """One server after the other restarts empty. The next renewal joins it again with the same owner and token."""
    masters = start_masters(5)
    stop, stolen = threading.Event(), list[int]()

    def compete() -> None:
        with holdfast.connect(masters.url) as others:
            while not stop.is_set():
                try:
                    lease = others.lock("long").try_acquire(timeout=0.05)
                except holdfast.EngineUnavailable:
                    continue  # the short timeout may hit a busy machine; only a grant would matter
                if lease is not None:
                    stolen.append(lease.token)
                    lease.release()

    envious = threading.Thread(target=compete)
    # Long enough for a busy machine: each server must be back and renewed before the next one restarts.
    with holdfast.connect(masters.url, ttl=LASTING) as locks:
        lease = locks.lock("long").acquire()
        token, owner = lease.token, lease.owner
        envious.start()
        try:
            for server in masters.servers:
                server.kill()
                server.restart()
                eventually(lambda: owners(masters, "long") == [owner] * 5, within=REPAIR_TIME)
                assert grant_of(server, "long") == (token, owner)
                assert counter(server, "long") >= token
        finally:
            stop.set()
            envious.join(10)
        assert not stolen
        assert lease.held
        assert lease.token == token
        lease.release()
        with locks.lock("long").acquire(timeout=5) as following:
            assert following.token > token


def test_server_missing_at_the_grant_joins_later(start_masters: Callable[..., Masters]) -> None:
    masters = start_masters(5)
    late = masters.servers[1]
    late.kill()
    with holdfast.connect(masters.url, ttl=LASTING) as locks:
        leases = [locks.lock(f"n{number}").acquire() for number in range(3)]
        late.restart()
        eventually(
            lambda: all(owners(masters, lease.name) == [lease.owner] * 5 for lease in leases), within=REPAIR_TIME
        )
        for lease in leases:
            assert grant_of(late, lease.name) == (lease.token, lease.owner)
            assert 0 < late.ask("PTTL", lease.name) <= LASTING * 1000
            lease.renew(ttl=60)  # does not expire during the test
            lease.release()
        eventually(lambda: all(owners(masters, lease.name) == [None] * 5 for lease in leases), within=REPAIR_TIME)


def test_silent_server_does_not_prevent_others_from_joining(five_masters: Masters, proxies: Proxies) -> None:
    engine = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {})
    session, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    attempt, found = make_attempt("it", ttl=30), list[Found | RequestFailed]()
    renewing = threading.Thread(target=lambda: found.extend(run(keeper.renew([attempt], 30, 20.0))))
    try:
        assert isinstance(run(session.acquire(attempt, LONG_TIMEOUT)), Granted)
        for server in five_masters.servers[3:]:
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "LOAD", scripts.JOIN.source)
        joining = [proxy.on(script=scripts.JOIN).delay() for proxy in proxies[3:]]
        renewing.start()
        eventually(lambda: all(rule.fired for rule in joining))  # both requests are pending
        for rule in joining:
            rule.release()
        renewing.join(10)
        assert found == [Found.OURS]
        assert owners(five_masters, "it") == [attempt.owner] * 5
    finally:
        run(session.close())
        run(keeper.close())


def test_verifying_a_hold_does_not_join_servers(five_masters: Masters) -> None:
    """To verify a lease that may expire, the watchdog renews it with a very short ttl."""
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    session, attempt = engine.session(BLOCKING), make_attempt("it", ttl=60)
    try:
        assert isinstance(run(session.acquire(attempt, LONG_TIMEOUT)), Granted)
        five_masters.servers[3].ask("FLUSHALL")
        assert run(session.renew(attempt, 0.001, LONG_TIMEOUT)) == Found.OURS
        assert not attempt.unresolved, "no request was sent that could restore it"
        assert run(session.renew(attempt, 60, LONG_TIMEOUT)) == Found.OURS
        assert owners(five_masters, "it") == [attempt.owner] * 5
    finally:
        run(session.close())


def test_hold_survives_one_clock_jump(start_masters: Callable[..., Masters], server_clock: Clock) -> None:
    """Fault R19 on one of five: its key expires and is restored by the next renewal. The tokens are not affected."""
    masters = start_masters(5, clocks={2: server_clock})
    with holdfast.connect(masters.url, ttl=6) as locks, holdfast.connect(masters.url) as others:
        lease = locks.lock("held").acquire()
        # Before the first renewal: from then on the watchdog is notified and may be faster than the test.
        server_clock.move(60)
        eventually(lambda: owners(masters, "held")[2] is None)
        assert others.lock("held").try_acquire() is None
        eventually(lambda: owners(masters, "held") == [lease.owner] * 5, within=REPAIR_TIME)
        lease.renew()
        lease.release()
        with others.lock("held").acquire(timeout=20) as again:
            assert lease.token < again.token < lease.token + 30_000_000, "microseconds: not 60 s ahead"


# ---- what a majority does not survive


def test_token_exceeds_counters_that_are_ahead_of_the_time(five_masters: Masters) -> None:
    """The lighter script leaves such a counter to the complete one, and phase 2 raises the others to it."""
    servers = five_masters.servers
    with holdfast.connect(five_masters.url, request_timeout=LONG_TIMEOUT) as locks:
        first = locks.lock("ahead").acquire()
        first.release()
        ahead = first.token + 3_600_000_000
        for server in servers[1:3]:
            server.ask("SET", "redisson_lock_token:{ahead}", ahead)
        for expected in (ahead + 1, ahead + 2):
            with locks.lock("ahead").acquire() as lease:
                assert lease.token == expected
                assert [counter(server, "ahead") for server in servers] == [expected] * 5


@pytest.fixture
def fence() -> MemoryFence:
    return MemoryFence()


def assert_fence_refuses_the_older(fence: MemoryFence, older: holdfast.Lease, newer: holdfast.Lease) -> None:
    assert older.token < newer.token
    with fence.guard("it", older):
        pass  # passes until the newer token has been seen
    with fence.guard("it", newer):
        pass
    with pytest.raises(holdfast.StaleToken), fence.guard("it", older):
        pass
    with pytest.raises(holdfast.StaleToken):
        fence.check("it", newer.token, owner=older.owner)  # fault K4: the same number of another owner


def test_TK1_clock_jump_under_a_bare_majority_makes_two_holders_and_the_fence_refuses_the_older(
    start_masters: Callable[..., Masters], server_clock: Clock, fence: MemoryFence
) -> None:
    masters = start_masters(5, clocks={2: server_clock})
    with Proxies(masters) as of_one, Proxies(masters) as of_two:
        for proxy in (*of_one[3:], *of_two[:2]):
            proxy.refuse()
        with (
            holdfast.connect(of_one.url, renew=False, request_timeout=LONG_TIMEOUT) as one,
            holdfast.connect(of_two.url, request_timeout=LONG_TIMEOUT) as two,
        ):
            older = one.lock("k1").acquire(timeout=20)
            assert owners(masters, "k1") == [older.owner] * 3 + [None] * 2
            assert two.lock("k1").try_acquire() is None, "two of three are not enough"
            server_clock.move(60)
            newer = two.lock("k1").acquire(timeout=20)
            assert owners(masters, "k1") == [older.owner] * 2 + [newer.owner] * 3
            assert older.held, "documented loss: the older holder cannot be notified"
            assert_fence_refuses_the_older(fence, older, newer)
            newer.release()
            older.release()  # two of the five are its own; the others are unreachable or held by the newer


def test_Trestart_early_restart_without_memory_makes_two_holders_and_the_fence_refuses_the_older(
    start_masters: Callable[..., Masters], fence: MemoryFence
) -> None:
    masters = start_masters(5)
    with Proxies(masters) as of_one:
        for proxy in of_one[3:]:
            proxy.refuse()
        with (
            holdfast.connect(of_one.url, ttl=4) as one,
            holdfast.connect(masters.url, request_timeout=LONG_TIMEOUT) as two,
        ):
            older = one.lock("restart").acquire(timeout=20)
            assert owners(masters, "restart") == [older.owner] * 3 + [None] * 2
            assert two.lock("restart").try_acquire() is None
            masters.servers[2].kill()
            masters.servers[2].restart()  # immediately, instead of after the ttl
            newer = two.lock("restart").acquire(timeout=20)
            assert owners(masters, "restart") == [older.owner] * 2 + [newer.owner] * 3
            assert_fence_refuses_the_older(fence, older, newer)
            assert older.lost.wait(10), "the loss is reported at the latest when the lease expires"
            newer.release()
            with pytest.raises(holdfast.LockLost):
                older.release()
