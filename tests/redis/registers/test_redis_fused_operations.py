"""An operation of a monitor is two requests: the grant loads the state, and the store releases the lock. What becomes
of it when a request or a reply is lost, repeated or late, or another holder comes in between."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

import holdfast
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Busy, Claim, Found, Granted
from holdfast.engines.redis import scripts
from holdfast.engines.redis.scripts import Script
from holdfast.engines.registers import MONITOR, Cell, Guard, RegisterKey, Stale
from holdfast.testing.faults import Occasion, Rule
from holdfast.testing.proxy import FaultProxy
from tests.servers.redis import RedisServer
from tests.support.register_contract import TIMEOUT, engine_at
from tests.support.waiting import eventually

_NAME: Final = "counter"
_REGISTER: Final = "holdfast_register:{counter}:monitor"
#: How long a request whose reply does not come is waited for (s). Longer than a stall of the machine: a request that
#: times out by itself uses up the rule that was to lose its reply.
_SHORT: Final = 0.6
LOSSES: Final[dict[str, Callable[[Occasion], Rule]]] = {
    "reply_lost_by_reset": Occasion.drop_reply_and_reset,
    "reply_lost_in_a_black_hole": Occasion.black_hole,
    "request_lost_by_reset": Occasion.drop_request_and_reset,
    "request_lost_in_a_black_hole": Occasion.drop_request_black_hole,
}
FUSED: Final = (scripts.ACQUIRE_LOAD, scripts.STORE_RELEASE)
each_script = pytest.mark.parametrize("script", FUSED, ids=lambda script: script.name)


class Counter(holdfast.Monitor):
    count: int = 0

    @holdfast.synchronized
    def add(self, inside: Callable[[], object] = lambda: None) -> int:
        inside()
        self.count += 1
        return self.count

    @holdfast.synchronized
    def read(self) -> int:
        return self.count


class AsyncCounter(holdfast.AsyncMonitor):
    count: int = 0

    @holdfast.synchronized
    async def add(self) -> int:
        self.count += 1
        return self.count


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[FaultProxy]:
    with FaultProxy(redis_server.host, redis_server.port) as started:
        yield started


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[holdfast.Client]:
    with holdfast.connect(proxy.url, request_timeout=_SHORT) as connected:
        yield connected


@pytest.fixture
def other(redis_server: RedisServer) -> Iterator[holdfast.Client]:
    """Another client, whose requests are not disturbed."""
    with holdfast.connect(redis_server.url) as connected:
        yield connected


def requests(server: RedisServer, operation: Callable[[], object]) -> dict[str, int]:
    """How often ``operation`` runs each command that a client sends: scripts, for a monitor.

    Undisturbed, that is: the fewest of several times. A replica that stalls acknowledges late, and a request is
    repeated.
    """
    operation()  # the scripts are known from here on
    probe = server.client()

    def once() -> dict[str, int]:
        probe.config_resetstat()
        operation()
        return {
            name: int(stats["calls"])
            for name, stats in probe.info("commandstats").items()
            if name in ("cmdstat_evalsha", "cmdstat_eval")
        }

    return min((once() for _ in range(5)), key=lambda counts: sum(counts.values()))


# -- how many ------------------------------------------------------------------------------------------------------


def test_an_operation_is_two_requests(other: holdfast.Client, redis_server: RedisServer) -> None:
    counter = Counter(other, _NAME)
    assert requests(redis_server, counter.add) == {"cmdstat_evalsha": 2}
    assert requests(redis_server, counter.read) == {"cmdstat_evalsha": 2}


def test_an_async_operation_is_two_requests(redis_server: RedisServer) -> None:
    async def body() -> dict[str, int]:
        async with holdfast.aio.connect(redis_server.url) as client:
            counter = AsyncCounter(client, _NAME)
            await counter.add()
            probe = redis_server.client()
            probe.config_resetstat()
            assert await counter.add() == 2
            return {"evalsha": int(probe.info("commandstats")["cmdstat_evalsha"]["calls"])}

    assert asyncio.run(body()) == {"evalsha": 2}


def test_operations_of_many_threads_and_clients_are_all_stored(redis_url: str) -> None:
    with holdfast.connect(redis_url) as one, holdfast.connect(redis_url) as two, ThreadPoolExecutor(6) as threads:
        counters = [Counter(client, _NAME) for client in (one, two)]
        results = list(threads.map(lambda number: counters[number % 2].add(), range(60)))
    assert sorted(results) == list(range(1, 61))


def test_replicas_are_waited_for_before_the_lock_is_released(pair: Any) -> None:
    with holdfast.connect(pair.master.url, replicas=1) as client:
        counter = Counter(client, _NAME)
        assert [counter.add(), counter.add()] == [1, 2]
        assert requests(pair.master, counter.add) == {"cmdstat_evalsha": 4}


# -- lost, repeated, late ------------------------------------------------------------------------------------------


@each_script
@pytest.mark.parametrize("loss", LOSSES)
def test_an_operation_takes_effect_once_whatever_is_lost(
    client: holdfast.Client, proxy: FaultProxy, script: Script, loss: str
) -> None:
    counter = Counter(client, _NAME)
    assert counter.add() == 1
    rule = LOSSES[loss](proxy.on(script=script))
    assert counter.add() == 2
    assert rule.fired
    assert not client.lock(_NAME).locked()
    assert counter.add() == 3


def test_a_lost_reply_is_found_again_though_others_have_stored_since(
    client: holdfast.Client, other: holdfast.Client, proxy: FaultProxy
) -> None:
    rule = proxy.on(script=scripts.STORE_RELEASE).black_hole()
    with ThreadPoolExecutor(1) as thread:
        operation = thread.submit(Counter(client, _NAME).add)
        assert rule.wait(20)
        assert [Counter(other, _NAME).add() for _ in range(3)] == [2, 3, 4]
        assert operation.result(20) == 1
    assert Counter(other, _NAME).snapshot() == {"count": 4}


def test_the_repeat_of_an_operation_does_not_release_the_lock_of_another_one(
    client: holdfast.Client, other: holdfast.Client, proxy: FaultProxy
) -> None:
    rule = proxy.on(script=scripts.STORE_RELEASE).black_hole()
    entered, leave = threading.Event(), threading.Event()

    def inside() -> None:
        entered.set()
        assert leave.wait(20)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(Counter(client, _NAME).add)
        assert rule.wait(20)
        second = threads.submit(Counter(other, _NAME).add, inside)
        assert entered.wait(20)
        assert first.result(20) == 1
        assert other.lock(_NAME).locked()
        leave.set()
        assert second.result(20) == 2


def test_it_is_unknown_what_became_of_a_lost_request_if_the_lock_was_broken_meanwhile(
    client: holdfast.Client, other: holdfast.Client, proxy: FaultProxy
) -> None:
    # Its repeats, too: on a machine that stalls, the first one would be stored before the lock is broken.
    rule = proxy.on(script=scripts.STORE_RELEASE, times=None).drop_request_black_hole()
    with ThreadPoolExecutor(1) as thread:
        operation = thread.submit(Counter(client, _NAME).add)
        assert rule.wait(20)
        assert other.break_(_NAME)
        assert Counter(other, _NAME).add() == 1
        rule.cancel()
        with pytest.raises(holdfast.OutcomeUnknown, match="it is not known whether its state was stored"):
            operation.result(20)
    assert Counter(other, _NAME).snapshot() == {"count": 1}


def test_a_request_that_is_late_changes_nothing(
    client: holdfast.Client, other: holdfast.Client, proxy: FaultProxy, redis_server: RedisServer
) -> None:
    """The first copy of it arrives after the second, and after an operation of another client."""
    rule = proxy.on(script=scripts.STORE_RELEASE).delay(side="request")
    counter = Counter(client, _NAME)
    assert counter.add() == 1
    assert Counter(other, _NAME).add() == 2
    assert rule.fired
    calls = redis_server.client().info("commandstats")["cmdstat_evalsha"]["calls"]
    rule.release()
    eventually(lambda: redis_server.client().info("commandstats")["cmdstat_evalsha"]["calls"] > calls)
    assert Counter(other, _NAME).snapshot() == {"count": 2}
    assert counter.add() == 3


def test_an_engine_that_does_not_answer_until_the_lease_ends_leaves_the_outcome_unknown(proxy: FaultProxy) -> None:
    with holdfast.connect(proxy.url, ttl=1.5, request_timeout=0.1) as client:
        counter = Counter(client, _NAME)
        proxy.on(script=scripts.STORE_RELEASE, times=None).drop_reply_and_reset()
        with pytest.raises(holdfast.OutcomeUnknown):
            counter.add()


# -- refused -------------------------------------------------------------------------------------------------------


def test_a_holder_that_was_overtaken_loses_its_lock_and_stores_nothing(
    client: holdfast.Client, other: holdfast.Client
) -> None:
    def overtake() -> None:
        assert other.break_(_NAME)
        Counter(other, _NAME).add()

    with pytest.raises(holdfast.LockLost):
        Counter(client, _NAME).add(overtake)
    assert Counter(other, _NAME).snapshot() == {"count": 1}


def test_a_refused_store_leaves_the_lock_of_the_later_holder_alone(
    client: holdfast.Client, other: holdfast.Client
) -> None:
    later = Counter(other, _NAME)
    entered, leave = threading.Event(), threading.Event()

    def inside() -> None:
        entered.set()
        assert leave.wait(20)

    with ThreadPoolExecutor(1) as thread:

        def overtake() -> Any:
            assert other.break_(_NAME)
            operation = thread.submit(later.add, inside)
            assert entered.wait(20)
            return operation

        operations: list[Any] = []
        with pytest.raises(holdfast.LockLost):
            Counter(client, _NAME).add(lambda: operations.append(overtake()))
        assert other.lock(_NAME).locked()
        leave.set()
        assert operations[0].result(20) == 1


def test_a_register_of_another_type_is_named_and_the_lock_is_released(
    client: holdfast.Client, redis_server: RedisServer
) -> None:
    redis_server.client().set(_REGISTER, "foreign")
    with pytest.raises(holdfast.EngineRefused, match="holds a value of another type"):
        Counter(client, _NAME).add()
    assert not client.lock(_NAME).locked()


def test_a_state_that_becomes_another_type_is_reported_and_the_lock_is_released(
    client: holdfast.Client, redis_server: RedisServer
) -> None:
    with pytest.raises(holdfast.EngineRefused, match="holds a value of another type"):
        Counter(client, _NAME).add(lambda: redis_server.client().set(_REGISTER, "foreign"))
    assert not client.lock(_NAME).locked()


# -- killed and frozen ---------------------------------------------------------------------------------------------

_WORKER: Final = """
import sys, holdfast
class Counter(holdfast.Monitor):
    count: int = 0
    @holdfast.synchronized
    def add(self):
        self.count += 1
