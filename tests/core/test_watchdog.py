"""The watchdog goes on after any error in it: if it ended, every lock of the process would be lost without a report."""

from __future__ import annotations

import logging
import uuid
from typing import Any

import pytest

import holdfast
from holdfast._core import releasing
from holdfast._core.early_looks import EARLY
from holdfast._runtime.blocking import run
from holdfast.engines.base import Claim, RequestFailed
from tests.servers.redis import RedisServer
from tests.support.waiting import LASTING, eventually, renewed


class Failing:
    """A keeper with a bug: the first calls of one method raise."""

    def __init__(self, keeper: Any, method: str, times: int) -> None:
        self._keeper = keeper
        self._method = method
        self.left = times

    def __getattr__(self, name: str) -> Any:
        if name == self._method and self.left > 0:
            self.left -= 1
            raise ZeroDivisionError("a bug")
        return getattr(self._keeper, name)


@pytest.mark.watchdog_bug
@pytest.mark.parametrize("method", ["wait_for_hints", "renew"])
def test_a_bug_in_one_round_does_not_stop_the_next(method: str, caplog: pytest.LogCaptureFixture) -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=LASTING) as locks:
        locks.ping()
        core = locks._opened
        assert core is not None
        failing: Any = Failing(core.watchdog._keeper, method, times=2)
        core.watchdog._keeper = failing
        with caplog.at_level(logging.ERROR, "holdfast.watchdog"), locks.lock("a") as lease:
            eventually(lambda: failing.left == 0)
            eventually(renewed(lease))
    assert "goes on" in caplog.text


@pytest.mark.watchdog_bug
def test_a_lease_whose_renewal_met_a_bug_is_renewed_at_once_though_another_one_is_due_much_later() -> None:
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=LASTING) as locks:
        core = locks._open()
        failing: Any = Failing(core.watchdog._keeper, "renew", times=1)
        core.watchdog._keeper = failing
        with locks.lock("long", ttl=600.0), locks.lock("a") as lease:
            eventually(lambda: failing.left == 0)
            eventually(renewed(lease))


def test_no_request_takes_longer_than_the_shortest_lease_allows() -> None:
    """Also if that one came after the others, and is due later; not after it is gone."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=LASTING, request_timeout=60.0) as locks:
        core = locks._open()
        keeper, allowed = core.watchdog._keeper, list[float]()

        class Recording:
            async def renew(self, attempts: Any, ttl: float, timeout: float) -> Any:
                allowed.append(timeout)
                return await keeper.renew(attempts, ttl, timeout)

            def __getattr__(self, name: str) -> Any:
                return getattr(keeper, name)

        recording: Any = Recording()
        core.watchdog._keeper = recording
        with locks.lock("a"):
            with locks.lock("short", ttl=0.75 * LASTING):
                with core.lock:
                    core.watchdog.suspect("a")
                eventually(lambda: allowed[-1:] == [pytest.approx(0.75 * LASTING / 3)])
            eventually(lambda: allowed[-1:] == [pytest.approx(LASTING / 3)])


def test_withdrawals_in_a_black_hole_do_not_delay_renewals() -> None:
    """Found by simulation: five withdrawals without an answer delayed the renewals of healthy locks."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=3.0, request_timeout=0.8) as locks:
        lease = locks.lock("held").acquire()
        core = locks._opened
        assert core is not None
        keeper: Any = core.watchdog._keeper
        runtime = core.watchdog._runtime

        class Hole:
            async def withdraw(self, claims: Any, timeout: float) -> Any:
                await runtime.sleep_until(runtime.now() + timeout)
                raise RequestFailed("no answer", may_have_happened=True)

            def __getattr__(self, name: str) -> Any:
                return getattr(keeper, name)

        hole: Any = Hole()
        core.watchdog._keeper = hole
        for number in range(10):
            core.withdraw(core.session.attempt(Claim(f"other-{number}", "client:1", 5.0)))
        for _ in range(2):  # the withdrawals are retried, and the renewals go on
            eventually(renewed(lease))
        lease.release()


def test_a_handle_that_is_dropped_twice_does_not_abandon_the_release_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by 10,000 real signals: ``internal error: 'confirm' in state 'unknown'``."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}") as locks:
        lease = locks.lock("a").acquire()
        core, hold = lease._hold.core, lease._hold
        release = core.session.release

        async def dropped_meanwhile(attempt: Any, timeout: float) -> Any:
            releasing.drop_handle(core, hold, -1)  # as the watchdog may: the handle of an interrupted call, once more
            return await release(attempt, timeout)

        monkeypatch.setattr(core.session, "release", dropped_meanwhile)
        lease.release()
        locks.lock("a").acquire(timeout=5).release()


def test_a_lease_that_is_not_renewed_and_was_verified_late_is_looked_at_by_its_deadline() -> None:
    """Found by simulation: after a hint shortly before the deadline, its end was reported a third of the ttl late."""
    with holdfast.connect(f"memory:{uuid.uuid4().hex}", ttl=60.0) as locks:
        lease = locks.lock("a", renew=False).acquire()
        core, grant = locks._open(), lease._hold.grant
        with core.lock:
            core.watchdog.watch(grant, grant.deadline - 1.0)
        assert grant.due <= grant.deadline
        lease.release()


@pytest.mark.parametrize("step", ["plan its sleep", "take what is due", "look early"])
def test_a_lease_is_looked_at_in_time_though_the_watchdog_forgets_when_the_one_before_it_was_due(
    step: str, redis_server: RedisServer
) -> None:
    """Most acquires do not notify it, since it looks in time for the one before them: until it has moved that look."""
    with holdfast.connect(redis_server.url, ttl=LASTING) as locks:
        core = locks._open()
        watchdog = core.watchdog
        with core.lock:  # so it does nothing by itself meanwhile
            for _ in range(2):
                locks.lock("a").acquire().release()
            now = core.now()
            assert watchdog.covered_from <= now
            if step == "plan its sleep":
                watchdog._plan_sleep()
            elif step == "take what is due":
                watchdog._take_due(now)
            else:
                watchdog._early_looks.oldest = now - 2 * EARLY
                run(watchdog._round(()))
            lease = locks.lock("a").acquire()
            assert watchdog._earliest <= lease._hold.grant.due
            assert watchdog._early_looks.oldest <= lease._hold.since
            assert watchdog._shortest_ttl() <= LASTING
            assert watchdog._wakes_at <= lease._hold.grant.due
        lease.release()
