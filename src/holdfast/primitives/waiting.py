"""Waiting for a condition: give up the lock, sleep until notified, take the lock again.

The order keeps every notification: listen; enter the queue, under the lock; give up the lock; sleep. A notify that
comes after the lock was given up finds the entry, and its wake-up finds the listener. The wake-up is only a hint: about
once a second the waiter looks, or another one of its client looks for it, which also shows that it is present (see
``_core/shared_looks.py``). What a time-out means is decided under the lock again.
"""

from __future__ import annotations

import random
import secrets
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

from holdfast._core import parking, retry
from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast._core.shared_looks import Answer, Sleeper
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import RegisterListener
from holdfast.engines.waiter_queue import WAITING
from holdfast.errors import EngineError, LockError, UsageError
from holdfast.primitives import condition_queue
from holdfast.primitives.guarded_register import GuardedRegister, registers_of

#: After a wake-up for nothing, no second one counts for this long: a broken listener must not cause a storm of looks.
_AFTER_NOTHING: Final = 0.02


def wait(
    core: Core, register: GuardedRegister, condition: str, timeout: float | None, value: bytes | None = None
) -> Coroutine[Any, Any, bool]:
    """Wait until ``condition`` is notified: True; False if ``timeout`` has passed. The lock is held before and after.

    ``value`` is stored before the lock is given up. Afterwards the register is loaded. If it is cancelled or
    interrupted, the lock is not held any more, and its leases have ended as released.
    """
    hold = register.hold
    if hold in core.waiting:
        raise UsageError(
            f"{hold.policy.title}: this caller is in a wait() for a condition of it already; a signal handler that "
            "interrupts a wait() cannot wait for a condition of the same lock",
            name=hold.policy.name,
        )
    coroutine = _wait(core, register, condition, timeout, value)
    core.waiting.begin(hold, weakref.ref(coroutine, core.waiting.on_garbage))
    return coroutine


async def _wait(
    core: Core, register: GuardedRegister, condition: str, timeout: float | None, value: bytes | None
) -> bool:
    hold = register.hold
    waiter = _Waiter(core, register, timeout)
    try:
        try:
            woken = await waiter.run(condition, value)
        finally:
            waiter.listener.close()
    except LockError:
        core.waiting.end(hold)
        raise
    except BaseException:
        parking.end(core, hold)
        core.waiting.end(hold)
        raise
    core.waiting.end(hold)
    return woken


class _Waiter:
    """One call of ``wait``: one entry in the queue."""

    def __init__(self, core: Core, register: GuardedRegister, timeout: float | None) -> None:
        self._core = core
        self._register = register
        self._hold: Final[Hold] = register.hold
        self._me = secrets.token_hex(8)
        self._deadline = float("inf") if timeout is None else core.front.now() + timeout
        self._timeout = register.hold.policy.request_timeout
        self.listener: Final[RegisterListener] = register.registers.listener(register.key, self._me)

    async def run(self, condition: str, value: bytes | None) -> bool:
        core, register, hold, me = self._core, self._register, self._hold, self._me
        await self._listen()
        await registers_of(core, hold).settle(failed=False, but=register)
        await register.load()
        register.leave_queue()
        register.apply(condition_queue.join(register.queue, condition, me))
        await register.store(register.written(value), join=me)
        while True:
            await parking.away(core, hold, self._sleep, self._stay_present)
            register.mine = {me}  # whatever becomes of the load: it leaves the queue with this critical section
            await register.load()
            if condition_queue.mark_of(register.queue, me) != WAITING:
                return True
            if core.front.now() >= self._deadline:
                register.leave_queue()  # with the next store
                return False
            # It came for the notification of a waiter that is gone, and others have passed that on: wait again.
            register.mine = set()
            await register.store(register.written(), join=me)

    async def _listen(self) -> None:
        core, policy = self._core, self._hold.policy

        def give_up(failure: RequestFailed) -> Exception:
            message = f"{policy.title}: {core.engine!r} could not be listened to: {failure}"
            return retry.unavailable(message, failure, name=policy.name)

        limit = core.front.now() + core.options.unavailable_after
        await retry.until_answered(core.front, self.listener.arm, limit, give_up, random.random)

    async def _sleep(self) -> None:
        """Until it is notified, until its time is over, or until it has to pass on the notification of another one."""
        with self._core.looks.sleeping(self._register.key, self._me, self._hold, self.listener) as sleeper:
            await self._sleep_as(sleeper)

    async def _sleep_as(self, sleeper: Sleeper) -> None:
        front, orphaned_looks, woken_for_nothing = self._core.front, 0, 0.0
        looks, key = self._core.looks, self._register.key
        asked = front.now()
        while (now := front.now()) < self._deadline:
            parking.check(self._hold)
            sleeper.alive = now
            until = min(looks.wake_at(key, sleeper, now), self._deadline)
            await self.listener.wait(until)
            now = front.now()
            woken = not sleeper.was_called() and now < until
            if woken:
                if now < woken_for_nothing + _AFTER_NOTHING:
                    await front.sleep_until(woken_for_nothing + _AFTER_NOTHING)
                asked, look = await self._look_alone()
            elif sleeper.answer.asked > asked:
                asked, look = sleeper.answer
            elif looks.is_due(key, sleeper, now):
                asked, look = await self._look(sleeper, asked)
            else:
                continue
            orphaned_looks = orphaned_looks + 1 if look.orphan else 0
            if condition_queue.is_over(look, orphaned_looks):
                return
            woken_for_nothing = front.now() if woken else 0.0
            if not woken:  # else the others have not been looked for
                sleeper.looked(asked)

    async def _look(self, sleeper: Sleeper, since: float) -> Answer:
        """Together with the other waiters of this client."""
        core, register = self._core, self._register
        look = partial(core.looks.look, register.registers, register.key, sleeper, since, self._timeout)
        return await self._answered(look)

    async def _look_alone(self) -> Answer:
        async def look() -> Answer:
            asked, key = self._core.front.now(), self._register.key
            try:
                return Answer(asked, await self._register.registers.look(key, self._me, self._timeout))
            except RequestFailed:
                self._core.looks.failed(key)
                raise

        return await self._answered(look)

    async def _answered(self, look: Callable[[], Awaitable[Answer]]) -> Answer:
        core, policy = self._core, self._hold.policy

        async def request() -> Answer:
            parking.check(self._hold)
            return await look()

        def give_up(failure: RequestFailed) -> Exception:
            message = f"{policy.title}: {core.engine!r} could not serve a waiter: {failure}"
            return retry.unavailable(message, failure, name=policy.name)

        limit = min(core.front.now() + core.options.unavailable_after, self._deadline)
        return await retry.until_answered(core.front, request, limit, give_up, random.random)

    async def _stay_present(self) -> None:
        """While it waits for the lock. If it fails, the acquire tells why."""
        with suppress(RequestFailed, EngineError):
            await self._register.registers.look(self._register.key, self._me, self._timeout)
