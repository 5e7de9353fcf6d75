"""One look for all waiters of a client: for those that run, and for no others; and what becomes of it when it fails."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import pytest

import holdfast
from holdfast._core import states
from holdfast._core.shared_looks import ALIVE, SharedLooks
from holdfast._core.states import Life
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.base import Runtime
from holdfast._runtime.blocking import BLOCKING, run
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Look, RegisterKey, Registers, Standing
from tests.support.register_contract import engine_at

KEY: Final = RegisterKey("a", "condition:")
TIMEOUT: Final = 20.0
NEVER: Final = float("-inf")


class Counted:
    """The registers of a new store. Looks can be held up, and made to fail."""

    def __init__(self, runtime: Runtime) -> None:
        self._registers: Registers = engine_at(f"memory:{uuid.uuid4().hex}").session(runtime).registers  # type: ignore[assignment]
        self.asked: list[set[str]] = []
        self.held_up: asyncio.Event | None = None
        self.failure: RequestFailed | None = None

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        self.asked.append(set(waiters))
        if self.held_up is not None:
            await self.held_up.wait()
        if self.failure is not None:
            raise self.failure
        return await self._registers.look_all(key, waiters, timeout)

    @property
    def present(self) -> set[str]:
        return set(run(self._registers.peek(KEY, TIMEOUT)).present)


class Sleep:
    """A listener that counts how often its wait was ended."""

    def __init__(self) -> None:
        self.ended = 0

    def end_wait(self) -> None:
        self.ended += 1


@contextmanager
def sleeping(looks: SharedLooks, key: RegisterKey, waiter: str, sleep: Any = None) -> Iterator[Any]:
    hold = Life()
    hold.state = states.PARKED
    listener: Any = Sleep() if sleep is None else sleep
    with looks.sleeping(key, waiter, hold, listener) as sleeper:
        yield sleeper


def look(looks: SharedLooks, registers: Any, sleeper: Any, since: float = NEVER, timeout: float = TIMEOUT) -> Any:
    return looks.look(registers, KEY, sleeper, since, timeout)


def test_a_thread_that_shows_no_sign_of_life_is_not_looked_for() -> None:
    looks, registers = SharedLooks(BLOCKING), Counted(BLOCKING)
    with sleeping(looks, KEY, "runs") as runs, sleeping(looks, KEY, "hangs") as hangs:
        hangs.alive -= 2 * ALIVE
        run(look(looks, registers, runs))
        assert registers.present == {"runs"}
        assert hangs.answer.asked == NEVER
        run(look(looks, registers, hangs))  # it has returned
        assert registers.present == {"runs", "hangs"}


def test_a_waiter_that_has_left_is_not_looked_for() -> None:
    looks, registers = SharedLooks(BLOCKING), Counted(BLOCKING)
    with sleeping(looks, KEY, "stays") as stays:
        with pytest.raises(KeyboardInterrupt), sleeping(looks, KEY, "leaves"):
            raise KeyboardInterrupt
        with sleeping(looks, KEY._replace(part="condition:other"), "elsewhere"):
            run(look(looks, registers, stays))
    assert registers.asked == [{"stays"}]


def test_waiters_that_are_due_together_send_one_request() -> None:
    async def main() -> None:
        looks, registers = SharedLooks(AsyncioRuntime()), Counted(AsyncioRuntime())
        with sleeping(looks, KEY, "a") as a, sleeping(looks, KEY, "b") as b, sleeping(looks, KEY, "c") as c:
            b.alive -= 2 * ALIVE  # tasks of one loop run, or hang, together: it counts for threads
            first, second = await asyncio.gather(look(looks, registers, a), look(looks, registers, b))
            assert registers.asked == [{"a", "b", "c"}]
            assert first.asked == second.asked == c.answer.asked
            assert await look(looks, registers, c) == c.answer
            assert len(registers.asked) == 1, "the answer was there"
            assert (await look(looks, registers, c, since=first.asked)).asked > first.asked
            assert len(registers.asked) == 2

    asyncio.run(main())


def test_a_request_that_fails_has_failed_for_all_that_wait_for_it() -> None:
    async def main() -> None:
        looks, registers = SharedLooks(AsyncioRuntime()), Counted(AsyncioRuntime())
        registers.held_up, registers.failure = asyncio.Event(), RequestFailed("cut", may_have_happened=True)
        with sleeping(looks, KEY, "a") as a, sleeping(looks, KEY, "b") as b:
            both = asyncio.gather(look(looks, registers, a), look(looks, registers, b), return_exceptions=True)
            await asyncio.sleep(0)
            registers.held_up.set()
            assert [str(each) for each in await both] == ["cut", "cut"]
            assert len(registers.asked) == 1
            registers.failure = None
            assert (await look(looks, registers, b)).asked > NEVER

    asyncio.run(main())


def test_a_waiter_cancelled_while_it_asks_leaves_that_to_the_next_one() -> None:
    async def main() -> None:
        looks, registers = SharedLooks(AsyncioRuntime()), Counted(AsyncioRuntime())
        held_up = registers.held_up = asyncio.Event()

        async def wait(waiter: str) -> Any:
            with sleeping(looks, KEY, waiter) as sleeper:
                await asyncio.sleep(0)
                return await look(looks, registers, sleeper)

        first, second = asyncio.create_task(wait("a")), asyncio.create_task(wait("b"))
        while not registers.asked:
            await asyncio.sleep(0)
        first.cancel()
        held_up.set()
        assert (await second).asked > NEVER
        assert registers.asked == [{"a", "b"}, {"b"}]

    asyncio.run(main())


def test_a_waiter_that_hangs_while_it_asks_delays_the_others_for_one_timeout_only() -> None:
    async def main() -> None:
        looks, registers = SharedLooks(AsyncioRuntime()), Counted(AsyncioRuntime())
        registers.held_up = asyncio.Event()
        with sleeping(looks, KEY, "a") as a, sleeping(looks, KEY, "b") as b:
            hangs = asyncio.create_task(look(looks, registers, a))
            await asyncio.sleep(0)
            registers.held_up = None
            assert (await look(looks, registers, b, timeout=0.05)).asked > NEVER
            assert not hangs.done()
            hangs.cancel()

    asyncio.run(main())


def test_nothing_is_kept_of_waiters_that_have_left() -> None:
    async def main() -> None:
        async with holdfast.aio.connect(f"memory:{uuid.uuid4().hex}") as client:
            lock = client.lock("a")
            for _ in range(3):
                async with lock:
                    assert not await client.condition(lock).wait(0.01)
            looks = client._open().looks
            assert not looks._sleepers
            assert not looks._leaders
            assert not looks._rounds

    asyncio.run(main())


class Group:
    """Three tasks that sleep. ``first`` came first, and leads."""

    def __init__(self, exits: ExitStack) -> None:
        runtime = AsyncioRuntime()
        self.looks, self.registers = SharedLooks(runtime), Standings(runtime)
        self.sleeps = [Sleep() for _ in range(3)]
        self.exits = [exits.enter_context(ExitStack()) for _ in range(3)]
        self.first, self.second, self.third = (
            each.enter_context(sleeping(self.looks, KEY, waiter, sleep))
            for each, waiter, sleep in zip(self.exits, ("first", "second", "third"), self.sleeps, strict=True)
        )
        assert self.leaders() == ["first"]

    def leaders(self) -> list[str]:
        now = self.first.alive
        everyone = (self.first, self.second, self.third)
        return [each.waiter for each in everyone if self.looks.wake_at(KEY, each, now) < now + 1.5]

    def called(self) -> list[int]:
        called = [each.ended for each in self.sleeps]
        for each in self.sleeps:
            each.ended = 0
        return called

    async def look(self) -> None:
        await look(self.looks, self.registers, self.first, since=self.first.answer.asked)


class Standings(Counted):
    """All wait, but for what a test says."""

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self.others: dict[str, Look] = {}

    async def look_all(self, key: RegisterKey, waiters: Collection[str], timeout: float) -> Mapping[str, Look]:
        await super().look_all(key, waiters, timeout)
        return {each: self.others.get(each, Look(Standing.WAITING, 7)) for each in waiters}


def in_a_group(case: Any) -> None:
    async def main() -> None:
        with ExitStack() as exits:
            await case(Group(exits))

    asyncio.run(main())


def test_a_look_calls_only_tasks_that_have_something_to_do() -> None:
    async def case(group: Group) -> None:
        await group.look()
        await group.look()
        assert group.called() == [0, 0, 0], "they wait on"
        group.registers.others = {"second": Look(Standing.NOTIFIED)}
        await group.look()
        assert group.called() == [0, 1, 0]
        group.registers.others = {"third": Look(Standing.NOT_QUEUED)}
        await group.look()
        assert group.called() == [0, 0, 1]
        assert group.third.was_called()
        assert not group.third.was_called()
        group.registers.others = {"second": Look(Standing.WAITING, orphan=True)}
        await group.look()
        assert group.called() == [0, 1, 0]
        group.registers.others = {}
        await group.look()
        assert group.called() == [0, 1, 0], "there is no orphan any more"
        group.second.hold.advance(states.LOSE)
        await group.look()
        assert group.called() == [0, 1, 0], "its hold has ended"

    in_a_group(case)


def test_a_leader_that_leaves_makes_the_last_one_that_came_the_leader() -> None:
    async def case(group: Group) -> None:
        await group.look()
        asked = group.third.answer.asked
        group.exits[0].close()
        assert group.called() == [0, 0, 1]
        assert group.leaders() == ["third"]
        assert asked + 1.0 <= group.third.due <= asked + 1.25, "it looks when the one before it would have"
        group.exits[1].close()
        assert group.called() == [0, 0, 0]
        group.exits[2].close()
        assert not group.looks._leaders

    in_a_group(case)


def test_after_a_failed_look_each_task_looks_until_one_is_answered() -> None:
    async def case(group: Group) -> None:
        group.registers.failure = RequestFailed("cut", may_have_happened=True)
        with pytest.raises(RequestFailed):
            await group.look()
        assert group.called() == [1, 1, 1]
        now = group.looks._runtime.now()
        assert all(group.looks.is_due(KEY, each, now) for each in (group.first, group.second, group.third))
        group.registers.failure = None
        await look(group.looks, group.registers, group.second)
        assert group.leaders() == ["first"]

    in_a_group(case)


def test_a_leader_that_was_interrupted_when_it_left_is_replaced() -> None:
    async def case(group: Group) -> None:
        group.first._listener = lambda: None  # it is garbage, as its call is
        assert group.looks.wake_at(KEY, group.second, group.second.alive) == group.second.due
        assert group.looks.wake_at(KEY, group.third, group.third.alive) > group.third.due
        await look(group.looks, group.registers, group.second)
        assert group.registers.asked == [{"second", "third"}]

    in_a_group(case)


def test_threads_all_look_and_are_never_called() -> None:
    looks, registers = SharedLooks(BLOCKING), Counted(BLOCKING)
    sleeps = [Sleep(), Sleep()]
    with sleeping(looks, KEY, "a", sleeps[0]) as a, sleeping(looks, KEY, "b", sleeps[1]) as b:
        run(look(looks, registers, a))
        assert all(looks.is_due(KEY, each, each.due) for each in (a, b))
        assert all(looks.wake_at(KEY, each, each.alive) <= each.alive + ALIVE for each in (a, b))
        registers.failure = RequestFailed("cut", may_have_happened=True)
        with pytest.raises(RequestFailed):
            run(look(looks, registers, b, since=a.answer.asked))
    assert [each.ended for each in sleeps] == [0, 0]
