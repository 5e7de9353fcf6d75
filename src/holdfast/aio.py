"""The async API: AsyncClient, AsyncLock, AsyncLease. The same names as in the sync API; what may do I/O is awaited."""

from __future__ import annotations

import asyncio
import sys
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Never, Self, overload

from holdfast import current
from holdfast._config import foreign_keywords, names
from holdfast._config.durations import Duration, check_timeout
from holdfast._core import breaking, operators, releasing, renewing, states
from holdfast._core.blocks import BlockExit, Blocks, exit_of_block
from holdfast._core.core import CLOSE_WITHIN, Core
from holdfast._core.policy import Policy
from holdfast._runtime.asyncio import AsyncioRuntime
from holdfast._runtime.callers import current_caller
from holdfast.client import _DEFAULT, LOCK_KEYWORDS, BaseClient, find_target
from holdfast.engines.base import LockState
from holdfast.errors import AcquireTimeout, LockError, LockLost, UsageError
from holdfast.lease import BaseLease, NotPortable, until_lost

if TYPE_CHECKING:
    from typing import Unpack

    from holdfast.connect_options import ConnectOptions, DriverClient
    from holdfast.decorator.options import LockedOptions, WaitOrRaise
    from holdfast.decorator.shapes import AsyncDecorator, AsyncSkippingDecorator, D, Key, LockedFunction, P, R

__all__ = ["AsyncClient", "AsyncLease", "AsyncLock", "connect"]


