"""The async API: AsyncClient and AsyncLock; AsyncLease is in ``async_lease.py``. The same names as in the sync API.
What may do I/O is awaited."""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import sys
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, Never, Self, TypeVar, overload

from holdfast._config import foreign_keywords, names
from holdfast._config.durations import Duration, check_timeout
from holdfast._core import breaking, operators, semaphores
from holdfast._core.blocks import BlockExit, Blocks, exit_of_block
from holdfast._core.core import CLOSE_WITHIN, Core
from holdfast._core.direct_acquire import acquire
from holdfast._core.policy import Policy
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.callers import current_caller
from holdfast.async_lease import AsyncLease, AsyncLeaseBlock
from holdfast.async_lease import AsyncLoss as AsyncLoss
from holdfast.base_client import _DEFAULT, LOCK_KEYWORDS, SHARED_KEYWORDS, BaseClient
from holdfast.client import find_target
from holdfast.engines.base import READ, WRITE, LockState
from holdfast.engines.base import permits as permits_of
from holdfast.errors import AcquireTimeout
from holdfast.lease import NotPortable

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.connect_options import ConnectOptions, DriverClient
    from holdfast.decorator.options import LockedOptions, WaitOrRaise
    from holdfast.decorator.shapes import AsyncDecorator, AsyncSkippingDecorator, D, Key, Keys, LockedFunction, P, R
    from holdfast.primitives.aio.barrier import AsyncBarrier
    from holdfast.primitives.aio.condition import AsyncCondition
    from holdfast.primitives.aio.election import AsyncElection
    from holdfast.primitives.aio.latch import AsyncLatch
    from holdfast.primitives.aio.multi import AsyncMultiLease, AsyncMultiLock
    from holdfast.primitives.aio.semaphore import AsyncSemaphore
    from holdfast.primitives.rwlock import AsyncRWLock

__all__ = [
    "AsyncBarrier",
    "AsyncClient",
    "AsyncCondition",
    "AsyncElection",
    "AsyncLatch",
    "AsyncLease",
    "AsyncLock",
    "AsyncMultiLease",
    "AsyncMultiLock",
    "AsyncRWLock",
    "AsyncSemaphore",
    "connect",
]

# What is built on locks is loaded when it is first used.
_HOMES: Final = {
    "primitives.aio.condition": ("AsyncCondition",),
    "primitives.aio.barrier": ("AsyncBarrier",),
    "primitives.aio.election": ("AsyncElection",),
    "primitives.aio.latch": ("AsyncLatch",),
    "primitives.aio.multi": ("AsyncMultiLease", "AsyncMultiLock"),
    "primitives.aio.semaphore": ("AsyncSemaphore",),
    "primitives.rwlock": ("AsyncRWLock",),
}


