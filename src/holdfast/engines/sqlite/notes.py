"""Releases without a transaction: each process notes which of its claims it has released, in a file of its own.

A release is permanent, as death and expiry are: an owner is never used again. So it need not be in a transaction. Who
finds a held row looks into the notes of its process, and takes the name by a statement that names the owner that was
judged (verdict.py); the process itself names it without a look.

A waiter must be woken, and a holder that was broken must learn it: both leave a *mark* for the owner beside the note.
The one that releases writes its note and then reads the marks; a waiter writes its mark and then reads the note. So at
least one of them sees the other.

A mark may be overwritten: by one for another name with the same place, or by that of a waiter that has read the row
long before. So each mark that has come since the last release counts, whatever owner it names: at worst a release is an
unnecessary statement. And a waiter's mark never overwrites that of a break.

A name has one place in the file. So a note is overwritten only when the name has had another owner since: if it were
lost before, the name would be taken for held until its lease ends.
"""

from __future__ import annotations

import contextlib
import os
import zlib
from typing import Final

from holdfast.engines.sqlite.liveness import is_identity, remove
from holdfast.engines.sqlite.paths import PrivateDirectory

# The bytes of a place: a note (an owner and a line end), and two marks of the same form.
_NOTE: Final = 64
#: Where a mark is, and what it says: a waiter is to be woken; or the lock is about to be broken. Or there is none.
AWAITED: Final = 1 * _NOTE
BROKEN: Final = 2 * _NOTE
UNMARKED: Final = 0
_MARKS: Final = 2 * _NOTE
_PLACE: Final = 4 * _NOTE
_NO_MARKS: Final = bytes(_MARKS)
#: Stands for the place of a name that has none: another name has it.
NOWHERE: Final = 0

_PLACES: Final = 1024
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
_read: Final = os.pread
_write: Final = os.pwrite


class OwnNotes:
    """The notes of this process."""

    def __init__(self, directory: PrivateDirectory, identity: str) -> None:
        self._directory = directory
        self._file = name_of(identity)
        self._fileno = -1
        with contextlib.suppress(OSError):  # no descriptor left: every release is a statement
            self._fileno = os.open(self._file, _OPEN | os.O_CREAT, 0o600, dir_fd=directory.fileno)
            os.ftruncate(self._fileno, (1 + _PLACES) * _PLACE)  # takes no room; a mark that is not there reads as zeros
        #: The places of names whose locks may be released by a note.
        self.places: dict[str, int] = {}
        self._names: dict[int, str] = {}  # by place
        self._seen: dict[int, bytes] = {}  # the marks at each place, as they were at the last release there
        #: The owners whose release was noted last, by name. The row may have another owner since.
        self.owners: dict[str, str] = {}

    def place(self, name: str) -> int:
        """The place of ``name`` from now on, if it has none yet; or ``NOWHERE``."""
        place = _place_of(name)
        # In one step: of two threads with a name each, both would have the place.
        if self._fileno < 0 or self._names.setdefault(place, name) != name:
            return NOWHERE
        self.places[name] = place
        return place

    def write(self, name: str, owner: str, place: int) -> int | None:
        """Note that ``owner`` has released ``name``; which mark has come since the last time. None: it is not noted."""
        note = owner.encode() + b"\n"
        if len(note) > _NOTE:
            return None
        marks_at = place + AWAITED
        try:
            # A signal handler that closes the file cannot run between the look at its number and the call.
            _write(self._fileno, note, place)
            marks = _read(self._fileno, _MARKS, marks_at)
        except OSError:
            return None
        self.owners[name] = owner  # not before it is there: the next acquire relies on it
        seen = self._seen.get(place, _NO_MARKS)
        if marks == seen:
            return UNMARKED
        self._seen[place] = marks
        return BROKEN if marks.startswith(note, BROKEN - AWAITED) else AWAITED

    def close(self, *, unlink: bool) -> None:
        """Close the file. With ``unlink=False`` it stays, for rows whose release is noted only there."""
        if self._fileno >= 0:
            if unlink:
                remove(self._directory.fileno, self._file)
            self.disown()  # last: an interrupted close does it again

    def disown(self) -> None:
        """Close the descriptor only. In a forked child the file is the parent's."""
        fileno, self._fileno = self._fileno, -1
        if fileno >= 0:
            os.close(fileno)


def name_of(identity: str) -> str:
    """The file in which a process has its notes."""
    return f"{identity}.notes"


def is_released(directory: int, process: str, name: str, owner: str, mark: int = UNMARKED) -> bool:
    """Whether ``process`` has noted that ``owner`` has released ``name``. If not, ``mark`` is left for it."""
    if not is_identity(process):
        return False  # of no process: a ticket's
    try:
        fileno = os.open(name_of(process), _OPEN, dir_fd=directory)
    except OSError:
        return False  # it has noted nothing, mostly
    try:
        note, place = owner.encode() + b"\n", _place_of(name)
        found = _read(fileno, _PLACE, place)
        if found.startswith(note):
            return True
        if mark and len(note) <= _NOTE and not found.startswith(note, mark):
            _write(fileno, note, place + mark)
            return _read(fileno, _NOTE, place).startswith(note)
        return False
    except OSError:
        return False
    finally:
        os.close(fileno)


def _place_of(name: str) -> int:
    return (1 + zlib.crc32(name.encode()) % _PLACES) * _PLACE
