"""The rule of every fence, and nothing else: no lock, no file, no clock.

A fence remembers, for each resource, the newest fencing token that it let through and whose it was. Tokens alone are
not enough: servers that diverged (a failover, a restored backup) may hand the same number to two owners, so equal
tokens pass only for the same owner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from holdfast._config import names
from holdfast.errors import StaleToken

if TYPE_CHECKING:
    from holdfast.observer.reports import Reports

# Every engine's token fits (Redis stays below 2**53, a ZooKeeper zxid is a signed 64-bit number), and so does a BIGINT
# column. A larger number is a bug at the caller, and letting it in would shut out every real holder for ever.
LARGEST_TOKEN: Final = 2**63 - 1


class Bearer(NamedTuple):
    """Who comes to the fence: a token and its owner. It is also what the fence remembers of whom it let through."""

    token: int
    owner: str | None


class Comer(Bearer):
    """A bearer that has just come to a fence, with what is needed to report the check to its client's observer.

    Equal to a bearer of the same token and owner.
    """

    fence: str = ""  #: the fence's class
    reports: Reports | None = None  #: of the client whose lease it is; None for a bare token, or without an observer


class Lease(Protocol):
    """What a fence needs of a lease: its token and its owner, whether it is still held or not."""

    @property
    def token(self) -> int: ...

    @property
    def owner(self) -> str: ...


def bearer(token: int | Lease, owner: str | None = None, *, fence: str = "") -> Comer:
    """The bearer that a caller named, by a lease or by its parts. TypeError or ValueError for what is neither.

    ``fence`` names the fence's class, for events.
    A lease is never asked whether it is held: its belief may be wrong, and the fence exists for just that case.
    """
    reports = None
    if not isinstance(token, int):
        reports = _reports_of(token)
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
    # The same bounds as for names keep what a fence stores small, and its parser strict.
    comer = Comer(int(token), None if owner is None else names.validate(owner, what="lease owner"))
    if reports is not None:
        comer.fence, comer.reports = fence, reports
    return comer


def _reports_of(lease: object) -> Reports | None:
    """Of the client that the lease belongs to. Only our own leases have one."""
    hold = getattr(lease, "_hold", None)
    return getattr(getattr(hold, "core", None), "reports", None)


def admit(resource: str, seen: Bearer | None, comer: Bearer) -> bool:
    """Let ``comer`` through or raise :class:`holdfast.StaleToken`. True: ``comer`` is now what must be remembered.

    Without an owner on both sides equal tokens pass: who names no owner relies on his tokens being unique. An owner
    on one side only is not the same owner.
    """
    if seen is None or comer.token > seen.token:
        passed(resource, comer)
        return True
    if comer == seen:
        passed(resource, comer)
        return False
    raise refused(resource, comer, seen.token)


def passed(resource: str, comer: Bearer) -> None:
    """The fence has accepted ``comer``: report it to the observer of its client. For fences that do not ``admit``."""
    if isinstance(comer, Comer) and comer.reports is not None:
        comer.reports.fence_passed(comer.fence, resource, comer.token, comer.owner)


def refused(resource: str, comer: Bearer, seen: int) -> StaleToken:
    """The fence has refused ``comer``: report it to the observer of its client, and return the error to raise."""
    if isinstance(comer, Comer) and comer.reports is not None:
        comer.reports.fence_refused(comer.fence, resource, comer.token, comer.owner, seen)
    return StaleToken(resource, token=comer.token, seen=seen)
