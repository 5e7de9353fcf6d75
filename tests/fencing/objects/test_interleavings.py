"""Each step of ObjectFence may be delayed, refused or lose its reply: no acknowledged update is lost.

Every request of the port is a scheduling point. A seeded scheduler runs the calls of several holders in any order and
decides the fault of each request.
"""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import obstore
import pytest
from obstore.store import MemoryStore

from holdfast._runtime.blocking import run
from holdfast.errors import EngineUnavailable, OutcomeUnknown, StaleToken
from holdfast.fencing.objects.port import Conflict, Found, Port
from holdfast.fencing.objects.register import Register
from holdfast.fencing.rule import Bearer


@types.coroutine
def _step() -> Generator[None, None, None]:
    yield


class FaultyPort(Port):
    """Each request waits for the scheduler; writes of a head may fail before or after they took effect."""

    def __init__(self, store: MemoryStore, chance: random.Random) -> None:
        super().__init__(store, awaited=False)
        self._chance = chance
        self.late: list[tuple[str, bytes, Found | None]] = []  # abandoned requests that may still arrive

    async def _call(self, name: str, path: str, *arguments: Any, **keywords: Any) -> Any:
        await _step()
        return await super()._call(name, path, *arguments, **keywords)

    async def swap(self, path: str, body: bytes, expected: Found | None) -> None:
        fate = self._chance.random()
        if fate < 0.1:
            await _step()
            self.late.append((path, body, expected))
            raise EngineUnavailable("the request was lost, or comes later")
        await super().swap(path, body, expected)
        if fate < 0.2:
            raise EngineUnavailable("the reply was lost")
        if fate < 0.3:
            raise Conflict("obstore repeated the request by itself")

    async def sleep(self, seconds: float) -> None:
        await _step()

    async def deliver(self) -> None:
        """Delivers one of the late requests."""
        path, body, expected = self.late.pop(self._chance.randrange(len(self.late)))
        try:
            await super().swap(path, body, expected)
        except Conflict:
            pass


class Tally:
    """Counts the outcomes observed by the holders."""

    def __init__(self) -> None:
        self.acknowledged = 0
        self.unknown = 0

    async def increment(self, register: Register, token: int, times: int) -> None:
        """Makes one update after another as one holder, until an update is refused or has an unknown outcome."""
        incoming = Bearer(token, f"owner {token}")
        try:
            for _ in range(times):
                value = int(await register.load("n", incoming) or 0)
                await register.store("n", b"%d" % (value + 1), incoming)
                self.acknowledged += 1
        except OutcomeUnknown:
            self.unknown += 1
        except (StaleToken, EngineUnavailable):
            pass


def explore(seed: int, kind: type[Register] = Register) -> tuple[Tally, int]:
    """Returns the outcomes observed by seven holders and the final number of updates."""
    chance = random.Random(seed)
    store, tally = MemoryStore(), Tally()
    port = FaultyPort(store, chance)
    register = kind(port)
    waiting = [tally.increment(register, token, chance.choice((1, 2, 3))) for token in range(1, 8)]
    running: list[Coroutine[Any, Any, None]] = []
    while running or waiting:
        if port.late and chance.random() < 0.2:
            _finish(port.deliver())
        # Few at a time, in the order of their tokens: a lock precedes the fence and sometimes fails.
        if waiting and (not running or chance.random() < 0.15):
            running.append(waiting.pop(0))
        chosen = chance.choice(running)
        try:
            chosen.send(None)
        except StopIteration:
            running.remove(chosen)
        if chance.random() < 0.02:
            _finish(register.sweep("n"))
    while port.late:
        _finish(port.deliver())
    return tally, int(run(Register(Port(store, awaited=False)).read("n")) or 0)


def test_no_acknowledged_update_is_lost() -> None:
    acknowledged = unknown = 0
    for seed in range(250):
        tally, found = explore(seed)
        assert tally.acknowledged <= found <= tally.acknowledged + tally.unknown, f"seed {seed}"
        acknowledged, unknown = acknowledged + tally.acknowledged, unknown + tally.unknown
    assert acknowledged > 250
    assert unknown > 0


def test_concurrent_stores_under_one_lease_leave_a_readable_value() -> None:
    """Each writer removes the object of the previous write. No head may point to a removed object."""
    incoming = Bearer(5, "owner")

    async def store(register: Register, writer: int) -> None:
        try:
            for number in range(3):
                await register.load("n", incoming)
                await register.store("n", b"%d of %d" % (number, writer), incoming)
        except (OutcomeUnknown, EngineUnavailable):
            pass

    for seed in range(300):
        chance, memory = random.Random(seed), MemoryStore()
        port = FaultyPort(memory, chance)
        register = Register(port)
        running = [store(register, writer) for writer in range(3)]
        while running:
            chosen = chance.choice(running)
            try:
                chosen.send(None)
            except StopIteration:
                running.remove(chosen)
            if port.late and chance.random() < 0.2:
                _finish(port.deliver())
        while port.late:
            _finish(port.deliver())
        assert run(Register(Port(memory, awaited=False)).read("n")) is not None, f"seed {seed}"


class GuardedTooLate(Register):
    """A mutant that reads before it raises the head: only the store is fenced."""

    async def load(self, key: str, incoming: Bearer) -> bytes | None:
        value = await self.read(key)
        await self.raise_guard(key, incoming)
        return value


def test_raising_the_head_after_the_read_loses_acknowledged_updates() -> None:
    runs = (explore(seed, GuardedTooLate) for seed in range(100))
    assert any(found < tally.acknowledged for tally, found in runs)


def _finish(steps: Coroutine[Any, Any, Any]) -> None:
    """Runs the coroutine to its end."""
    try:
        while True:
            steps.send(None)
    except (StopIteration, EngineUnavailable):
        pass


