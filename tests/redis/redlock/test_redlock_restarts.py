"""Servers that come back without their memory, and clocks that jump: what a majority survives, and what it does not.

The losses shown here are documented: they are Redlock's own (FAULTS T-K1, T-restart). What holds is that each is told
apart by its token, and that a fence refuses the older.
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
from tests.redis.redlock.support import LASTING, MENDED, PATIENT, Proxies, owners
from tests.redis.support import make_attempt
from tests.servers.clock import Clock
from tests.servers.masters import Masters
from tests.servers.redis import RedisServer
from tests.support.waiting import eventually


def grant_of(server: RedisServer, name: str) -> tuple[int, str]:
    """Token and owner of the present grant, as the server has them."""
    token, _, _, owner, _ = server.ask("GET", f"holdfast_owner:{{{name}}}").split(" ", 4)
    return int(token), owner


def counter(server: RedisServer, name: str) -> int:
    return int(server.ask("GET", f"redisson_lock_token:{{{name}}}"))


# ---- what a majority survives


def test_rolling_restart_of_all_five_under_one_hold(start_masters: Callable[..., Masters]) -> None:
    """One after the other comes back empty; each renewal lets it join again, with the same owner and token."""
    masters = start_masters(5)
    stop, stolen = threading.Event(), list[int]()

    def envy() -> None:
        with holdfast.connect(masters.url) as others:
            while not stop.is_set():
                try:
                    lease = others.lock("long").try_acquire(timeout=0.05)
                except holdfast.EngineUnavailable:
                    continue  # so little time, on a busy machine: what matters is that it was not granted
                if lease is not None:
                    stolen.append(lease.token)
                    lease.release()

    envious = threading.Thread(target=envy)
    # Long enough for a busy machine: each server must be back, and renewed, before the next one forgets.
    with holdfast.connect(masters.url, ttl=LASTING) as locks:
        lease = locks.lock("long").acquire()
        token, owner = lease.token, lease.owner
        envious.start()
        try:
            for server in masters.servers:
                server.kill()
                server.restart()
                eventually(lambda: owners(masters, "long") == [owner] * 5, within=MENDED)
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


def test_a_server_that_was_away_when_it_was_granted_joins_later(start_masters: Callable[..., Masters]) -> None:
    masters = start_masters(5)
    late = masters.servers[1]
    late.kill()
    with holdfast.connect(masters.url, ttl=LASTING) as locks:
        leases = [locks.lock(f"n{number}").acquire() for number in range(3)]
        late.restart()
        eventually(lambda: all(owners(masters, lease.name) == [lease.owner] * 5 for lease in leases), within=MENDED)
        for lease in leases:
            assert grant_of(late, lease.name) == (lease.token, lease.owner)
            assert 0 < late.ask("PTTL", lease.name) <= LASTING * 1000
            lease.renew(ttl=60)  # does not end by itself
            lease.release()
        eventually(lambda: all(owners(masters, lease.name) == [None] * 5 for lease in leases), within=MENDED)


def test_one_that_does_not_answer_does_not_keep_others_from_joining(five_masters: Masters, proxies: Proxies) -> None:
    engine = connect([f"redis://{proxy.host}:{proxy.port}" for proxy in proxies], {})
    session, keeper = engine.session(BLOCKING), engine.keeper(BLOCKING)
    attempt, found = make_attempt("it", ttl=30), list[Found | RequestFailed]()
    renewing = threading.Thread(target=lambda: found.extend(run(keeper.renew([attempt], 30, 20.0))))
    try:
        assert isinstance(run(session.acquire(attempt, PATIENT)), Granted)
        for server in five_masters.servers[3:]:
            server.ask("FLUSHALL")
            server.ask("SCRIPT", "LOAD", scripts.JOIN.source)
        joining = [proxy.on(script=scripts.JOIN).delay() for proxy in proxies[3:]]
        renewing.start()
        eventually(lambda: all(rule.fired for rule in joining))  # both, and neither has been answered
        for rule in joining:
            rule.release()
        renewing.join(10)
        assert found == [Found.OURS]
        assert owners(five_masters, "it") == [attempt.owner] * 5
    finally:
        run(session.close())
        run(keeper.close())


def test_to_ask_whether_it_is_held_is_not_to_join(five_masters: Masters) -> None:
    """The watchdog asks by renewing to next to nothing, for a lease that is to end by itself."""
    engine = connect([f"redis://{server.address}" for server in five_masters.servers], {})
    session, attempt = engine.session(BLOCKING), make_attempt("it", ttl=60)
    try:
        assert isinstance(run(session.acquire(attempt, PATIENT)), Granted)
        five_masters.servers[3].ask("FLUSHALL")
        assert run(session.renew(attempt, 0.001, PATIENT)) == Found.OURS
        assert not attempt.unresolved, "nothing was sent that could bring it back"
        assert run(session.renew(attempt, 60, PATIENT)) == Found.OURS
        assert owners(five_masters, "it") == [attempt.owner] * 5
    finally:
        run(session.close())


def test_one_clock_may_jump(start_masters: Callable[..., Masters], server_clock: Clock) -> None:
    """R19 on one of five: its key is gone at once, and back with the next renewal. Nor does it move the tokens."""
    masters = start_masters(5, clocks={2: server_clock})
    with holdfast.connect(masters.url, ttl=6) as locks, holdfast.connect(masters.url) as others:
        lease = locks.lock("held").acquire()
        # Before the first renewal: from then on the watchdog hears of it, and is perhaps faster than we look.
        server_clock.move(60)
        eventually(lambda: owners(masters, "held")[2] is None)
        assert others.lock("held").try_acquire() is None
        eventually(lambda: owners(masters, "held") == [lease.owner] * 5, within=MENDED)
        lease.renew()
        lease.release()
        with others.lock("held").acquire(timeout=20) as again:
            assert lease.token < again.token < lease.token + 30_000_000, "microseconds: not 60 s ahead"


# ---- what it does not


@pytest.fixture
def fence() -> MemoryFence:
    return MemoryFence()


def assert_the_fence_tells_them_apart(fence: MemoryFence, older: holdfast.Lease, newer: holdfast.Lease) -> None:
    assert older.token < newer.token
    with fence.guard("it", older):
        pass  # until the newer has been seen, nobody can know
    with fence.guard("it", newer):
        pass
    with pytest.raises(holdfast.StaleToken), fence.guard("it", older):
        pass
    with pytest.raises(holdfast.StaleToken):
        fence.check("it", newer.token, owner=older.owner)  # T-A2: the same number, but of somebody else


def test_TK1_a_clock_jump_under_a_bare_majority_makes_two_holders_and_the_fence_refuses_the_older(
    start_masters: Callable[..., Masters], server_clock: Clock, fence: MemoryFence
) -> None:
    masters = start_masters(5, clocks={2: server_clock})
    with Proxies(masters) as of_one, Proxies(masters) as of_two:
        for proxy in (*of_one[3:], *of_two[:2]):
            proxy.refuse()
        with (
            holdfast.connect(of_one.url, renew=False, request_timeout=PATIENT) as one,
            holdfast.connect(of_two.url, request_timeout=PATIENT) as two,
        ):
            older = one.lock("k1").acquire(timeout=20)
            assert owners(masters, "k1") == [older.owner] * 3 + [None] * 2
            assert two.lock("k1").try_acquire() is None, "two of three are not enough"
            server_clock.move(60)
            newer = two.lock("k1").acquire(timeout=20)
            assert owners(masters, "k1") == [older.owner] * 2 + [newer.owner] * 3
            assert older.held, "documented loss: nobody could tell it"
            assert_the_fence_tells_them_apart(fence, older, newer)
            newer.release()
            older.release()  # two of the five are its own, and the others were out of reach or another's


def test_Trestart_an_early_return_without_memory_makes_two_holders_and_the_fence_refuses_the_older(
    start_masters: Callable[..., Masters], fence: MemoryFence
) -> None:
    masters = start_masters(5)
    with Proxies(masters) as of_one:
        for proxy in of_one[3:]:
            proxy.refuse()
        with (
            holdfast.connect(of_one.url, ttl=4) as one,
            holdfast.connect(masters.url, request_timeout=PATIENT) as two,
        ):
            older = one.lock("restart").acquire(timeout=20)
            assert owners(masters, "restart") == [older.owner] * 3 + [None] * 2
            assert two.lock("restart").try_acquire() is None
            masters.servers[2].kill()
            masters.servers[2].restart()  # at once, and not after the ttl
            newer = two.lock("restart").acquire(timeout=20)
            assert owners(masters, "restart") == [older.owner] * 2 + [newer.owner] * 3
            assert_the_fence_tells_them_apart(fence, older, newer)
            assert older.lost.wait(10), "it is told when its lease runs out at the latest"
            newer.release()
            with pytest.raises(holdfast.LockLost):
                older.release()
