"""A second signal in the clean-up of the first: the watchdog finishes it. Nothing stays held, nothing is renewed."""

from __future__ import annotations

import gc
import itertools
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, NamedTuple

import pytest

import holdfast
from holdfast._core import acquisition, direct_acquire
from holdfast._core.acquisition import Acquisition
from holdfast._core.core import Core
from holdfast._core.direct_hold import DirectHold
from tests.support.signal_injector import InjectedInterrupt, SignalInjector
from tests.support.soak import soak
from tests.support.waiting import eventually

pytestmark = pytest.mark.usefixtures("no_warnings_of_dropped_objects")

#: Long before the ttl of what was left held.
_SOON: Final = 10.0
#: Of a detached lock: a ticket that its caller never gets ends by itself.
_SHORT: Final = 1.0


class Call(NamedTuple):
    """``prepare`` returns the call that is interrupted. ``free``: whether another client can have the name."""

    prepare: Callable[[holdfast.Client, str], Callable[[], object]]
    free: Callable[[holdfast.Client, str], holdfast.Lease | None]


def _lock(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.lock(name).try_acquire(timeout=_SOON)


def _writing(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.rwlock(name).write.try_acquire(timeout=_SOON)


def _permits(other: holdfast.Client, name: str) -> holdfast.Lease | None:
    return other.semaphore(name, 2).try_acquire(2, timeout=_SOON)


def _wait(client: holdfast.Client, name: str) -> Callable[[], object]:
    lock = client.lock(name)
    condition = client.condition(lock)
    lease = lock.acquire()

    def wait() -> None:
        assert not condition.wait(timeout=0)
        lease.release()  # the next critical section of the register: one more step

    return wait


def _handed_over(client: holdfast.Client, name: str) -> Callable[[], object]:
    """A wait of a caller that comes back by a new grant."""
    lock = client.lock(name)
    lease = lock.acquire()
    client.condition(lock).wait(timeout=0)
    return lease.release


def _downgrade(client: holdfast.Client, name: str) -> Callable[[], object]:
    def call() -> None:
        with client.rwlock(name).write, client.rwlock(name).read:
            pass

    return call


CALLS: Final = {
    "acquire": Call(lambda client, name: client.lock(name).acquire, _lock),
    "release": Call(lambda client, name: client.lock(name).acquire().release, _lock),
    "wait": Call(_wait, _lock),
    "release after a wait": Call(_handed_over, _lock),
    "rwlock": Call(_downgrade, _writing),
    "semaphore": Call(lambda client, name: client.semaphore(name, 2).acquire, _permits),
    "detach": Call(lambda client, name: client.lock(name, ttl=_SHORT).acquire().detach, _lock),
}


class Caller:
    """A client whose calls are interrupted, and another one, which finds out what was left."""

    def __init__(self, url: str) -> None:
        self.client = holdfast.connect(url)
        self.other = holdfast.connect(url)
        self._prefix = uuid.uuid4().hex[:8]
        self._numbers = itertools.count()
        self.client.ping()

    @property
    def core(self) -> Core:
        core = self.client._opened
        assert core is not None
        return core

    def new_name(self) -> str:
        return f"{self._prefix}{next(self._numbers)}"

    def interrupted(self, call: Call, first: int, then: int | None) -> list[str]:
        """Where it was interrupted."""
        name, injector = self.new_name(), SignalInjector(first, then)
        self._run(call.prepare(self.client, name), injector)
        self._check(call, name, f"signals at {injector.interrupted_at}")
        return injector.interrupted_at

    def _run(self, call: Callable[[], object], injector: SignalInjector) -> None:
        with suppress(InjectedInterrupt), injector:
            call()

    def _check(self, call: Call, name: str, where: str) -> None:
        gc.collect(0)
        core = self.core
        eventually(lambda: not core.grants(), _SOON, f"nothing is renewed after {where}")
        lease = call.free(self.other, name)
        assert lease is not None, f"left held by {where}"
        lease.release()
        for calls in (core.acquiring, core.releasing, core.waiting, core.detaching):
            eventually(lambda: not calls.running, _SOON, f"nothing is under way after {where}")  # noqa: B023
        assert core.queue.occupant(name) is None, f"its slot is occupied after {where}"

    def close(self) -> None:
        self.client.close()
        self.other.close()


@pytest.fixture
def in_memory() -> Iterator[Caller]:
    caller = Caller(f"memory:{uuid.uuid4().hex}")
    yield caller
    caller.close()


@pytest.fixture
def at_redis(redis_url: str) -> Iterator[Caller]:
    caller = Caller(redis_url)
    yield caller
    caller.close()


def signals_everywhere(caller: Caller, name: str, step: int, then_step: int) -> int:
    """Two signals: at every ``step``-th place of the call, and at every ``then_step``-th of the clean-up after it,
    beginning with another one each time. Returns the number of pairs."""
    pairs = 0
    for first in itertools.count(0, step):
        for then in itertools.count(first // step % then_step, then_step):
            where = caller.interrupted(CALLS[name], first, then)
            if not where:
                return pairs
            if len(where) < 2:
                break
            pairs += 1
    raise AssertionError("not reached")


@pytest.mark.parametrize(
    "step, then_step",
    [
        (5, 7),
        soak(1, 1, reason="every place of every clean-up"),
    ],
)
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.timeout(300)
def test_two_signals_anywhere_leave_nothing(in_memory: Caller, name: str, step: int, then_step: int) -> None:
    assert signals_everywhere(in_memory, name, step, then_step) > 5


@pytest.mark.parametrize("name", ["acquire", "release"])
def test_two_signals_at_every_place_of_the_usual_pair_leave_nothing(in_memory: Caller, name: str) -> None:
    """Again and again: the watchdog may come before or after what the collector reports."""
    for _ in range(5):
        assert signals_everywhere(in_memory, name, 1, 1) > 20


@pytest.mark.parametrize(
    "step, then_step",
    [
        (29, 11),
        soak(2, 3, reason="every second place of every call at a server"),
    ],
)
@pytest.mark.timeout(300)
def test_two_signals_in_calls_at_redis_leave_nothing(at_redis: Caller, step: int, then_step: int) -> None:
    for name in CALLS:
        assert signals_everywhere(at_redis, name, step, then_step) > 2


@pytest.mark.parametrize("directly", [True, False], ids=["directly", "by an acquisition"])
def test_it_is_finished_while_the_caller_handles_the_interrupt(
    in_memory: Caller, monkeypatch: pytest.MonkeyPatch, directly: bool
) -> None:
    """The traceback of the interrupt refers to the frames of the call: these must not keep what it is known by."""
    clean_ups = 0

    def interrupted(self: Any, **options: Any) -> None:
        nonlocal clean_ups
        clean_ups += 1
        if clean_ups == 1:
            raise InjectedInterrupt
        clean_up(self, **options)

    of: Any
    of, method = (DirectHold, "give_up") if directly else (Acquisition, "_undo")
    clean_up = getattr(of, method)
    monkeypatch.setattr(of, method, interrupted)
    _interrupt_installs(in_memory.core, monkeypatch)
    name = in_memory.new_name()
    lock = in_memory.client.lock(name) if directly else in_memory.client.rwlock(name).write
    with pytest.raises(InjectedInterrupt) as interrupt:
        lock.acquire()
    lease = (_lock if directly else _writing)(in_memory.other, name)
    assert lease is not None
    lease.release()
    assert isinstance(interrupt.value.__context__, InjectedInterrupt)
    assert clean_ups == 2


def test_name_is_free_though_a_signal_came_as_an_acquisition_took_over(
    in_memory: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The traceback of the interrupt, which the caller keeps, must not keep the coroutine of the acquisition."""
    name = in_memory.new_name()
    with monkeypatch.context() as patched, in_memory.other.lock(name):
        patched.setattr(direct_acquire, "_end", _raise)
        with pytest.raises(InjectedInterrupt) as interrupt:
            in_memory.client.lock(name).acquire(timeout=60)
    in_memory.client.lock(name).acquire(timeout=60).release()
    assert interrupt.traceback
    eventually(lambda: not in_memory.core.acquiring.running, _SOON)


def _interrupt_installs(of: Core, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal comes just before what was granted becomes a hold."""
    for module, name in ((acquisition, "install"), (direct_acquire, "install_directly")):
        install = getattr(module, name)

        def interrupted(core: Core, *rest: Any, install: Any = install) -> Any:
            if core is of:
                raise InjectedInterrupt
            return install(core, *rest)

        monkeypatch.setattr(module, name, interrupted)


def test_it_is_found_if_a_third_signal_comes_before_the_watchdog_is_woken(
    in_memory: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python ignores what a callback raises: then the next round that comes finds it."""
    monkeypatch.setattr(DirectHold, "give_up", _raise)
    _interrupt_installs(in_memory.core, monkeypatch)
    monkeypatch.setattr(in_memory.core.acquiring, "on_garbage", lambda _: None)
    name = in_memory.new_name()
    with pytest.raises(InjectedInterrupt):
        in_memory.client.lock(name).acquire()
    assert len(in_memory.core.acquiring.interrupted()) == 1
    monkeypatch.undo()
    in_memory.client.lock(in_memory.new_name(), ttl=0.5).acquire().release()
    eventually(lambda: not in_memory.core.acquiring.interrupted(), _SOON)
    lease = _lock(in_memory.other, name)
    assert lease is not None
    lease.release()


def _raise(*_: object, **__: object) -> None:
    raise InjectedInterrupt
