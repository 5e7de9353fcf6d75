"""Translates holdfast's errors to the exceptions that users of redis-py catch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from holdfast.engines.redis.dialect.replies import NotALock, WrongType
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
    except NotHeld as error:
        raise LockError(str(error), lock_name=name) from error
    except EngineRefused as error:
        raise _refusal(error)(str(error)) from error
    except OutcomeUnknown as error:
        raise exceptions.TimeoutError(str(error)) from error
    except EngineUnavailable as error:
        raise exceptions.ConnectionError(str(error)) from error


def _refusal(error: EngineRefused) -> type[exceptions.RedisError]:
    """Not LockError: programs catch that as "busy", and would retry with a wrong password for ever."""
    if isinstance(error.__cause__, exceptions.AuthenticationError):
        return exceptions.AuthenticationError
    return exceptions.NoPermissionError if "NOPERM" in str(error) else exceptions.ResponseError


def is_plain_string(error: EngineRefused) -> bool:
    """Whether the key holds a plain string: a lock of redis-py itself, in a process that still uses it."""
    cause = error.__cause__
    return isinstance(cause, WrongType) and not isinstance(cause, NotALock)