class _Body:
    """One open ``async with``: a loss cancels its task, at most once, and not while the block is being left."""

    __slots__ = ("_before", "_cancelled", "_leaving", "_loop", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise UsageError("async with needs to run inside a task")
        self._task = weakref.ref(task)  # weak: a finished task keeps its result, which may be the lease
        self._loop = asyncio.get_running_loop()
        self._before = task.cancelling()
        self._cancelled = False
        self._leaving = False

    @property
    def task(self) -> asyncio.Task[Any] | None:
        return self._task()

    def on_loss(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop is closed, so the body has ended

    def _cancel(self) -> None:
        task = self.task
        if task is not None and not (self._leaving or task.done()):
            self._cancelled = True
            task.cancel("the lock was lost")

    async def leave(self, error: BaseException | None) -> asyncio.CancelledError | None:
        """From here on the body is not cancelled. A cancellation that was requested but not yet delivered is received
        here and returned, so that it does not reach the code after the block."""
        self._leaving = True
        if self._cancelled and not isinstance(error, asyncio.CancelledError):
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError as late:
                return late
        return None

    def absorbed(self) -> bool:
        """Undo the cancellation for the loss. False if other code has cancelled it too, which wins (contract C10)."""
        task = self.task
        if task is None:
            return True
        task.uncancel()
        return task.cancelling() <= self._before

    @property
    def cancelled(self) -> bool:
        return self._cancelled


class AsyncLoss:
    """The loss of a lease, as an event: ``if lease.lost``, ``await lease.lost.wait(5)``."""

    __slots__ = ("_lease",)

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    def is_set(self) -> bool:
        """Whether the lease is lost."""
        return self._lease.lost_reason is not None

    __bool__ = is_set

    async def wait(self, timeout: Duration | None = None) -> bool:
        """Wait for the loss: True if lost, False at the timeout or once the lease is released."""
        self._lease._check_loop()
        lost = await until_lost(self._lease, timeout)
        await asyncio.sleep(0)  # so that callbacks of on_lost run first
        return lost


class AsyncLease(BaseLease):
    """A held lock. An async context manager: leaving it releases, and a loss cancels the body, which raises LockLost.

    Not guaranteed: that the body stops before its next await. A fence refuses late writes.
    """

    __slots__ = ("_bodies",)

    def __init__(self) -> None:
        super().__init__()
        self._bodies: list[_Body] = []

    @property
    def lost(self) -> AsyncLoss:
        """The loss as an event: ``is_set()``, ``await wait(timeout)``, ``bool()``."""
        return AsyncLoss(self)

    async def renew(self, ttl: Duration | None = None) -> None:
        """Make the lease valid for at least ``ttl`` seconds from now; later renewals use this ttl. Never shortens."""
        self._check_loop()
        await renewing.renew(self._hold.core, *self._for_renewal(ttl))

    async def release(self) -> None:
        """Release this lease. Idempotent; callable from any task.

        If it is cancelled, the release finishes in the background.
        Raises LockLost if it was lost, OutcomeUnknown if the engine could not be reached before the lease expired.
        """
        if not self.released:
            self._check_loop()
            await releasing.release(self._hold.core, self._hold, self)

    def _check_loop(self) -> None:
        """UsageError on another open loop. If the client's loop is closed, close the client: the lease is lost."""
        core = self._hold.core
        if not core.front.at_home():
            core.begin_close()

    async def __aenter__(self) -> Self:
        self._begin_body()
        return self

    def _begin_body(self) -> None:
        """From here on a loss cancels the running task, once."""
        self._check_loop()
        self.check()
        body = _Body()
        self._bodies.append(body)
        with self._hold.core.lock:
            self._hold.scopes = (*self._hold.scopes, body)
            lost = self._hold.state is states.LOST
        if lost:
            body.on_loss()
        current.enter(self)

    async def _end_body(self, error: BaseException | None) -> tuple[asyncio.CancelledError | None, bool]:
        """From here on a loss cancels nothing. Returns a late cancellation, if any, and whether a loss caused one."""
        current.leave(self)
        body = self._pop_body()
        with self._hold.core.lock:
            self._hold.scopes = tuple(scope for scope in self._hold.scopes if scope is not body)
        late = await body.leave(error)
        return late, body.cancelled and body.absorbed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        late, ours = await self._end_body(error)
        await self._end(error, late, ours)

    async def _end(self, error: BaseException | None, late: asyncio.CancelledError | None, ours: bool) -> None:
        """Release, and raise what must be raised after a body that ended with ``error``."""
        failure: LockError | None = None
        try:
            await self.release()
        except LockError as raised:
            failure = raised
        if late is not None and not ours:
            raise late  # a cancellation by other code, received while the block was being left
        if ours and failure is None:
            failure = self._loss()  # released in the body, but the hold was lost before the body ended
        if failure is not None and (error is None or (ours and isinstance(error, asyncio.CancelledError))):
            raise failure from None
        if failure is not None and error is not None:
            self._annotate(error)
            if not isinstance(failure, LockLost):
                error.add_note(str(failure))

    def _pop_body(self) -> _Body:
        """The innermost block of this task. Tasks may share a lease, and another task may close a generator."""
        task = asyncio.current_task()
        body = ([body for body in self._bodies if body.task is task] or self._bodies)[-1]
        self._bodies.remove(body)
        return body


class AsyncLock(NotPortable):
    """A name and a policy. Creating one does no I/O; tasks may share it. ``acquire`` returns leases."""

    def __init__(self, client: AsyncClient, policy: Policy) -> None:
        self._client = client
        self._policy = policy
        self._blocks: Blocks[AsyncLease] = Blocks()

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
        core, seconds, lease = self._client._open(), check_timeout(timeout), AsyncLease()
        if not core.reenter(self._policy, lease):
            await core.acquire(self._policy, seconds, lease)
        return lease._ready(self._policy.on_lost)

    async def try_acquire(self, *, timeout: Duration | None = 0, **foreign: Never) -> AsyncLease | None:
        """As ``acquire``, but None instead of AcquireTimeout; one try by default."""
        if foreign:
            foreign_keywords.refuse_keywords("try_acquire", foreign, ("timeout",))
        try:
            return await self.acquire(timeout=timeout)
        except AcquireTimeout:
            return None

    async def inspect(self) -> LockState:
        """The lock's holders and its queue, as the engine saw them just now: ``client.inspect`` of its name."""
        return await operators.inspect(self._client._open(), self.name)

    async def locked(self) -> bool:
        """Whether the lock is held by any owner, as the engine saw it just now: one request.

        Not safe to decide by: the lock may change hands before the answer arrives. Use ``try_acquire`` for that.
        """
        return bool((await self.inspect()).holders)

    def __aenter__(self) -> Coroutine[Any, Any, AsyncLease]:
        return self._enter(self._blocks.entered(self, sys._getframe(1)))

    async def _enter(self, block: BlockExit[AsyncLease] | None) -> AsyncLease:
        lease = await (await self.acquire(timeout=self._policy.timeout)).__aenter__()
        self._blocks.keep(block, current_caller, lease)
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

    def __repr__(self) -> str:
        return f"<AsyncLock {self.name!r} of {self._client!r}>"


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
    ) -> AsyncSkippingDecorator[None]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: Literal["skip"], default: D, **options: Unpack[LockedOptions]
    ) -> AsyncSkippingDecorator[D]: ...
    @overload
    def locked(
        self, template: Key = None, /, *, on_busy: WaitOrRaise = "wait", **options: Unpack[LockedOptions]
    ) -> AsyncDecorator: ...
    def locked(
        self, template: Any = None, /, *, key: Any = None, on_busy: Any = "wait", default: Any = None, **options: Any
    ) -> Any:
        """Decorate a function so that each call holds a lock named by its arguments: ``@client.locked("{order.id}")``.

        ``key``: a template over the arguments (``{parameter.name[key]}``), a callable of the same arguments, or None
        for module.qualname. The lock's name is ``prefix:key``. ``on_busy``: "wait" for ``timeout`` and raise
        AcquireTimeout, "raise" it after one try, or "skip" the call, which returns ``default``, is logged and counted.
        ``at_least``: keep the lock for this long from its grant, without making the caller wait. Other options as for
        ``lock``. Decorates coroutine functions, methods and async generators.

        A wrong template or option raises UsageError now; arguments that make no name raise InvalidName at the call.
        """
        from holdfast.decorator import decorate  # imported here: few programs need it

        return decorate.locked(decorate.of_async_client(self), self, template, key, on_busy, default, options)

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