def __getattr__(name: str) -> Any:
    for module, names_of_module in _HOMES.items():
        if name in names_of_module:
            value = globals()[name] = getattr(importlib.import_module(f"holdfast.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


L = TypeVar("L", bound=AsyncLeaseBlock)


class AsyncLockBlock(NotPortable, Generic[L]):
    """``async with lock as lease:``, for one lock and for several. Each block has a lease of its own."""

    def __init__(self, timeout: float | None) -> None:
        self._timeout = timeout  #: of ``async with``
        self._blocks: Blocks[L] = Blocks()

    async def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> L:
        """Wait for the lock, for at most ``timeout`` seconds, and return a new lease."""
        raise NotImplementedError

    async def try_acquire(self, *, timeout: Duration | None = 0, **foreign: Never) -> L | None:
        """As ``acquire``, but None instead of AcquireTimeout; one try by default."""
        if foreign:
            foreign_keywords.refuse_keywords("try_acquire", foreign, ("timeout",))
        try:
            return await self.acquire(timeout=timeout)
        except AcquireTimeout:
            return None

    def __aenter__(self) -> Coroutine[Any, Any, L]:
        return self._enter(self._blocks.entered(self, sys._getframe(1)))

    async def _enter(self, block: BlockExit[L] | None) -> L:
        lease = await self.acquire(timeout=self._timeout)
        lease._begin_body()  # with a check: it may have been lost on its way here, by break_
        if block is None:
            self._blocks.keep(current_caller(), lease)
        else:
            block.lease = lease
        return lease

    if TYPE_CHECKING:

        async def __aexit__(
            self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
        ) -> None: ...

    else:

        @exit_of_block
        async def __aexit__(self, kind, error, traceback, *, lease=None):
            lease = lease or self._blocks.leave(current_caller())
            if lease is not None:
                await lease.__aexit__(kind, error, traceback)

    if not TYPE_CHECKING:  # a type checker should see that there is no such attribute

        def __getattr__(self, attribute):
            raise foreign_keywords.missing_attribute(self, attribute)


class AsyncLock(AsyncLockBlock[AsyncLease]):
    """A name and a policy. Creating one does no I/O; tasks may share it. ``acquire`` returns leases."""

    def __init__(self, client: AsyncClient, policy: Policy) -> None:
        super().__init__(policy.timeout)
        self._client = client
        self._policy = policy

    @property
    def name(self) -> str:
        """The lock's name, without the namespace."""
        return self._policy.name

    async def acquire(self, *, timeout: Duration | None = None, **foreign: Never) -> AsyncLease:
        """Wait for the lock, for at most ``timeout`` seconds (None: for ever, 0: one try), and return a new lease.

        Raises AcquireTimeout if it stayed busy, EngineUnavailable if the engine cannot be reached, EngineRefused, or
        OutcomeUnknown. If cancelled, the claim is withdrawn, even if the event loop is closed.
        """
        if foreign:
            foreign_keywords.refuse_keywords("acquire", foreign, ("timeout",))
        core, policy, lease = self._client._open(), self._policy, AsyncLease()
        if timeout is not None:
            timeout = check_timeout(timeout)
        if not core.reenter(policy, lease):
            await acquire(core, policy, timeout, lease)
        return lease if policy.on_lost is None else lease._ready(policy.on_lost)

    async def inspect(self) -> LockState:
        """The lock's holders and its queue, as the engine saw them just now: ``client.inspect`` of its name."""
        return await operators.inspect(self._client._open(), self.name)

    async def locked(self) -> bool:
        """Whether the lock is held by any owner, as the engine saw it just now: one request.

        Not safe to decide by: the lock may change hands before the answer arrives. Use ``try_acquire`` for that.
        """
        return bool((await self.inspect()).holders)

    def __repr__(self) -> str:
        return f"<AsyncLock {self._policy.shown} of {self._client!r}>"


class AsyncClient(BaseClient):
    """A connection to a lock engine for one event loop, that of its first await. An async context manager."""

    def lock(
        self,
        name: str,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        fair: bool = False,
        reentrant: bool = True,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[AsyncLease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> AsyncLock:
        """The lock with this name. No I/O.

        ``ttl``: how long the lease lives without renewal. ``timeout``: how long ``async with`` waits. ``fair``:
        strictly first come, first served. ``max_hold``: stop renewing after this long. ``require``: guarantees that the
        engine must give.
        """
        if foreign:
            foreign_keywords.refuse_keywords("lock", foreign, LOCK_KEYWORDS)
        policy = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            fair=fair,
            reentrant=reentrant,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
        )
        return AsyncLock(self, policy)

    def rwlock(
        self,
        name: str,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[AsyncLease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> AsyncRWLock:
        """The read-write lock with this name: many readers or one writer. No I/O. Options as for ``lock``.

        Readers and writers queue in one order, so neither are starved.
        """
        from holdfast.primitives.rwlock import AsyncRWLock

        if foreign:
            foreign_keywords.refuse_keywords("rwlock", foreign, SHARED_KEYWORDS)
        read = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
            mode=READ,
        )
        return AsyncRWLock(AsyncLock(self, read), AsyncLock(self, dataclasses.replace(read, mode=WRITE)))

    def semaphore(
        self,
        name: str,
        permits: int,
        *,
        ttl: Duration = _DEFAULT,
        renew: bool = _DEFAULT,
        timeout: Duration | None = None,
        max_hold: Duration | None = None,
        replicas: int = _DEFAULT,
        on_lost: Callable[[AsyncLease], Any] | None = None,
        require: Collection[str] = (),
        **foreign: Never,
    ) -> AsyncSemaphore:
        """The semaphore with this name, which has ``permits`` when it is created. No I/O. Options as for ``lock``.

        The first acquire of any client creates it. Later the engine's number counts, which ``resize`` changes; a
        difference is logged once.
        """
        from holdfast.primitives.aio.semaphore import AsyncSemaphore

        if foreign:
            foreign_keywords.refuse_keywords("semaphore", foreign, SHARED_KEYWORDS)
        policy = self._policy(
            name,
            ttl=ttl,
            renew=renew,
            timeout=timeout,
            reentrant=False,
            max_hold=max_hold,
            replicas=replicas,
            on_lost=on_lost,
            require=require,
            mode=permits_of(1, semaphores.check_permits(permits, name)),
        )
        return AsyncSemaphore(self, policy)

    def multi(
        self,
        locks: Iterable[AsyncLock],
        *,
        timeout: Duration | None = _DEFAULT,
        on_lost: Callable[[AsyncMultiLease], Any] | None = None,
    ) -> AsyncMultiLock:
        """Several locks that are acquired together: all of them or none. No I/O.

        ``locks``: async locks of any clients and engines. They are acquired in one order, wherever they are used
        together, so callers that take overlapping sets do not deadlock. ``timeout``: how long ``async with`` waits for
        all of them; by default the shortest timeout of the locks. ``on_lost`` is called once, when the first of them is
        lost.
        """
        from holdfast.primitives.aio.multi import AsyncMultiLock  # imported here: few programs need it

        return AsyncMultiLock(locks, timeout, on_lost)

    def condition(self, lock: AsyncLock, name: str = "") -> AsyncCondition:
        """A condition variable of ``lock``; ``name`` tells the conditions of one lock apart. No I/O.

        The lock must be an exclusive lock, or a write lock, of this client; its engine must have registers
        (``guarantees.registers``).
        """
        from holdfast.primitives.aio.condition import AsyncCondition  # imported here: few programs need it

        return AsyncCondition(self, lock, name)

    def latch(self, name: str, count: int | None) -> AsyncLatch:
        """A latch: callers wait until it was counted down to zero. No I/O.

        ``count``: how often; it counts when the latch is first used, by any client. None: only use one that exists.
        Raises UsageError on an engine without registers.
        """
        from holdfast.primitives.aio.latch import AsyncLatch  # imported here: few programs need it

        return AsyncLatch(self, name, count)

    def barrier(self, name: str, parties: int) -> AsyncBarrier:
        """A member of a double barrier: ``parties`` members enter together, and leave together. No I/O.

        Each member makes an object of its own. Raises UsageError on an engine without registers or semaphores.
        """
        from holdfast.primitives.aio.barrier import AsyncBarrier  # imported here: few programs need it

        return AsyncBarrier(self, name, parties)

    def election(
        self,
        name: str,
        *,
        value: str | None = None,
        ttl: Duration = _DEFAULT,
        on_lost: Callable[[AsyncLease], Any] | None = None,
    ) -> AsyncElection:
        """An election: one of several candidates leads, in the order in which they came. No I/O.

        ``value``: what observers learn of this candidate, at most 256 characters. ``ttl`` and ``on_lost`` as for
        ``lock``. Raises UsageError on an engine without fair queues.
        """
        from holdfast.primitives.aio.election import AsyncElection  # imported here: few programs need it

        return AsyncElection(self, name, value, ttl, on_lost)

    @overload
    def locked(self, function: Callable[P, R], /) -> LockedFunction[P, R, AsyncLock]: ...  # type: ignore[overload-overlap]
    @overload
    def locked(
        self,
        template: Key = None,
        /,
        *,
        on_busy: Literal["skip"],
        default: None = None,
        **options: Unpack[LockedOptions],
    ) -> AsyncSkippingDecorator[None, AsyncLock]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
    ) -> AsyncSkippingDecorator[D, AsyncLock]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
    ) -> AsyncDecorator[AsyncLock]: ...
    @overload
    def locked(
        self,
        templates: Keys,
        /,
        *,
        on_busy: Literal["skip"],
        default: None = None,
        **options: Unpack[LockedOptions],
    ) -> AsyncSkippingDecorator[None, AsyncMultiLock]: ...
    @overload
    def locked(
        self, templates: Keys, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
    ) -> AsyncSkippingDecorator[D, AsyncMultiLock]: ...
    @overload
    def locked(
        self, templates: Keys, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
    ) -> AsyncDecorator[AsyncMultiLock]: ...
    def locked(
        self, template: Any = None, /, *, key: Any = None, on_busy: Any = "wait", default: Any = None, **options: Any
    ) -> Any:
        """Decorate a function so that each call holds a lock named by its arguments: ``@client.locked("{order.id}")``.

        ``key``: a template over the arguments (``{parameter.name[key]}``), a callable of the same arguments, or None
        for module.qualname; a list of these: each call holds all these locks, as ``multi`` does. The lock's name is
        ``prefix:key``. ``on_busy``: "wait" for ``timeout`` and raise AcquireTimeout, "raise" it after one try, or
        "skip" the call, which returns ``default``, is logged and counted.
        ``at_least``: keep the lock for this long from its grant, without making the caller wait. Other options as for
        ``lock``. Decorates coroutine functions, methods and async generators.

        A wrong template or option raises UsageError now; arguments that make no name raise InvalidName at the call.
        """
        from holdfast.decorator import decorate  # imported here: few programs need it

        return decorate.locked(decorate.of_async_client(self), self, template, key, on_busy, default, options)

    async def attach(self, ticket: str, *, on_lost: Callable[[AsyncLease], Any] | None = None) -> AsyncLease:
        """Take over the lock of a ticket that ``lease.detach()`` returned, with a new owner and a new token.

        The client must be of the same engine and namespace. Exactly one attach of a ticket succeeds. Raises NotHeld if
        it was used before or its time is over, OutcomeUnknown if no answer came (then the ticket may be used up, and
        the lock is released), UsageError for what is no ticket of this engine and namespace.
        """
        from holdfast.primitives import detaching  # imported here: few programs need it

        core, lease = self._open(), AsyncLease()
        await detaching.attach(core, detaching.policy_of(self, ticket), ticket, lease)
        return lease._ready(on_lost)

    async def inspect(self, name: str) -> LockState:
        """The holders of ``name`` and its queue, as the engine saw them just now. If it is free, ``holders == ()``.

        ``queue`` lists the waiters in order, as far as the engine knows them: see LockState.
        """
        return await operators.inspect(self._open(), names.validate(name))

    async def locks(self, prefix: str = "") -> AsyncIterator[LockState]:
        """The locks held at present whose names start with ``prefix``. A lazy iterator."""
        async for state in operators.locks(self._open(), prefix):
            yield state

    async def break_(self, name: str, *, token: int | None = None) -> bool:
        """Take ``name`` from its holder by force. True if it was held.

        The loss is reported to the holder as ``'broken'``: immediately if this client holds the lock, else by a push
        message or at its next renewal. Its token is fenced off, waiters are woken, and the break is logged. With
        ``token`` the lock is broken only if that is still the holder's fencing token, as ``inspect`` shows it; the
        engine compares and breaks in one step, so a later holder is never affected. If it is not, nothing changes and
        the result is False. A holder without a token (``Holder.token`` is None: another library's) can only be broken
        without ``token``.

        The holder's code is not stopped: break only holders that are known to be dead, or fenced. Raises OutcomeUnknown
        if no answer came, since a repeated request could break the next holder's lock. With ``token`` the request is
        repeated, which is safe; if that holder no longer holds the lock by then, the result is True, although the
        holder may have released it itself at that moment. Callers of one process may hand a lock over without a request
        within 10 ms of its grant: for other clients all of them are one holder.
        """
        return await breaking.break_(self._open(), names.validate(name), token)

    async def ping(self) -> None:
        """Readiness probe: raises EngineUnavailable or EngineRefused if the engine cannot serve."""
        await operators.ping(self._open())

    async def close(self) -> None:
        """Release all locks that are held, within a second. Later use raises UsageError. Idempotent."""
        core = self._opened
        if core is None or core.disowned:
            self._closed = True
        elif core.front.at_home():
            self._closed = True
            await core.close()
        else:
            self._closed = True
            core.begin_close()  # its loop is closed: the watchdog releases the locks
            until = core.front.now() + CLOSE_WITHIN
            while core.watchdog.started and not core.watchdog.stopped.is_set() and core.front.now() < until:
                await asyncio.sleep(0.005)

    async def aclose(self) -> None:
        """Alias of close()."""
        await self.close()

    def _open(self) -> Core:
        core = self._opened
        if core is None or core.closed:
            return self._open_on(AsyncioRuntime)
        if core.front.at_home():
            return core
        core.begin_close()
        self._opened = None
        return self._open_on(AsyncioRuntime)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()


def connect(url_or_client: str | DriverClient | None = None, **options: Unpack[ConnectOptions]) -> AsyncClient:
    """A client for a URL, an existing redis client, or the configured default. Not a coroutine; connects on first use.

    Options as for :func:`holdfast.connect`.
    """
    return AsyncClient(find_target(url_or_client, options))
