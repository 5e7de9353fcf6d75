"""AsyncLease: a caller's handle on a hold, for asyncio. A loss cancels the body of ``async with``."""

from __future__ import annotations

import asyncio
import weakref
from types import TracebackType
from typing import Any, Self

from holdfast import current
from holdfast._config.durations import Duration
from holdfast._core import releasing, renewing, states
from holdfast.errors import LockError, LockLost, UsageError
from holdfast.lease import AnyLease, BaseLease, until_lost


class Body:
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

    def is_of_caller(self) -> bool:
        return self.task is asyncio.current_task()

    def on_loss(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel)
        except RuntimeError:
            pass  # the loop is closed, so the body has ended

    def _cancel(self) -> None:
        task = self.task
        if task is not None and not (self._cancelled or self._leaving or task.done()):
            self._cancelled = True
            task.cancel("the lock was lost")

    def leave(self) -> bool:
        """From here on the body is not cancelled. Whether it was before: then ``receive``."""
        self._leaving = True
        return self._cancelled

    async def receive(self, error: BaseException | None) -> asyncio.CancelledError | None:
        """A cancellation that was requested but not yet delivered is received here and returned, so that it does not
        reach the code after the block."""
        if not isinstance(error, asyncio.CancelledError):
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


class AsyncLoss:
    """The loss of a lease, as an event: ``if lease.lost``, ``await lease.lost.wait(5)``."""

    __slots__ = ("_lease",)

    def __init__(self, lease: AsyncLeaseBlock) -> None:
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


class AsyncLeaseBlock(AnyLease):
    """``async with lease:``, for a lease on one lock and for one on several."""

    __slots__ = ()
    _bodies: list[Body]  #: its open blocks; made with the first, which many leases never have

    async def release(self) -> None:
        """Release this lease. Idempotent; callable from any task."""
        raise NotImplementedError

    def _check_loop(self) -> None:
        """UsageError on another open loop. If the client's loop is closed, close the client: the lease is lost."""
        for hold in self._holds:
            if not hold.core.front.at_home():
                hold.core.begin_close()

    async def __aenter__(self) -> Self:
        self._begin_body()
        return self

    def _begin_body(self) -> None:
        """From here on a loss cancels the running task, once."""
        self._check_loop()
        self.check()
        body = Body()
        if not hasattr(self, "_bodies"):
            self._bodies = []  # type: ignore[misc]  # a slot of those that inherit from this
        self._bodies.append(body)
        for hold in self._holds:
            # First the body, then the look: a loss in between finds the body, or is found here, or both. Only this
            # loop's thread changes it, so no lock is needed.
            hold.scopes = (*hold.scopes, body)
            if hold.state is states.LOST:
                body.on_loss()
        current.enter(self)

    async def _end_body(self, error: BaseException | None) -> tuple[asyncio.CancelledError | None, bool]:
        """From here on a loss cancels nothing. Returns a late cancellation, if any, and whether a loss caused one."""
        current.leave(self)
        body = self._pop_body()
        for hold in self._holds:
            scopes = hold.scopes
            hold.scopes = () if scopes == (body,) else tuple([scope for scope in scopes if scope is not body])
        if not body.leave():
            return None, False
        late = await body.receive(error)
        return late, body.absorbed()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        late, ours = await self._end_body(error)
        if error is None and late is None and not ours:
            await self.release()
        else:
            await self._end(error, late, ours)

    async def _end(self, error: BaseException | None, late: asyncio.CancelledError | None, ours: bool) -> None:
        """Release, and raise what must be raised after a body that ended with ``error``."""
        failure: LockError | None = None
        if error is not None:
            for hold in self._holds:
                hold.failed = True
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

    def _pop_body(self) -> Body:
        """The innermost block of this task. Tasks may share a lease, and another task may close a generator."""
        bodies = self._bodies
        if len(bodies) == 1:
            return bodies.pop()
        task = asyncio.current_task()
        body = ([body for body in bodies if body.task is task] or bodies)[-1]
        bodies.remove(body)
        return body


class AsyncLease(AsyncLeaseBlock, BaseLease):
    """A held lock. An async context manager: leaving it releases, and a loss cancels the body, which raises LockLost.

    Not guaranteed: that the body stops before its next await. A fence refuses late writes.
    """

    __slots__ = ("_bodies",)

    @property
    def lost(self) -> AsyncLoss:
        """The loss as an event: ``is_set()``, ``await wait(timeout)``, ``bool()``."""
        return AsyncLoss(self)

    async def renew(self, ttl: Duration | None = None) -> None:
        """Make the lease valid for at least ``ttl`` seconds from now; later renewals use this ttl. Never shortens."""
        self._check_loop()
        await renewing.renew(self._hold.core, *self._for_renewal(ttl))

    async def detach(self) -> str:
        """End this lease, keep the lock, and return a ticket: any process takes it over by ``client.attach(ticket)``.

        The lease ends before the ticket exists. The ticket is a secret: a process that has it can take the lock, once.
        The lock is not renewed meanwhile: it is free when its ttl is over. Raises LockLost or NotHeld, OutcomeUnknown
        if no answer came (there is no ticket then), and UsageError if other leases of this caller share the hold, or
        the engine does not give ``detach``. If cancelled, there is no ticket, and the lock is released, unless this
        lease is still ``held``.
        """
        from holdfast.primitives import detaching  # imported here: few programs need it

        self._check_loop()
        detachment = detaching.Detachment(self)
        try:
            return await detachment.run()
        except BaseException:
            detachment.withdraw()
            raise

    async def release(self) -> None:
        """Release this lease. Idempotent; callable from any task.

        If it is cancelled, the release finishes in the background.
        Raises LockLost if it was lost, OutcomeUnknown if the engine could not be reached before the lease expired.
        """
        hold = self._hold
        handles = hold.handles
        if self._key in handles:
            if not hold.core.front.at_home():
                hold.core.begin_close()
            if len(handles) < 2 or not releasing.give_back_handle(hold, self):
                await releasing.start(hold.core, hold, self)
