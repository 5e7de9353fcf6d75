"""The exit codes of the command, from sysexits.h where it has one, and the exit code of each error."""

from __future__ import annotations

from typing import Final

from holdfast.errors import (
    AcquireTimeout,
    EngineRefused,
    EngineUnavailable,
    InvalidName,
    LockError,
    LockLost,
    OutcomeUnknown,
    UsageError,
)

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 64  # EX_USAGE: arguments, names
UNAVAILABLE: Final = 69  # EX_UNAVAILABLE: the engine cannot be reached, or the outcome is unknown
SOFTWARE: Final = 70  # EX_SOFTWARE: an unexpected error
BUSY: Final = 75  # EX_TEMPFAIL, as lockf(1) and lckdo(1) have it
REFUSED: Final = 77  # EX_NOPERM: the engine refused
SETTINGS: Final = 78  # EX_CONFIG: a URL, the environment, the settings file
LOST: Final = 79  # the lock was lost while the command ran
CANNOT_RUN: Final = 126  # as a shell has it
NOT_FOUND: Final = 127  # as a shell has it
SIGNALLED: Final = 128  # plus the signal's number, as a shell has it


class SettingsError(UsageError):
    """Raised when a URL, the environment or the settings file is wrong (not the command line itself)."""


_CODES: Final[tuple[tuple[type[LockError], int], ...]] = (
    (AcquireTimeout, BUSY),
    (LockLost, LOST),
    (EngineRefused, REFUSED),
    (EngineUnavailable, UNAVAILABLE),
    (OutcomeUnknown, UNAVAILABLE),
    (InvalidName, USAGE),
    (SettingsError, SETTINGS),
    (UsageError, USAGE),
)


def code_for(error: LockError) -> int:
    """The exit code of a command that ended with ``error``."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)
