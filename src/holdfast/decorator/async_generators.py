"""Async generators inside their lock. Imported when the first one is decorated, since it needs asyncio.

As in ``generators.py``. In addition, a loss cancels the task that runs the present step, which may be another task than
that of the first step. Between two steps it cancels nothing: that would cancel the consumer's code, outside of the
block that raises LockLost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from holdfast import current

if TYPE_CHECKING:
    from holdfast.aio import AsyncLease


class AsyncSteps:
    """The steps of an async generator, one at a time: ``advance``, then ``item``, then ``send`` or ``throw``.

    A context manager: at its end the generator is closed.
    """

    __slots__ = ("_inner", "_inner_blocks", "_lease", "_thrown", "_value", "item")

    def __init__(self, inner: AsyncGenerator[Any, Any], lease: AsyncLease) -> None:
        self._inner = inner
        self._lease = lease
        self._inner_blocks: current.Inner = ()
        self._value: Any = None
        self._thrown: BaseException | None = None
        self.item: Any = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        current.enter(self._lease)
        current.resume(self._inner_blocks)
        try:
            await self._inner.aclose()
        finally:
            current.suspend(self._lease)

    def send(self, value: Any) -> None:
        """Set what the ``yield`` of the body returns at the next step."""
        self._value = value

    def throw(self, error: BaseException) -> None:
        """Set what the ``yield`` of the body raises at the next step."""
        self._thrown = error

    async def advance(self) -> bool:
        """Run the body to its next ``yield``; False if it has ended."""
        lease = self._lease
        value, thrown = self._value, self._thrown
        self._value = self._thrown = self.item = None
        if thrown is None and lease.lost_reason is not None:
            thrown = lease._loss()
        try:
            async with _Step(lease):
                current.resume(self._inner_blocks)
                try:
                    self.item = await (self._inner.asend(value) if thrown is None else self._inner.athrow(thrown))
                finally:
                    self._inner_blocks = current.suspend(lease)
        except StopAsyncIteration:
            return False
        return True


class _Step:
    """A step of the body: a loss cancels the task that runs it, and LockLost is raised at the end of the step."""

    __slots__ = ("_begun", "_lease")

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease
        self._begun = False

    async def __aenter__(self) -> None:
        if self._lease.held:
            self._lease._begin_body()
            self._begun = True
        else:  # the lease is lost: the body only cleans up
            current.enter(self._lease)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._begun:
            return
        late, ours = await self._lease._end_body(error)
        if late is not None and not ours:
            raise late
        if ours and (error is None or isinstance(error, asyncio.CancelledError)):
            raise self._lease._loss() from None


class released_at_the_end:  # noqa: N801 -- used as a context manager only
    """Releases the lease of an async generator at its end, and raises what ``async with lease`` would raise there."""

    __slots__ = ("_lease",)

    def __init__(self, lease: AsyncLease) -> None:
        self._lease = lease

    async def __aenter__(self) -> None:
        """Nothing to do: no task is cancelled between two steps."""

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lease._end(error, None, ours=False)
