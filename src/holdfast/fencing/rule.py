"""The rule of all fences. Pure: no lock, no file, no clock.

A fence remembers, for each resource, the newest fencing token that it accepted, and its owner. Tokens alone are not
enough: servers that diverged (a failover, a restored backup) may give the same number to two owners, so an equal token
is accepted only from the same owner.

A reader changes nothing, and has the token of the last write: it is accepted if no newer one was seen, and the fence
does not store it. Otherwise one reader would shut out another, or the writer whose token they share.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast._config import names
from holdfast.errors import StaleToken, UsageError

if TYPE_CHECKING:
    from holdfast.observer.reports import Reports

# The tokens of all engines fit (Redis stays below 2**53, a ZooKeeper zxid is a signed 64-bit number), and so do BIGINT
# columns. A larger number is a bug of the caller; accepting it would lock out every real holder for ever.
LARGEST_TOKEN: Final = 2**63 - 1


class Bearer(NamedTuple):
    """A token and its owner. A fence compares the one that a caller presents with the one it has stored."""

    token: int
    owner: str | None

    @property
    def reads(self) -> bool:
        """Whether it is that of a read lock. Such a bearer is never stored."""
        return False


class IncomingBearer(Bearer):
    """A bearer that a caller presents, with what is needed to report the check to its client's observer.

    Equal to a Bearer with the same token and owner.
    """

    reads: bool = False
    fence: str = ""  #: the fence's class
    reports: Reports | None = None  #: of the client whose lease it is; None for a bare token, or without an observer


class Lease(Protocol):
    """What a fence needs of a lease: its token and its owner; and its ``mode``, if it has one. Whether it is still held
    does not matter."""

    @property
    def token(self) -> int: ...

    @property
    def owner(self) -> str: ...


def bearer(token: int | Lease, owner: str | None = None, *, fence: str = "") -> IncomingBearer:
    """The bearer for a lease, or for a token and an owner. TypeError or ValueError for anything else.

    ``fence`` is the name of the fence's class, for events. ``lease.held`` is not checked: a fence exists for the case
    that it is wrong.
    """
    reports, reads = None, False
    if not isinstance(token, int):
        reports, reads = _reports_of(token), _reads(token)
        if owner is not None:
            raise TypeError("a lease brings its own owner: pass either a lease, or a token and its owner")
        lease = token
        try:
            token, owner = lease.token, lease.owner
        except AttributeError:
            raise TypeError(f"expected a fencing token (an int) or a lease, not {type(lease).__name__}") from None
        if not isinstance(owner, str):
            raise TypeError(f"a lease's owner must be a str, not {type(owner).__name__}")
    # bool is an int: check(resource, lease.held) would pass as token 1.
    if isinstance(token, bool) or not isinstance(token, int):
        raise TypeError(f"a fencing token must be an int, not {type(token).__name__}")
    if not 0 <= token <= LARGEST_TOKEN:
        raise ValueError(f"a fencing token must be from 0 to 2**63 - 1, not {token}")
    # The same bounds as for names, so that what a fence stores stays small.
    incoming = IncomingBearer(int(token), None if owner is None else names.validate(owner, what="lease owner"))
    if reads:
        incoming.reads = True
    if reports is not None:
        incoming.fence, incoming.reports = fence, reports
    return incoming


def _reads(lease: object) -> bool:
    """Whether the lease is that of a read lock. UsageError for that of a semaphore."""
    mode = getattr(lease, "mode", None)
    if mode == "permits":
        raise UsageError(
            "a semaphore's lease has no fencing token: its holders do not exclude each other. Fence with the lease of "
            "a lock, or of the write lock of a read-write lock"
        )
    return mode == "read"


def _reports_of(lease: object) -> Reports | None:
    """The reports of the lease's client, if it has an observer. Only holdfast's own leases have them."""
    hold = getattr(lease, "_hold", None)
    return getattr(getattr(hold, "core", None), "reports", None)


def admit(resource: str, seen: Bearer | None, incoming: Bearer) -> bool:
    """Accept ``incoming`` or raise :class:`holdfast.StaleToken`. True: the fence must store ``incoming``.

    If neither has an owner, equal tokens are accepted: such callers rely on unique tokens. If only one has an owner, it
    is not the same owner. A reader's token is accepted if it is not older, also if another owner stored the same.
    """
    if incoming.reads:
        if seen is not None and incoming.token < seen.token:
            raise refused(resource, incoming, seen.token)
        passed(resource, incoming)
        return False
    if seen is None or incoming.token > seen.token:
        passed(resource, incoming)
        return True
    if incoming == seen:
        passed(resource, incoming)
        return False
    raise refused(resource, incoming, seen.token)


def passed(resource: str, incoming: Bearer) -> None:
    """Report to the client's observer that the fence accepted ``incoming``. ``admit`` calls it."""
    if isinstance(incoming, IncomingBearer) and incoming.reports is not None:
        incoming.reports.fence_passed(incoming.fence, resource, incoming.token, incoming.owner)


def refused(resource: str, incoming: Bearer, seen: int) -> StaleToken:
    """Report to the client's observer that the fence refused ``incoming``. Returns the error to raise."""
    if isinstance(incoming, IncomingBearer) and incoming.reports is not None:
        incoming.reports.fence_refused(incoming.fence, resource, incoming.token, incoming.owner, seen)
    return StaleToken(resource, token=incoming.token, seen=seen)
