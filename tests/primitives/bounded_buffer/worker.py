"""One producer or consumer, as a process: ``python -m tests.primitives.bounded_buffer.worker``, see ``run.py``.

It records each operation before and after, one line each, written at once: a process that is killed has recorded what
it has done, except the last step.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import holdfast
from tests.primitives.bounded_buffer.buffer import Buffer
from tests.primitives.bounded_buffer.history import Event, Kind

#: The item after which a consumer ends.
LAST = -1


class Journal:
    """The events of one actor, in a file."""

    def __init__(self, file: Path, actor: str) -> None:
        self._actor = actor
        self._file = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def record(self, kind: Kind, item: int | None = None, about: str = "") -> None:
        line = json.dumps([time.monotonic(), self._actor, kind.value, item, about]) + "\n"
        os.write(self._file, line.encode())


def freeze_request(file: Path) -> Path:
    return file.with_suffix(".freeze")


def events(file: Path) -> list[Event]:
    return [Event(at, actor, Kind(kind), item) for at, actor, kind, item, _ in _lines(file)]


def failures(file: Path) -> list[str]:
    return [about for _, _, kind, _, about in _lines(file) if kind == Kind.FAILED.value]


def _lines(file: Path) -> list[Any]:
    if not file.exists():
        return []
    text = file.read_text()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]  # the last may be half written


def produce(buffer: Buffer, journal: Journal, first: int, end: int) -> None:
    for item in range(first, end):
        journal.record(Kind.PUTTING, item)
        try:
            buffer.put(item)
            journal.record(Kind.PUT, item)
        except holdfast.LockError as error:
            # It may be there: it is not put again.
            journal.record(Kind.FAILED, item, repr(error))


def consume(buffer: Buffer, journal: Journal, actor: str, request: Path) -> None:
    """``request``: when this file appears, the process freezes while it holds the lock, outside of any request: on
    SQLite, a process that is frozen in a transaction stalls all others."""

    def freeze_if_requested() -> None:
        if request.exists():
            request.unlink()
            journal.record(Kind.FROZEN)
            os.kill(os.getpid(), signal.SIGSTOP)
            journal.record(Kind.RESUMED)

    last = None
    while last != LAST:
        journal.record(Kind.TAKING)
        try:
            last = buffer.take(actor, freeze_if_requested)
            journal.record(Kind.TOOK, last)
        except holdfast.LockError as error:
            journal.record(Kind.FAILED, None, repr(error))
            known = _last_taken(buffer, actor)
            if known is not None and known != last:
                last = known  # it had taken effect
                journal.record(Kind.TOOK, last)


def _last_taken(buffer: Buffer, actor: str) -> int | None:
    while True:
        try:
            return buffer.content()[1].get(actor)
        except Exception:
            time.sleep(0.1)  # out of reach: what it has taken must be known before it goes on


def main() -> None:
    url, ttl, name, file, actor, *items = sys.argv[1:]
    with holdfast.connect(url, ttl=float(ttl), unavailable_after=60.0) as locks:
        buffer, journal = Buffer(locks, name), Journal(Path(file), actor)
        if items:
            produce(buffer, journal, int(items[0]), int(items[1]))
        else:
            consume(buffer, journal, actor, freeze_request(Path(file)))


if __name__ == "__main__":
    main()