# ---- single faults


class Scripted(Port):
    """Calls the hooks of the test before or after the n-th write of a head."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store, awaited=False)
        self.before: list[Callable[[], None] | None] = []
        self.after: list[Callable[[], None] | None] = []
        self.missing: list[Callable[[], None]] = []

    async def get(self, path: str) -> Found | None:
        if self.missing and not path.endswith("/head"):
            self.missing.pop(0)()
        return await super().get(path)

    async def swap(self, path: str, body: bytes, expected: Found | None) -> None:
        if self.before and (act := self.before.pop(0)):
            act()
        await super().swap(path, body, expected)
        if self.after and (act := self.after.pop(0)):
            act()

    async def sleep(self, seconds: float) -> None:
        pass


def _fail(error: Exception) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def port(store: MemoryStore) -> Scripted:
    return Scripted(store)


async def _raised(register: Register, incoming: Bearer) -> None:
    await register.raise_guard("k", incoming)


OLD, NEW = Bearer(1, "old"), Bearer(2, "new")


@pytest.mark.parametrize("error", [EngineUnavailable("lost"), Conflict("repeated by obstore")])
def test_store_with_a_lost_reply_succeeds_once(error: Exception, port: Scripted, store: MemoryStore) -> None:
    register = Register(port)
    run(register.raise_guard("k", OLD))
    port.after = [_fail(error)]
    run(register.store("k", b"1", OLD))
    assert run(register.read("k")) == b"1"
    assert len(obstore.list(store).collect()) == 2


@pytest.mark.parametrize("error", [EngineUnavailable("lost"), Conflict("repeated by obstore")])
def test_store_with_a_lost_reply_seen_by_a_newer_holder_succeeds(
    error: Exception, port: Scripted, store: MemoryStore
) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    run(register.raise_guard("k", OLD))

    def newer_holder() -> None:
        assert run(other.load("k", NEW)) == b"1"
        run(other.store("k", b"2", NEW))
        raise error

    port.after = [newer_holder]
    run(register.store("k", b"1", OLD))
    assert run(register.read("k")) == b"2"


def test_lost_store_followed_by_two_newer_writes_is_unknown(port: Scripted, store: MemoryStore) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    run(register.raise_guard("k", OLD))

    def newer_holder() -> None:
        run(other.raise_guard("k", NEW))
        run(other.store("k", b"2", NEW))
        run(other.store("k", b"3", NEW))
        raise EngineUnavailable("lost")

    port.after = [newer_holder]
    with pytest.raises(OutcomeUnknown) as unknown:
        run(register.store("k", b"1", OLD))
    assert (unknown.value.operation, unknown.value.name) == ("store", "k")
    assert run(register.read("k")) == b"3"


def test_holder_overtaken_during_its_upload_is_refused_and_leaves_no_object(port: Scripted, store: MemoryStore) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    run(register.raise_guard("k", OLD))
    port.before = [lambda: run(_raised(other, NEW))]
    with pytest.raises(StaleToken):
        run(register.store("k", b"late", OLD))
    assert [entry["path"] for entry in obstore.list(store).collect()] == ["k/head"]


def test_store_without_an_answer_is_unknown_and_keeps_its_object(port: Scripted, store: MemoryStore) -> None:
    register = Register(port)
    run(register.raise_guard("k", OLD))
    port.before = [_fail(EngineUnavailable("lost"))] * 20
    with pytest.raises(OutcomeUnknown):
        run(register.store("k", b"1", OLD))
    assert len(obstore.list(store).collect()) == 2, "a late request may still make it the value"


def test_load_under_a_newer_lease_is_final_after_an_unknown_outcome(port: Scripted, store: MemoryStore) -> None:
    register = Register(port)
    run(register.raise_guard("k", OLD))
    late: list[tuple[str, bytes, Found | None]] = []

    class Delayed(Scripted):
        async def swap(self, path: str, body: bytes, expected: Found | None) -> None:
            late.append((path, body, expected))
            raise EngineUnavailable("it comes later")

    with pytest.raises(OutcomeUnknown):
        run(Register(Delayed(store)).store("k", b"late", OLD))
    assert run(register.load("k", NEW)) is None
    for request in late:
        with pytest.raises(Conflict):
            run(port.swap(*request))
    assert run(register.load("k", NEW)) is None


def test_two_stores_of_one_lease_succeed_and_the_last_is_kept(port: Scripted, store: MemoryStore) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    run(register.raise_guard("k", OLD))
    port.before = [lambda: run(other.store("k", b"first", OLD))]
    run(register.store("k", b"second", OLD))
    assert run(register.read("k")) == b"second"
    assert len(obstore.list(store).collect()) == 2


def test_reader_of_a_replaced_object_reads_the_newer_one(port: Scripted, store: MemoryStore) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    run(register.raise_guard("k", OLD))
    run(register.store("k", b"1", OLD))
    port.missing = [lambda: run(other.store("k", b"2", OLD))]
    assert run(register.read("k")) == b"2"


def test_two_first_holders_race_for_a_new_head_and_the_newer_wins(port: Scripted, store: MemoryStore) -> None:
    register, other = Register(port), Register(Port(store, awaited=False))
    port.before = [lambda: run(_raised(other, NEW))]
    with pytest.raises(StaleToken):
        run(register.load("k", OLD))


def test_constantly_changing_head_fails_after_a_bounded_time(port: Scripted, store: MemoryStore) -> None:
    register = Register(port)
    port.before = [_fail(Conflict("k"))] * 100
    with pytest.raises(EngineUnavailable, match="kept changing"):
        run(register.raise_guard("k", OLD))
    assert len(port.before) > 50
