"""Waiting for a condition: give up the lock, sleep until notified, take the lock again.

The order keeps every notification: listen; enter the queue, under the lock; give up the lock; sleep. A notify that
comes after the lock was given up finds the entry, and its wake-up finds the listener. The wake-up is only a hint: the
waiter looks about once a second, which also shows that it is present. What a time-out means is decided under the lock
again.
"""

from __future__ import annotations

import random
import secrets
from contextlib import suppress
from typing import Final

from holdfast._core import parking, retry
from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast.engines.base import RequestFailed
from holdfast.engines.registers import Listener, Look
from holdfast.engines.waiter_queue import WAITING
from holdfast.errors import EngineError, LockError
from holdfast.primitives import condition_queue
from holdfast.primitives.guarded_register import GuardedRegister, registers_of

#: A waiter looks again after one to one and a half times this many seconds.
_LOOK: Final = 1.0
#: Upper bound of one sleep: a client that closes waits for its callers to notice, and has a second for everything.
_LONGEST_SLEEP: Final = 0.5
#: After a wake-up for nothing, no second one counts for this long: a broken listener must not cause a storm of looks.
_AFTER_NOTHING: Final = 0.02


async def wait(
    core: Core, register: GuardedRegister, condition: str, timeout: float | None, value: bytes | None = None
) -> bool:
    """Wait until ``condition`` is notified: True; False if ``timeout`` has passed. The lock is held before and after.

    ``value`` is stored before the lock is given up. Afterwards the register is loaded. If it is cancelled or
    interrupted, the lock is not held any more, and its leases have ended as released.
    """
    waiter = _Waiter(core, register, timeout)
    try:
        return await waiter.run(condition, value)
    except LockError:
        raise
    except BaseException:
        parking.end(core, register.hold)
        raise
    finally:
        waiter.listener.close()


class _Waiter:
    """One call of ``wait``: one entry in the queue."""

    def __init__(self, core: Core, register: GuardedRegister, timeout: float | None) -> None:
        self._core = core
        self._register = register
        self._hold: Final[Hold] = register.hold
        self._me = secrets.token_hex(8)
        self._deadline = float("inf") if timeout is None else core.front.now() + timeout
        self._timeout = register.hold.policy.request_timeout
        self.listener: Final[Listener] = register.registers.listener(register.key, self._me)

    async def run(self, condition: str, value: bytes | None) -> bool:
        core, register, hold, me = self._core, self._register, self._hold, self._me
        await self._listen()
        await registers_of(core, hold).settle(failed=False, but=register)
        await register.load()
        register.leave_queue()
        register.apply(condition_queue.join(register.queue, condition, me))
        await register.store(value=value, join=me)
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
            await register.store(join=me)

    async def _listen(self) -> None:
        core, name = self._core, self._hold.policy.name

        def give_up(failure: RequestFailed) -> Exception:
            message = f"lock {name!r}: {core.engine!r} could not be listened to: {failure}"
            return retry.unavailable(message, failure, name=name)

        limit = core.front.now() + core.options.unavailable_after
        await retry.until_answered(core.front, self.listener.arm, limit, give_up, random.random)

    async def _sleep(self) -> None:
        """Until it is notified, until its time is over, or until it has to pass on the notification of another one."""
        front, orphaned_looks, woken_for_nothing = self._core.front, 0, 0.0
        due = self._next_look()
        while (now := front.now()) < self._deadline:
            parking.check(self._hold)
            until = min(due, self._deadline, now + _LONGEST_SLEEP)
            await self.listener.wait(until)
            now = front.now()
            woken = now < until
            if not woken and now < due:
                continue
            if woken and now < woken_for_nothing + _AFTER_NOTHING:
                await front.sleep_until(woken_for_nothing + _AFTER_NOTHING)
            look = await self._look()
            orphaned_looks = orphaned_looks + 1 if look.orphan else 0
            if condition_queue.is_over(look, orphaned_looks):
                return
            due = self._next_look()
            woken_for_nothing = front.now() if woken else 0.0

    def _next_look(self) -> float:
        return self._core.front.now() + _LOOK * (1 + random.random() / 2)

    async def _look(self) -> Look:
        core, name = self._core, self._hold.policy.name

        async def request() -> Look:
            parking.check(self._hold)
            return await self._register.registers.look(self._register.key, self._me, self._timeout)

        def give_up(failure: RequestFailed) -> Exception:
            message = f"lock {name!r}: {core.engine!r} could not serve a waiter: {failure}"
            return retry.unavailable(message, failure, name=name)

        limit = min(core.front.now() + core.options.unavailable_after, self._deadline)
        return await retry.until_answered(core.front, request, limit, give_up, random.random)

    async def _stay_present(self) -> None:
        """While it waits for the lock. If it fails, the acquire tells why."""
        with suppress(RequestFailed, EngineError):
            await self._register.registers.look(self._register.key, self._me, self._timeout)
