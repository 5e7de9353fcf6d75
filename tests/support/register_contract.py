"""The contract of :class:`holdfast.engines.registers.Registers`: cases that hold on every engine, sync and async.

A test module of an engine runs them all::

    @pytest.mark.parametrize("api", APIS)
    @pytest.mark.parametrize("case", CASES, ids=name_of)
    def test_registers(case: Case, api: str) -> None:
        check(case, engine_at(url), api)

Guards are those of real holds, because an engine may look at the lock itself. Each case also repeats its requests, as
after a lost reply.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest import mock

from holdfast._config.targets import parse_target
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import Attempt, Claim, Engine, Granted, Session
from holdfast.engines.registers import Cell, Guard, Listener, Look, RegisterKey, Registers, Stale, Standing
from holdfast.engines.registry import make_engine
from holdfast.errors import InvalidName

APIS: Final = ("sync", "async")
TIMEOUT: Final = 10.0
#: A wake-up that has not come by then does not come: long, since the machine may be busy (s).
_SOON: Final = 20.0
#: For how long a listener is watched that must not be woken (s).
_A_MOMENT: Final = 0.05
#: In place of PRESENCE, in cases that wait for its end (s).
_SHORT: Final = 0.3


class World:
    """Two sessions of one engine on one runtime. Names are unique, so that cases may share a server."""

    def __init__(self, engine: Engine, runtime: Runtime) -> None:
        self._engine = engine
        self._runtime = runtime
        self._session: Session[Any] = engine.session(self._runtime)
        self._other: Session[Any] = engine.session(self._runtime)
        self._held: dict[str, Attempt] = {}
        self._prefix = f"registers-{uuid.uuid4().hex[:12]}"

    @property
    def registers(self) -> Registers:
        return _registers_of(self._session)

    @property
    def others(self) -> Registers:
        """Those of the other session."""
        return _registers_of(self._other)

    def now(self) -> float:
        return self._runtime.now()

    @property
    def has_tasks(self) -> bool:
        return isinstance(self._runtime, AsyncioRuntime)

    def key(self, part: str = "condition:", name: str = "", *, durable: bool = False) -> RegisterKey:
        return RegisterKey(f"{self._prefix}{name}", part, durable)

    def allows(self, name: str) -> bool:
        try:
            self._engine.validate_name(f"{self._prefix}{name}")
        except InvalidName:
            return False
        return True

    async def hold(self, key: RegisterKey) -> Guard:
        """The guard of a new hold. The one before it, if there is one, is released."""
        previous = self._held.pop(key.name, None)
        if previous is not None:
            await self._session.release(previous, TIMEOUT)
        attempt = self._session.attempt(Claim(key.name, f"{uuid.uuid4()}:{secrets.randbits(63)}", 60.0))
        granted = await self._session.acquire(attempt, TIMEOUT)
        assert isinstance(granted, Granted), granted
        self._held[key.name] = attempt
        return Guard(granted.token, attempt.owner)

    async def load(self, key: RegisterKey, guard: Guard) -> Cell:
        cell = await self.registers.load(key, guard, TIMEOUT)
        assert isinstance(cell, Cell), cell
        return cell

    async def enter(self, key: RegisterKey) -> tuple[Guard, Cell]:
        """A new hold, which has loaded the register."""
        guard = await self.hold(key)
        return guard, await self.load(key, guard)

    async def enqueue(self, key: RegisterKey, queue: str) -> tuple[Guard, int]:
        """A new hold, which has stored ``queue``; and the version."""
        guard, cell = await self.enter(key)
        version = await self.registers.store(key, guard, cell.version, TIMEOUT, queue=queue)
        assert version == cell.version + 1
        return guard, cell.version + 1

    async def is_woken(self, listener: Listener) -> None:
        until = self.now() + _SOON
        await listener.wait(until)
        assert self.now() < until - 1.0, "the wake-up has not come"

    async def is_not_woken(self, listener: Listener) -> None:
        until = self.now() + _A_MOMENT
        await listener.wait(until)
        assert self.now() >= until, "woken without a reason"

    async def is_absent(self, key: RegisterKey, *waiters: str) -> None:
        until = self.now() + _SOON
        while not (await self.registers.peek(key, TIMEOUT)).present.isdisjoint(waiters):
            assert self.now() < until, "the waiter is still present"
            await self._runtime.sleep_until(self.now() + 0.02)

    async def end_other(self) -> None:
        """End the other session: its waiters look no more."""
        await self._other.close()

    async def close(self) -> None:
        for attempt in self._held.values():
            await self._session.release(attempt, TIMEOUT)
        await self._other.close()
        await self._session.close()


def _registers_of(session: Session[Any]) -> Registers:
    assert session.registers is not None, "this engine has no registers"
    return session.registers


@contextmanager
def short_presence() -> Iterator[None]:
    """Waiters are present for a moment only, on engines that count seconds and use the constant's value when they
    need it."""
    modules = [module for name, module in sys.modules.items() if name.startswith("holdfast.engines.")]
    with mock.patch.multiple("holdfast.engines.registers", PRESENCE=_SHORT):
        patches = [mock.patch.object(module, "PRESENCE", _SHORT) for module in modules if hasattr(module, "PRESENCE")]
        for patch in patches:
            patch.start()
        try:
            yield
        finally:
            for patch in patches:
                patch.stop()


Case = Callable[[World], Awaitable[None]]
CASES: Final[list[Case]] = []


def name_of(case: Any) -> str:
    return str(case.__name__)


def engine_at(url: str) -> Engine:
    return make_engine(parse_target(url, {}))


def _case(case: Case) -> Case:
    CASES.append(case)
    return case


def check(case: Case, engine: Engine, api: str) -> None:
    """Run one case, sync or async."""
    if api == "sync":
        run(check_on(BLOCKING, case, engine))
    else:
        asyncio.run(_check_in_a_loop(case, engine))


async def _check_in_a_loop(case: Case, engine: Engine) -> None:
    await check_on(AsyncioRuntime(), case, engine)


async def check_on(runtime: Runtime, case: Case, engine: Engine) -> None:
    """Run one case on any runtime."""
    world = World(engine, runtime)
    try:
        await case(world)
    finally:
        await world.close()


# -- load and store ------------------------------------------------------------------------------------------------


@_case
async def a_register_that_was_never_written_is_empty(world: World) -> None:
    key = world.key()
    assert await world.registers.peek(key, TIMEOUT) == Cell()
    guard, cell = await world.enter(key)
    assert cell == Cell() == await world.load(key, guard), "also when it is repeated"


@_case
async def what_is_stored_is_read_by_every_session(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", queue="full=w1:W") == 1
    assert await world.others.peek(key, TIMEOUT) == Cell(b"one", "full=w1:W", 1)
    _, cell = await world.enter(key)
    assert cell == Cell(b"one", "full=w1:W", 1)


@_case
async def a_store_keeps_what_it_does_not_name(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", queue="full=w1:W") == 1
    assert await world.registers.store(key, guard, 1, TIMEOUT, value=b"two") == 2
    assert await world.registers.peek(key, TIMEOUT) == Cell(b"two", "full=w1:W", 2)
    assert await world.registers.store(key, guard, 2, TIMEOUT, queue="") == 3
    assert await world.registers.peek(key, TIMEOUT) == Cell(b"two", "", 3)
    assert await world.registers.store(key, guard, 3, TIMEOUT, value=b"") == 4
    assert await world.registers.peek(key, TIMEOUT) == Cell(b"", "", 4)
    assert await world.registers.store(key, guard, 4, TIMEOUT) == 5, "a store of nothing is a change too"
    assert await world.load(key, guard) == Cell(b"", "", 5)


@_case
async def a_repeated_store_answers_that_the_first_took_effect(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one") == 1
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one") == Stale(guard.token, 1)
    assert await world.registers.peek(key, TIMEOUT) == Cell(b"one", "", 1)


@_case
async def a_late_duplicate_of_an_earlier_store_of_the_same_hold_is_refused(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", queue="=w1:W") == 1
    assert await world.registers.store(key, guard, 1, TIMEOUT, value=b"two", queue="") == 2
    late = await world.registers.store(key, guard, 0, TIMEOUT, value=b"one", queue="=w1:W", wake=["w1"], join="w1")
    assert late == Stale(guard.token, 2)
    assert await world.load(key, guard) == Cell(b"two", "", 2)


@_case
async def a_store_of_a_version_that_was_never_read_is_refused(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 7, TIMEOUT, value=b"x") == Stale(guard.token, 0)
    assert await world.load(key, guard) == Cell()


@_case
async def a_load_shuts_out_earlier_holders_before_the_first_read(world: World) -> None:
    key = world.key()
    first, _ = await world.enter(key)
    second, cell = await world.enter(key)
    assert second.token > first.token
    assert await world.registers.store(key, first, 0, TIMEOUT, value=b"late") == Stale(second.token, 0)
    assert await world.registers.load(key, first, TIMEOUT) == Stale(second.token, 0)
    assert await world.load(key, second) == cell == Cell()
    assert await world.registers.store(key, second, 0, TIMEOUT, value=b"new") == 1
    assert await world.registers.store(key, first, 1, TIMEOUT, value=b"late") == Stale(second.token, 1)
    assert await world.others.peek(key, TIMEOUT) == Cell(b"new", "", 1)


@_case
async def a_store_without_a_load_is_refused(world: World) -> None:
    key = world.key()
    guard = await world.hold(key)
    assert isinstance(await world.registers.store(key, guard, 0, TIMEOUT, value=b"x"), Stale)
    first, _ = await world.enter(key)
    second = await world.hold(key)
    assert await world.registers.store(key, second, 0, TIMEOUT, value=b"x") == Stale(first.token, 0)
    assert await world.registers.peek(key, TIMEOUT) == Cell()


@_case
async def an_equal_token_of_another_owner_is_another_guard(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    twin = Guard(guard.token, f"{uuid.uuid4()}:{secrets.randbits(63)}")
    assert await world.registers.load(key, twin, TIMEOUT) == Stale(guard.token, 0)
    assert await world.registers.store(key, twin, 0, TIMEOUT, value=b"x") == Stale(guard.token, 0)
    assert await world.load(key, guard) == Cell()


@_case
async def tokens_are_compared_as_numbers(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    while guard.token < 10:  # the first locks of a new server
        guard, _ = await world.enter(key)
    for smaller in (9, guard.token - 1):
        earlier = Guard(smaller, f"{uuid.uuid4()}:{secrets.randbits(63)}")
        assert await world.registers.load(key, earlier, TIMEOUT) == Stale(guard.token, 0)


@_case
async def values_are_any_bytes(world: World) -> None:
    key = world.key(durable=True)
    guard, _ = await world.enter(key)
    value = bytes(range(256)) * 2 + b"\r\n\x00"
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=value) == 1
    assert (await world.load(key, guard)).value == value
    assert (await world.registers.swap(key, 1, value[::-1], TIMEOUT)).value == value[::-1]
    assert (await world.registers.peek(key, TIMEOUT)).value == value[::-1]


@_case
async def a_value_may_have_256_kib_and_a_queue_64(world: World) -> None:
    key = world.key(durable=True)
    guard, _ = await world.enter(key)
    value = secrets.token_bytes(256 * 1024)
    queue = "full=" + ",".join(f"{number:016x}:W" for number in range(3400))
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=value, queue=queue) == 1
    cell = await world.load(key, guard)
    assert cell.value == value
    assert cell.queue == queue
    last = f"{3399:016x}"
    assert (await world.registers.look(key, last, TIMEOUT)).standing is Standing.WAITING


@_case
async def registers_with_unusual_names_are_separate(world: World) -> None:
    names = ["", ":a", "a b", "größe 🔒", "*?[x]", "'\";--", "%3A", "{t}", "{t}:a", "\\n"]
    parts = [
        "monitor",
        "condition:",
        "condition:a",
        "condition:ä b/c",
        "condition:{x}",
        "condition:%41",
        "a:condition:",
    ]
    keys = [world.key(part, name) for name in names if world.allows(name) for part in parts]
    assert len(keys) > len(parts), "the engine allows some of the names"
    guards: dict[str, Guard] = {}
    for number, key in enumerate(keys):
        if key.name not in guards:
            guards[key.name] = await world.hold(key)
        await world.load(key, guards[key.name])
        stored = await world.registers.store(key, guards[key.name], 0, TIMEOUT, value=b"%d" % number, join=f"w{number}")
        assert stored == 1, key
    for number, key in enumerate(keys):
        cell = await world.others.peek(key, TIMEOUT)
        assert cell[:3] == (b"%d" % number, "", 1), key
        assert cell.present <= {f"w{number}"}, key  # the first have not looked for long


# -- waiters -------------------------------------------------------------------------------------------------------


@_case
async def who_joins_is_present_with_the_store(world: World) -> None:
    key = world.key()
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 0, TIMEOUT, queue="=w1:W", join="w1") == 1
    assert (await world.others.peek(key, TIMEOUT)).present == {"w1"}
    assert (await world.load(key, guard)).present == {"w1"}
    refused = await world.registers.store(key, guard, 0, TIMEOUT, queue="=w2:W", join="w2")
    assert refused == Stale(guard.token, 1)
    assert (await world.load(key, guard)).present == {"w1"}, "who was refused has not joined"


@_case
async def who_looks_is_present(world: World) -> None:
    key = world.key()
    await world.enqueue(key, "=w1:W,w2:W")
    await world.registers.look(key, "w1", TIMEOUT)
    await world.others.look(key, "w2", TIMEOUT)
    await world.others.look(key, "w2", TIMEOUT)
    assert (await world.registers.peek(key, TIMEOUT)).present == {"w1", "w2"}


@_case
async def who_looks_no_more_is_absent_after_a_while(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W,w2:N,w3:W")
    with short_presence():
        await world.others.look(key, "w1", TIMEOUT)
        assert isinstance(await world.others.store(key, guard, version, TIMEOUT, join="w2"), int)
        await world.end_other()
        await world.is_absent(key, "w1", "w2")
        assert await world.registers.look(key, "w3", TIMEOUT) == Look(Standing.WAITING, 0, orphan=True)


@_case
async def a_look_tells_how_a_waiter_stands(world: World) -> None:
    key = world.key()
    await world.enqueue(key, "empty=a1:W,b2:N;full=c3:W,d4:W")
    look = world.registers.look
    for waiter in ("b2", "c3", "d4", "a1"):
        await look(key, waiter, TIMEOUT)
    assert (await look(key, "a1", TIMEOUT)).standing is Standing.WAITING
    assert await look(key, "b2", TIMEOUT) == Look(Standing.NOTIFIED)
    assert (await look(key, "c3", TIMEOUT)).standing is Standing.WAITING
    assert (await look(key, "d4", TIMEOUT)).standing is Standing.WAITING
    assert not (await look(key, "a1", TIMEOUT)).orphan, "b2 is present"
    for stranger in ("x", "1", "a", "3", "mpty", "full", "empty", "W", "N"):
        assert (await look(key, stranger, TIMEOUT)).standing is Standing.NOT_QUEUED, stranger


@_case
async def a_look_at_an_empty_register_finds_no_place(world: World) -> None:
    key = world.key()
    assert await world.registers.look(key, "w1", TIMEOUT) == Look(Standing.NOT_QUEUED)
    guard, cell = await world.enter(key)
    assert (cell.value, cell.queue, cell.version) == (b"", "", 0), "a look changes nothing"
    assert await world.registers.store(key, guard, 0, TIMEOUT, value=b"x") == 1


@_case
async def ids_that_are_parts_of_others_are_told_apart(world: World) -> None:
    key = world.key()
    await world.enqueue(key, "ab=cab:N,ab-1:N,ab:W,b:W")
    for waiter in ("cab", "ab-1", "b"):
        await world.registers.look(key, waiter, TIMEOUT)
    assert (await world.registers.look(key, "ab", TIMEOUT)).standing is Standing.WAITING
    assert (await world.registers.look(key, "cab", TIMEOUT)).standing is Standing.NOTIFIED
    assert (await world.registers.look(key, "b", TIMEOUT)).standing is Standing.WAITING
    assert (await world.registers.look(key, "a", TIMEOUT)).standing is Standing.NOT_QUEUED


@_case
async def a_notified_waiter_that_is_gone_leaves_an_orphan_to_the_others_of_its_condition(world: World) -> None:
    key = world.key()
    await world.enqueue(key, "empty=z9:W;full=gone:N,a1:W,absent:W,b2:W,here:N")
    look = world.registers.look
    for waiter in ("z9", "a1", "b2", "here"):
        await look(key, waiter, TIMEOUT)
    assert await look(key, "a1", TIMEOUT) == Look(Standing.WAITING, 0, orphan=True)
    assert await look(key, "b2", TIMEOUT) == Look(Standing.WAITING, 1, orphan=True), "the absent one does not count"
    assert await look(key, "here", TIMEOUT) == Look(Standing.NOTIFIED, 0, orphan=True)
    assert await look(key, "z9", TIMEOUT) == Look(Standing.WAITING), "another condition's waiter"


@_case
async def one_look_for_several_waiters_tells_the_same_as_one_for_each(world: World) -> None:
    key = world.key()
    asked = ["z9", "a1", "b2", "here", "stranger", "full", "1"]
    queues = ["", "empty=z9:W;full=a1:W,b2:W,here:W", "empty=z9:W;full=a1:W,b2:W,here:N"]
    for queue in [*queues, "empty=z9:W;full=gone:N,a1:W,absent:W,b2:W,here:N", queues[1]]:
        await world.enqueue(key, queue)
        for _ in range(2):  # an engine may remember what it has seen
            together = await world.registers.look_all(key, asked, TIMEOUT)
            alone = {waiter: await world.registers.look(key, waiter, TIMEOUT) for waiter in asked}
            found = {waiter: together.get(waiter, Look(Standing.NOT_QUEUED)) for waiter in asked}
            assert {waiter: look.standing for waiter, look in found.items()} == {
                waiter: look.standing for waiter, look in alone.items()
            }
            assert [look for look in found.values() if look.orphan] == [look for look in alone.values() if look.orphan]


@_case
async def one_look_for_many_waiters_makes_them_all_present(world: World) -> None:
    key = world.key()
    many = [f"{number:016x}" for number in range(300)]
    await world.enqueue(key, "full=" + ",".join(f"{waiter}:W" for waiter in many))
    looks = await world.registers.look_all(key, many[:3], TIMEOUT)
    assert {looks[waiter].standing for waiter in many[:3]} == {Standing.WAITING}
    assert (await world.others.peek(key, TIMEOUT)).present == set(many[:3])
    for _ in range(2):
        looks = await world.registers.look_all(key, many, TIMEOUT)
        assert {looks[waiter].standing for waiter in many} == {Standing.WAITING}
    assert (await world.others.peek(key, TIMEOUT)).present == set(many)


@_case
async def the_own_notification_is_no_orphan(world: World) -> None:
    key = world.key()
    await world.enqueue(key, "full=a1:N")
    assert await world.registers.look(key, "a1", TIMEOUT) == Look(Standing.NOTIFIED)


# -- wake-ups ------------------------------------------------------------------------------------------------------


@_case
async def a_wake_up_reaches_the_listener_of_that_waiter_and_no_other(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W,w2:W")
    listener, other = world.others.listener(key, "w1"), world.others.listener(key, "w2")
    await listener.arm()
    await other.arm()
    assert await world.registers.store(key, guard, version, TIMEOUT, queue="=w1:N,w2:W", wake=["w1"]) == version + 1
    await world.is_woken(listener)
    await world.is_not_woken(other)
    listener.close()
    listener.close()
    other.close()


@_case
async def a_listener_is_woken_again_and_again(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    listener = world.others.listener(key, "w1")
    await listener.arm()
    for each in range(version, version + 3):
        assert await world.registers.store(key, guard, each, TIMEOUT, wake=["w1"]) == each + 1
        await world.is_woken(listener)
    listener.close()


@_case
async def a_wake_up_before_the_sleep_is_not_missed(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    listener = world.registers.listener(key, "w1")
    await listener.arm()
    await listener.arm()
    await world.is_not_woken(listener)
    assert await world.others.store(key, guard, version, TIMEOUT, wake=["x", "w1", "y"]) == version + 1
    await world.is_woken(listener)
    listener.close()


@_case
async def an_ended_wait_returns_once_and_loses_no_wake_up(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    listener = world.registers.listener(key, "w1")
    await listener.arm()
    listener.end_wait()
    await world.is_woken(listener)
    await world.is_not_woken(listener)
    assert await world.others.store(key, guard, version, TIMEOUT, wake=["w1"]) == version + 1
    if world.has_tasks:
        await asyncio.sleep(_A_MOMENT)  # it has arrived
    listener.end_wait()
    await world.is_woken(listener)
    await world.is_woken(listener)
    listener.close()
    listener.end_wait()


@_case
async def the_wait_of_a_task_can_be_ended_while_it_sleeps(world: World) -> None:
    if not world.has_tasks:
        return
    key = world.key()
    await world.enqueue(key, "=w1:W")
    listener = world.registers.listener(key, "w1")
    await listener.arm()
    for _ in range(3):
        sleeps = asyncio.create_task(world.is_woken(listener))
        await asyncio.sleep(_A_MOMENT)
        assert not sleeps.done()
        listener.end_wait()
        await sleeps
    listener.close()


@_case
async def a_refused_store_wakes_no_waiter(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    listener = world.others.listener(key, "w1")
    await listener.arm()
    assert isinstance(await world.registers.store(key, guard, version - 1, TIMEOUT, wake=["w1"]), Stale)
    await world.is_not_woken(listener)
    listener.close()


@_case
async def a_listener_for_all_changes_is_woken_by_stores_and_swaps(world: World) -> None:
    key, elsewhere = world.key("barrier"), world.key("latch", "2")
    listener, apart = world.others.listener(key, None), world.others.listener(elsewhere, None)
    await listener.arm()
    await apart.arm()
    assert (await world.registers.swap(key, 0, b"1", TIMEOUT)).version == 1
    await world.is_woken(listener)
    assert (await world.registers.swap(key, 1, b"2", TIMEOUT)).version == 2
    await world.is_woken(listener)
    guard, _ = await world.enter(key)
    assert await world.registers.store(key, guard, 2, TIMEOUT, value=b"3") == 3
    await world.is_woken(listener)
    await world.is_not_woken(apart)
    listener.close()
    apart.close()


@_case
async def a_closed_listener_is_not_needed_any_more(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    unarmed, closed, listener = (world.registers.listener(key, "w1") for _ in range(3))
    unarmed.close()
    await closed.arm()
    closed.close()
    await listener.arm()
    assert await world.registers.store(key, guard, version, TIMEOUT, wake=["w1"]) == version + 1
    await world.is_woken(listener)
    listener.close()


# -- swaps ---------------------------------------------------------------------------------------------------------


@_case
async def one_of_two_swaps_wins(world: World) -> None:
    key = world.key("barrier")
    assert await world.registers.swap(key, 0, b"first", TIMEOUT) == Cell(b"first", "", 1)
    assert await world.others.swap(key, 0, b"second", TIMEOUT) == Cell(b"first", "", 1)
    assert await world.others.swap(key, 1, b"second", TIMEOUT) == Cell(b"second", "", 2)
    assert await world.registers.swap(key, 0, b"first", TIMEOUT) == Cell(b"second", "", 2), "a late duplicate"


@_case
async def a_repeated_swap_finds_what_it_wrote(world: World) -> None:
    key = world.key("barrier")
    for _ in range(2):
        assert await world.registers.swap(key, 0, b"mine", TIMEOUT) == Cell(b"mine", "", 1)


@_case
async def a_swap_changes_neither_guard_nor_queue(world: World) -> None:
    key = world.key()
    guard, version = await world.enqueue(key, "=w1:W")
    cell = await world.others.swap(key, version, b"swapped", TIMEOUT)
    assert cell == Cell(b"swapped", "=w1:W", version + 1)
    assert await world.registers.store(key, guard, version, TIMEOUT, value=b"late") == Stale(guard.token, version + 1)
    assert await world.registers.store(key, guard, version + 1, TIMEOUT, value=b"stored") == version + 2