with holdfast.connect(sys.argv[1], ttl=1.0, request_timeout=0.2) as client:
    try:
        Counter(client, "counter").add()
        print("stored", flush=True)
    except holdfast.LockError as error:
        print(type(error).__name__, flush=True)
"""


@each_script
@pytest.mark.parametrize("side", ["request", "reply"])
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGSTOP])
def test_a_process_that_is_killed_or_frozen_at_a_step_stores_all_or_nothing(
    proxy: FaultProxy, other: holdfast.Client, script: Script, side: Any, end: signal.Signals
) -> None:
    # Repeats are held back, too: a process that is not killed or frozen in time sends them.
    rule = proxy.on(script=script, times=None).delay(side=side)
    process = subprocess.Popen([sys.executable, "-c", _WORKER, proxy.url], stdout=subprocess.PIPE, text=True)
    try:
        assert rule.wait(20)
        os.kill(process.pid, end)
        counter = Counter(other, _NAME)
        before = counter.add()  # when the lock has expired
        assert before == (2 if (script, side) == (scripts.STORE_RELEASE, "reply") else 1)
        rule.release()
        if end == signal.SIGSTOP:
            os.kill(process.pid, signal.SIGCONT)
            answer = process.communicate(timeout=20)[0].strip()
            assert answer in (("stored", "OutcomeUnknown") if before == 2 else ("stored", "LockLost", "OutcomeUnknown"))
            assert counter.read() == before + (answer == "stored" and before == 1)
        else:
            assert counter.read() == before
    finally:
        process.kill()
        process.communicate()


# -- the port ------------------------------------------------------------------------------------------------------


class Holds:
    """Claims of several clients on one name, with a register."""

    def __init__(self, url: str) -> None:
        self.session: Any = engine_at(url).session(BLOCKING)
        self.key = RegisterKey(f"fused-{uuid.uuid4().hex}", MONITOR, durable=True)

    def attempt(self, client: str | None = None, number: int = 1, **more: Any) -> Any:
        owner = f"{client or uuid.uuid4()}:{number}"
        return self.session.attempt(Claim(self.key.name, owner, 60.0, register=self.key, **more))

    def enter(self, attempt: Any) -> tuple[Guard, Cell]:
        granted = run(self.session.acquire(attempt, TIMEOUT))
        assert isinstance(granted, Granted)
        assert granted.loaded is not None
        return Guard(granted.token - attempt.claim.tokens + 1, attempt.owner), granted.loaded

    def leave(self, attempt: Any, guard: Guard, version: int, value: bytes) -> Any:
        return run(self.session.registers.store_and_release(attempt, self.key, guard, version, TIMEOUT, value=value))


@pytest.fixture
def holds(redis_url: str) -> Iterator[Holds]:
    made = Holds(redis_url)
    yield made
    run(made.session.close())


def test_a_repeat_is_answered_the_same_after_other_holders(holds: Holds) -> None:
    attempt = holds.attempt()
    guard, cell = holds.enter(attempt)
    assert [holds.leave(attempt, guard, cell.version, b"one") for _ in range(2)] == [Found.OURS, Found.OURS]
    second = holds.attempt()
    taken, cell = holds.enter(second)
    assert (cell.value, cell.version) == (b"one", 1)
    assert holds.leave(attempt, guard, 0, b"one") is Found.OURS
    assert run(holds.session.renew(second, 60.0, TIMEOUT)) is Found.OURS
    assert holds.leave(second, taken, 1, b"two") is Found.OURS
    assert holds.leave(attempt, guard, 0, b"one") is Found.OURS
    assert run(holds.session.registers.peek(holds.key, TIMEOUT))[:3] == (b"two", "", 2)


def test_what_never_took_effect_is_refused_after_another_holder(holds: Holds) -> None:
    attempt, second = holds.attempt(), holds.attempt()
    guard, _ = holds.enter(attempt)
    run(holds.session.release(attempt, TIMEOUT))
    taken, cell = holds.enter(second)
    assert holds.leave(attempt, guard, 0, b"late") == Stale(taken.token, 0)
    assert holds.leave(second, taken, cell.version, b"new") is Found.OURS
    assert holds.leave(attempt, guard, 0, b"late") == Stale(taken.token, 1)


def test_another_version_is_refused_and_the_lock_stays(holds: Holds) -> None:
    attempt = holds.attempt()
    guard, _ = holds.enter(attempt)
    assert holds.leave(attempt, guard, 5, b"wrong") == Stale(guard.token, 0)
    assert run(holds.session.release(attempt, TIMEOUT)) is Found.OURS


def test_a_busy_name_is_not_read_and_its_guard_stays(holds: Holds) -> None:
    holder, waiter = holds.attempt(), holds.attempt()
    guard, _ = holds.enter(holder)
    assert isinstance(run(holds.session.acquire(waiter, TIMEOUT)), Busy)
    assert holds.leave(holder, guard, 0, b"one") is Found.OURS


def test_the_guard_is_the_first_token_of_the_block(holds: Holds) -> None:
    attempt = holds.attempt(tokens=17)
    guard, _ = holds.enter(attempt)
    following = Guard(guard.token + 1, guard.owner)
    assert run(holds.session.registers.load(holds.key, following, TIMEOUT)) == Cell()
    assert holds.leave(attempt, guard, 0, b"late") == Stale(following.token, 0)


def test_a_repeated_acquire_loads_the_same(holds: Holds) -> None:
    attempt = holds.attempt()
    assert holds.enter(attempt) == holds.enter(attempt)


def test_a_late_acquire_of_a_claim_that_was_released_reads_nothing(holds: Holds) -> None:
    attempt = holds.attempt()
    guard, _ = holds.enter(attempt)
    attempt.unresolved = True  # a copy of it is still under way
    assert holds.leave(attempt, guard, 0, b"one") is Found.OURS
    assert isinstance(run(holds.session.acquire(attempt, TIMEOUT)), Busy)


def test_what_a_later_holder_leaves_about_the_one_before_expires(holds: Holds, redis_server: RedisServer) -> None:
    holds.leave(first := holds.attempt(), holds.enter(first)[0], 0, b"one")
    holds.enter(holds.attempt())
    (key,) = redis_server.client().keys("holdfast_register:*:left:*")
    assert 0 < redis_server.client().pttl(key) <= 30_000


def test_holders_of_one_client_leave_nothing_about_each_other(holds: Holds, redis_server: RedisServer) -> None:
    client = str(uuid.uuid4())
    holds.leave(first := holds.attempt(client, 1), holds.enter(first)[0], 0, b"one")
    holds.enter(holds.attempt(client, 2))
    assert redis_server.client().keys("holdfast_register:*:left:*") == []
