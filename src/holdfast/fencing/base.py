"""What all fences of files and memory have in common: ``check`` and ``guard``."""

from __future__ import annotations

import abc

from holdfast._core import names
from holdfast._core.durations import Duration, check_timeout
from holdfast.fencing.guard import Gate, Guard
from holdfast.fencing.rule import Lease, bearer


class Fence(abc.ABC):
    """Refuses whoever comes to a resource with an older fencing token than one that has been there already.

    A lock alone cannot stop a holder that was frozen past its lease and writes when it wakes up; this does. It accepts
    a token that is greater than the newest it has seen for the resource, or equal with the same owner.
    """

    def guard(
        self, resource: str, token: int | Lease, owner: str | None = None, *, timeout: Duration | None = None
    ) -> Guard:
        """Check the token, and keep everybody else away from the resource until the ``with`` ends.

        ::

            with fence.guard("orders", lease):      # in async code: async with
                order = read()                      # not before: see below
                write(change(order))

        Raise the guard *before the first read*. If only the write is guarded, a stale holder may still write between
        the new holder's read and its write, and that update is lost although every write was checked.

        Guarantee: inside, no older token has been accepted since the check, and none will be. Raises
        :class:`holdfast.StaleToken` for an older token, or an equal one of another owner; then the body does not run.
        A lease is judged by its token and owner only, whether or not it believes to be held.

        Not guaranteed: progress while somebody is frozen *inside* his guard. He keeps the others out until he goes on
        or dies; ``timeout`` bounds the wait for him (``AcquireTimeout``; None: for ever, 0: one try). And nothing is
        undone: an exception in the body leaves the token raised and whatever was written.
        """
        resource = names.validate(resource, what="resource name")
        return Guard(
            self._gate(resource), resource, bearer(token, owner, fence=type(self).__name__), check_timeout(timeout)
        )

    def check(self, resource: str, token: int | Lease, owner: str | None = None) -> None:
        """Check the token, and remember it if it is newer. Raises :class:`holdfast.StaleToken`.

        It says nothing about a moment later: check-then-act is a race, in which a newer holder may come and write
        between this check and your write. So it is only for resources that compare the token by themselves, and for
        giving up early. Around a write use :meth:`guard`.

        It waits for a guard that is up on the resource, and blocks the thread meanwhile.
        """
        with self.guard(resource, token, owner):
            pass

    @abc.abstractmethod
    def _gate(self, resource: str) -> Gate:
        """A new way to ``resource``."""
