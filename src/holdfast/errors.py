"""Every error that holdfast raises, in one tree.

The docstring of each class says *when* it is raised. Facts are attributes, not only text; every error can be pickled;
no error contains a password or a URL with user info. A driver's own error is the ``__cause__``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, get_args

LossReason = Literal["expired", "unreachable", "stolen", "broken", "session", "max_hold", "closed", "forked"]

_LOSS_EXPLAINED: Mapping[str, str] = {
    "expired": "its lease ran out before it was renewed",
    "unreachable": "its lease ran out while the lock engine could not be reached",
    "stolen": "another owner holds it now",
    "broken": "it was removed from the engine before its lease ran out (break_, DEL, FLUSHALL, forceUnlock, restart)",
    "session": "the engine ended the session that carried it",
    "max_hold": "it was held for longer than max_hold",
    "closed": "its client was closed",
    "forked": "it belongs to the parent process; a fork does not inherit locks",
}
assert set(_LOSS_EXPLAINED) == set(get_args(LossReason))


class LockError(Exception):
    """Base of everything holdfast raises. ``name`` is the lock's name, where there is one."""

    def __init__(self, message: str, *, name: str | None = None) -> None:
        super().__init__(message)
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        # BaseException is unpickled by calling the class with ``args``; these constructors need keywords too.
        return (_rebuild, (type(self), self.args, self.__dict__.copy()))


def _rebuild(cls: type[LockError], args: tuple[object, ...], attributes: dict[str, object]) -> LockError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(attributes)
    return error


class AcquireTimeout(LockError, TimeoutError):
    """Raised when the lock stayed busy for the whole ``timeout``. The caller holds nothing and has left the queue."""

    def __init__(self, message: str, *, name: str | None = None, timeout: float = 0.0) -> None:
        super().__init__(message, name=name)
        self.timeout = timeout


class NotHeld(LockError):
    """Raised when something is done that needs a lock, and the caller does not hold it.

    A lease that was released is checked or renewed, a condition is used without its lock, a barrier is left that was
    not entered, or a ticket was used before or has run out.
    """


class LockLost(LockError):
    """Raised when a lease was lost before it was released. ``reason`` says why; ``token`` is the lost lease's.

    ``noun``: what the text calls it, before its name.
    """

    def __init__(self, reason: LossReason, *, name: str, token: int | None = None, noun: str = "lock") -> None:
        super().__init__(f"{noun} {name!r} was lost ({reason}): {_LOSS_EXPLAINED[reason]}", name=name)
        self.reason = reason
        self.token = token


class StaleToken(LockError):
    """Raised by a fence that has already seen a newer token (or the same token from another owner)."""

    def __init__(self, resource: str, *, token: int, seen: int) -> None:
        why = f"is older than {seen}, which was seen already" if token < seen else "was seen already, of another owner"
        super().__init__(
            f"write to {resource!r} refused: its fencing token {token} {why}; the lock has moved on, so drop this work"
        )
        self.resource = resource
        self.token = token
        self.seen = seen


class OutcomeUnknown(LockError):
    """Raised when it cannot be known whether ``operation`` took effect.

    After an acquire or attach, holdfast keeps withdrawing the claim in the background until the ttl has passed; after a
    release or detach, the lock expires after its ttl at the latest. It is never renewed.
    """

    def __init__(self, message: str, *, operation: str, name: str | None = None) -> None:
        super().__init__(message, name=name)
        self.operation = operation


class InvalidName(LockError, ValueError):
    """Raised when a lock name is not a str of 1 to 512 UTF-8 bytes, or the engine cannot represent it."""


class InvalidState(LockError):
    """Raised when a variable of a monitor, or what is stored of one, does not fit its annotation. Nothing was stored.

    ``path``: which value (``items[3]``; empty: the state as a whole). ``expected``, ``found``: should be, is.
    """

    def __init__(self, path: str, expected: str, found: str, *, name: str | None = None) -> None:
        where = f"{path} of monitor {name!r}" if path and name else path or f"the state of monitor {name!r}"
        super().__init__(f"{where} is {found}, and should be {expected}", name=name)
        self.path = path
        self.expected = expected
        self.found = found


class UsageError(LockError, RuntimeError):
    """Raised when holdfast is used in a way that cannot work. The message names the remedy."""


class EngineError(LockError):
    """Base of errors between holdfast and the engine."""


class EngineUnavailable(EngineError):
    """Raised when the engine could not be reached for ``unavailable_after``, or for the call's timeout if sooner."""


class UnavailableOutcomeUnknown(OutcomeUnknown, EngineUnavailable):
    """Raised when the engine became unreachable *after* an acquire was sent: both of its bases are true."""


class EngineRefused(EngineError):
    """Raised without a retry when the engine refuses: credentials, ACL, configuration, a key of another type."""


class QuorumLost(EngineUnavailable):
    """Raised when a majority of nodes cannot be reached. ``errors`` maps each failed node to its error."""

    def __init__(self, message: str, *, name: str | None = None, errors: Mapping[str, BaseException]) -> None:
        super().__init__(message, name=name)
        self.errors = dict(errors)


class QuorumLostOutcomeUnknown(UnavailableOutcomeUnknown, QuorumLost):
    """Raised when a majority became unreachable *after* an acquire was sent: all of its bases are true."""

    def __init__(self, message: str, *, operation: str, name: str, errors: Mapping[str, BaseException]) -> None:
        LockError.__init__(self, message, name=name)
        self.operation = operation
        self.errors = dict(errors)
