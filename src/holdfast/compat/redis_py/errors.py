"""From holdfast's errors to those that users of redis-py catch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from holdfast.engines.redis.replies import NotALock, WrongType
from holdfast.errors import EngineRefused, EngineUnavailable, LockLost, NotHeld, OutcomeUnknown

LockError = exceptions.LockError
LockNotOwnedError = exceptions.LockNotOwnedError


@contextmanager
def translated(name: str) -> Iterator[None]:
    """Raise redis-py's errors instead of holdfast's, which become their ``__cause__``."""
    try:
        yield
    except LockLost as error:
        raise LockNotOwnedError(str(error), lock_name=name) from error
    except (NotHeld, EngineRefused) as error:
        raise LockError(str(error), lock_name=name) from error
    except OutcomeUnknown as error:
        raise exceptions.TimeoutError(str(error)) from error
    except EngineUnavailable as error:
        raise exceptions.ConnectionError(str(error)) from error


def is_plain_string(error: EngineRefused) -> bool:
    """Whether the key holds a value of another type: a lock of redis-py itself, in a process not changed over yet."""
    cause = error.__cause__
    return isinstance(cause, WrongType) and not isinstance(cause, NotALock)
