"""Threads and processes of both languages compete for a lock, with a number in a file that loses updates without.

``contend`` is the part of one contender in Python, in a thread of the test or in another process; each
``Contender.java`` does the same. ``compete`` is all of them together.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Protocol

import holdfast
from tests.support.child import Child

Kind = Literal["lock", "read", "write", "permits"]

#: This module, in an expression for a child.
_MODULE: Final = "__import__('tests.interop.contending', fromlist=['contend'])"


# ---- one contender


def contend(
    locks: holdfast.Client, kind: Kind, name: str, register: str, tokens: str, seconds: float
) -> tuple[int, int, float]:
    """Increments the number in a file under the lock, again and again: an update is lost if any other holder does so at
    the same time. A reader checks that the number does not change. Returns grants, updates and the longest wait."""
    lock = _lock(locks, kind, name)
    file, grants, updates, longest = Path(register), 0, 0, 0.0
    end = time.monotonic() + seconds
    while (before := time.monotonic()) < end:
        with lock.acquire() as lease:
            longest = max(longest, time.monotonic() - before)
            number = file.read_text("ascii")
            time.sleep(0.001)
            if kind == "read":
                assert file.read_text("ascii") == number, "the number changed while it was read"
            else:
                file.write_text(str(int(number) + 1), "ascii")
                updates += 1
            if kind == "lock":
                with open(tokens, "a", encoding="ascii") as out:
                    out.write(f"{lease.token}\n")
        grants += 1
        time.sleep(0.002)
    return grants, updates, longest


def _lock(locks: holdfast.Client, kind: Kind, name: str) -> Any:
    if kind == "lock":
        return locks.lock(name)
    if kind == "permits":
        return locks.semaphore(name, 1)
    return locks.rwlock(name).read if kind == "read" else locks.rwlock(name).write


# ---- all together


class Contended(NamedTuple):
    grants: int
    updates: int
    longest: float  #: wait, in seconds


class InJava(Protocol):
    """A Java process with Redisson or Curator; the kinds are those that it knows."""

    def contend(self, contender: str, kind: Any, name: str, register: Path, tokens: Path, seconds: float) -> None:
        """Begins to do what ``contend`` does here."""

    def contended(self, contender: str, within: float) -> Contended: ...


class Mix(NamedTuple):
    java: tuple[str, ...]  #: a thread for each, with its kind
    threads: tuple[Kind, ...]  #: in Python, of the test's process
    child: Kind | None = None  #: a process in Python


class Contest(NamedTuple):
    results: list[Contended]  #: of Java's threads, Python's threads and the process
    tokens: list[int]  #: in the order of grants

    @property
    def least(self) -> int:
        """The grants of the contender that had fewest."""
        return min(result.grants for result in self.results)


def compete(
    mix: Mix,
    java: InJava,
    locks: holdfast.Client,
    folder: Path,
    seconds: float,
    *,
    late: float,
    name: str = "name",
    name_in_java: str | None = None,
    child: Child | None = None,
    meanwhile: Callable[[], object] | None = None,
) -> Contest:
    """All contend for ``name``. Checks that no update is lost and that tokens are in the order of grants. ``late``: how
    long their last round may take (s). ``meanwhile`` is called while they contend."""
    register, tokens = folder / "register", folder / "tokens"
    register.write_text("0", "ascii")
    tokens.write_text("", "ascii")
    arguments = (name, str(register), str(tokens), seconds)
    in_java = {f"j{number}": kind for number, kind in enumerate(mix.java)}
    with ThreadPoolExecutor(len(mix.threads)) as pool:
        if child is not None:
            child.send(f"{_MODULE}.contend(locks, {mix.child!r}, *{arguments!r})")
        for contender, kind in in_java.items():
            java.contend(contender, kind, name_in_java or name, register, tokens, seconds)
        threads = [pool.submit(contend, locks, each, *arguments) for each in mix.threads]
        if meanwhile is not None:
            meanwhile()
        results = [java.contended(contender, seconds + late) for contender in in_java]
        results += [Contended(*thread.result(late)) for thread in threads]
        if child is not None:
            results.append(Contended(*child.answer()))
    return _checked(results, register, tokens)


def _checked(results: list[Contended], register: Path, tokens: Path) -> Contest:
    for result in results:
        print(f"grants {result.grants}, updates {result.updates}, longest wait {result.longest:.3f} s")
    assert int(register.read_text("ascii")) == sum(result.updates for result in results), "an update was lost"
    issued = [int(token) for token in tokens.read_text("ascii").split()]
    assert all(first < second for first, second in pairwise(issued))
    return Contest(results, issued)
