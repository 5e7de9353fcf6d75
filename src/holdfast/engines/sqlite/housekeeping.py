"""Keeps the file and the directory from growing, in small steps, so that neither opening nor locking has to wait."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from holdfast.engines.sqlite import liveness, notes, register_statements, share_statements, statements
from holdfast.engines.sqlite.verdict import adopted

#: How many liveness files of other processes are examined when a store is opened.
_LOOKED_AT: Final = 256
#: The proof of a death is kept this much longer than the rows that need it are valid, in seconds.
_GRACE: Final = 60.0

Run = Callable[[str, Any], Any]


class _Table(NamedTuple):
    """How the rows of a table are examined: the last row; a slice (how many rows, the last of them, and for each step
    how many rows it concerns); and the steps."""

    last_row: str
    slice: str
    steps: tuple[str, ...]


#: Rows of another boot have their clock started; names that were free for ``token_ttl`` are deleted.
_LOCKS: Final = _Table(statements.LAST_ROW, statements.SLICE, (statements.ADOPT_SLICE, statements.FORGET_SLICE))
#: Registers that were not used for ``token_ttl`` are deleted.
_REGISTERS: Final = _Table(
    register_statements.LAST_REGISTER, register_statements.SLICE, (register_statements.FORGET_SLICE,)
)
#: Rows of another boot have their clock started; what has lapsed is deleted.
_SHARES: Final = _Table(
    share_statements.LAST_SHARE, share_statements.SLICE, (share_statements.ADOPT_SLICE, share_statements.REMOVE_SLICE)
)
#: Semaphores that were not used for ``token_ttl`` are deleted.
_SEMAPHORES: Final = _Table(
    share_statements.LAST_SEMAPHORE, share_statements.SEMAPHORES, (share_statements.FORGET_SEMAPHORES,)
)


class Sweep:
    """Cycles through the tables, starting at a random row: many short-lived processes must not all examine the same
    rows."""

    def __init__(self, boot: str, token_ttl: float | None) -> None:
        self._boot = boot
        self._token_ttl = token_ttl
        self._after = dict.fromkeys((_LOCKS, _REGISTERS, _SHARES, _SEMAPHORES), -1)  # not begun

    def go_on(self, run: Run, now: float, rows: int) -> None:
        """Examine the next ``rows`` rows of each table."""
        for table in self._after:
            if self._after[table] < 0:
                ((last,),) = run(table.last_row, ())
                self._after[table] = random.randrange(last + 1)
            begun = self._after[table]
            seen = self._slice(table, run, now, rows)
            if seen < rows:  # this was the end of the table
                self._after[table] = 0
                if begun:
                    self._slice(table, run, now, rows - seen)

    def _slice(self, table: _Table, run: Run, now: float, rows: int) -> int:
        before = 0 if self._token_ttl is None else int((time.time() - self._token_ttl) * 1_000_000)
        facts = {
            "after": self._after[table], "rows": rows, "end": 0, "now": int(now * 1_000_000), "before": before,
            "boot": self._boot, "adopted": adopted(self._boot),
        }  # fmt: skip
        ((seen, end, *concerned),) = run(table.slice, facts)
        facts["end"] = end
        for step, rows_of_step in zip(table.steps, concerned, strict=True):
            if rows_of_step:
                run(step, facts)
        self._after[table] = end or self._after[table]
        return int(seen)


def sweep_directory(directory: int, ours: str, forget_places: Callable[[str], object]) -> None:
    """Remove the files of dead processes: sockets immediately, its notes and the proof of its death when no row can
    need them any more."""
    left: dict[str, list[str]] = {}
    for name in os.listdir(directory):
        left.setdefault(name.partition(".")[0], []).append(name)
    others = [identity for identity in left if liveness.is_identity(identity) and identity != ours]
    for identity in random.sample(others, min(len(others), _LOOKED_AT)):
        # A listing may lack a file that was created meanwhile: the liveness file comes before the others.
        if identity not in left[identity] and not _exists(directory, identity):  # displaced: if it is alive, it polls
            for name in left[identity]:
                liveness.remove(directory, name)
            continue
        with liveness.proof(directory, identity) as found:
            if found is None:
                continue
            for name in left[identity]:
                if name not in (identity, notes.name_of(identity)):
                    liveness.remove(directory, name)
            if found.st_mtime + _GRACE < time.time():
                forget_places(identity)
                liveness.remove(directory, notes.name_of(identity))
                liveness.remove(directory, identity)


def _exists(directory: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    except OSError:
        pass  # it cannot be seen
    return True
