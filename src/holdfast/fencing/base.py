"""What MemoryFence and FileFence share: ``check`` and ``guard``."""

from __future__ import annotations

import abc

from holdfast._config import names
from holdfast._config.durations import Duration, check_timeout
from holdfast.fencing.guard import Gate, Guard
from holdfast.fencing.rule import Lease, bearer


class Fence(abc.ABC):
    """Refuses a caller whose fencing token is older than one that was accepted for the resource before.

    A lock alone cannot stop a holder that was frozen past its lease and writes when it wakes up; a fence does. It
    accepts a token that is greater than the newest it has seen for the resource, or equal with the same owner. The
    lease of a read lock passes if its token is not older, and the fence does not remember it; that of a semaphore is a
    UsageError.
    """

    def guard(
        self, resource: str, token: int | Lease, owner: str | None = None, *, timeout: Duration | None = None
    ) -> Guard:
        """Check the token, and keep all other callers away from the resource until the ``with`` block ends.

        ::

            with fence.guard("orders", lease):      # in async code: async with
                order = read()                      # not before: see below
                write(change(order))

        Raise the guard *before the first read*. If only the write is guarded, a stale holder may still write between
        the new holder's read and its write, and its update is lost although every write was checked.

        Guarantee: inside the block, no older token has been accepted since the check, and none will be. Raises
        :class:`holdfast.StaleToken` for an older token, or an equal one of another owner; then the body does not run.
        Only the lease's token and owner count, not whether it is still held.

        Not guaranteed: progress while another process is frozen *inside* its guard. It keeps all others out until it
        continues or dies; ``timeout`` bounds the wait for it (``AcquireTimeout``; None: for ever, 0: one try). Nothing
        is undone: after an exception in the body, the raised token and all writes stay.
        """
        resource = names.validate(resource, what="resource name")
        return Guard(
            self._gate(resource), resource, bearer(token, owner, fence=type(self).__name__), check_timeout(timeout)
        )

    def check(self, resource: str, token: int | Lease, owner: str | None = None) -> None:
        """Check the token, and remember it if it is newer. Raises :class:`holdfast.StaleToken`.

        The result may be outdated one moment later: a newer holder may write between this check and your write. So use
        it only for resources that compare tokens themselves, or to give up early. Around a write use :meth:`guard`.

        If another guard is raised on the resource, it blocks the thread until that one is left.
        """
        with self.guard(resource, token, owner):
            pass

    @abc.abstractmethod
    def _gate(self, resource: str) -> Gate:
        """A new gate to ``resource``."""
