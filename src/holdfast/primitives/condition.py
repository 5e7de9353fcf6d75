"""Condition variables: ``client.condition(lock)``. Callers of any process give up the lock and wait for a notify.

``aio/condition.py`` has the async API.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from holdfast._config.durations import Duration, check_timeout
from holdfast._core.core import Core
from holdfast._core.hold import Hold
from holdfast._core.policy import Policy
from holdfast._runtime.blocking import run
from holdfast.base_client import BaseClient
from holdfast.client import Client, Lock
from holdfast.engines.base import READ, WRITE, Kind
from holdfast.engines.registers import RegisterKey
from holdfast.errors import InvalidName, NotHeld, UsageError
from holdfast.lease import NotPortable
from holdfast.primitives import condition_queue, waiting
from holdfast.primitives.guarded_register import GuardedRegister, registers_of
from holdfast.primitives.shared_state import check_registers

T = TypeVar("T")

#: It is a part of the queue's text.
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{0,64}")


def held_by_caller(core: Core, policy: Policy) -> Hold:
    """The hold by which the running caller has the lock. NotHeld, or LockLost if it has just been lost."""
    hold = core.hold_of_caller(policy) or core.hold_of_block(policy)
    if hold is not None and hold.held:
        return hold
    if hold is not None and hold.reason is not None:
        raise hold.loss(hold.reason)
    if not core.grants_on(policy.key):
        raise NotHeld(f"{policy.title} is not held by this caller: acquire it first", name=policy.name)
    raise NotHeld(
        f"{policy.title} is not held by this caller, but by another task or thread of this client. (If this task has "
        "its lease: asyncio.wait_for may have acquired it in another task. Use acquire(timeout=...), or enter the "
        "lease by 'async with lease:'.)",
        name=policy.name,
    )


def refuse_nested_read(core: Core, hold: Hold) -> None:
    """A caller that also reads would wait for itself when it comes back."""
    if hold.policy.mode is WRITE and core.held_by(hold.policy.place_of(READ), hold.caller):
        raise UsageError(
            f"{hold.policy.title}: this caller also holds the read lock: release that before it waits",
            name=hold.policy.name,
        )


def check_name(name: Any) -> str:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidName(
            f"{name!r} cannot name a condition: use at most 64 letters, digits, dots, hyphens and underscores"
        )
    return name


def checked_count(count: int) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"the number of waiters to notify is a {type(count).__name__}, not an int")
    if count < 0:
        raise ValueError(f"the number of waiters to notify is negative: {count}")
    return count


async def satisfied(
    now: Callable[[], float],
    predicate: Callable[[], T],
    timeout: float | None,
    wait: Callable[[float | None], Coroutine[Any, Any, bool]],
) -> T:
    """Wait until ``predicate()`` is true; its last value, which is false if ``timeout`` has passed."""
    deadline = None if timeout is None else now() + timeout
    while not (value := predicate()):
        left = None if deadline is None else deadline - now()
        if left is not None and left <= 0:
            break
        await wait(left)
    if inspect.isawaitable(value):
        if inspect.iscoroutine(value):
            value.close()  # it will never be awaited, and is not to be warned of
        raise UsageError("the predicate of wait_for is a coroutine function: give a function that returns the answer")
    return value


class BaseCondition(NotPortable):
    """What Condition and AsyncCondition share."""

    _remedy = "pass the URL and the names of lock and condition, and make it there"

    def __init__(self, client: BaseClient, lock: Any, name: Any, kind: type[Any]) -> None:
        if not isinstance(lock, kind):
            raise UsageError(f"a condition needs a {kind.__name__}, not a {type(lock).__name__}")
        if lock._client is not client:
            raise UsageError(f"a condition needs a lock of its own client, not {lock!r}", name=lock.name)
        self._policy: Policy = lock._policy
        check_registers(client, f"condition of {self._policy.noun}", lock.name)
        if self._policy.mode.shared or self._policy.mode.kind is Kind.SEMAPHORE:
            raise UsageError(
                f"{self._policy.title} has several holders: a condition needs an exclusive lock or a write lock",
                name=lock.name,
            )
        if not self._policy.reentrant:
            raise UsageError(
                f"{self._policy.title} has reentrant=False: a condition could not know which of its holders calls it",
                name=lock.name,
            )
        self._name = check_name(name)
        self._key = RegisterKey(self._policy.key, f"condition:{name}")

    @property
    def name(self) -> str:
        """The condition's name; a lock may have several conditions."""
        return self._name

    def _held(self, core: Core) -> GuardedRegister:
        return registers_of(core, held_by_caller(core, self._policy)).register(self._key)

    async def _wait(self, core: Core, timeout: float | None) -> bool:
        register = self._held(core)
        refuse_nested_read(core, register.hold)
        return await waiting.wait(core, register, self._name, timeout)

    async def _notify(self, core: Core, count: int | None) -> None:
        register = self._held(core)
        await register.load()
        register.apply(condition_queue.notify(register.queue, self._name, count, register.mine))
        if register.changed:
            await register.store(register.written())

    def __repr__(self) -> str:
        name = f" {self._name!r}" if self._name else ""
        return f"<{type(self).__name__}{name} of {self._policy.title}>"


class Condition(BaseCondition):
    """A condition variable of a lock. Its waiters may be in any process; it is made by ``client.condition(lock)``."""

    def __init__(self, client: Client, lock: Lock, name: str) -> None:
        super().__init__(client, lock, name, Lock)
        self._client = client

    def wait(self, timeout: Duration | None = None) -> bool:
        """Give up the held lock, wait for a notify, and take the lock again. True if notified, False at the timeout.

        All leases of the caller on this lock are not ``held`` meanwhile; afterwards they have a new token. May return
        True though nothing has changed: check again, or use ``wait_for``. The time to come back is not limited by
        ``timeout``. If interrupted, the lock is not taken again: its leases have ended as released.

        Raises NotHeld, LockLost, EngineUnavailable (its leases have ended if the lock had been given up) or
        OutcomeUnknown.
        """
        return run(self._wait(self._client._open(), check_timeout(timeout)))

    def wait_for(self, predicate: Callable[[], T], timeout: Duration | None = None) -> T:
        """Wait until ``predicate()`` is true, and return its value; a false one if ``timeout`` has passed."""
        core = self._client._open()
        self._held(core)
        seconds = check_timeout(timeout)
        return run(satisfied(core.front.now, predicate, seconds, lambda left: self._wait(core, left)))

    def notify(self, n: int = 1) -> None:
        """Wake ``n`` waiters, if there are so many. The caller must hold the lock, and goes on."""
        run(self._notify(self._client._open(), checked_count(n)))

    def notify_all(self) -> None:
        """Wake all waiters. The caller must hold the lock, and goes on."""
        run(self._notify(self._client._open(), None))
