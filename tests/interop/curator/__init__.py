"""A Java process with Curator's recipes (``Contender.java``), and the tests beside it.

``conftest.py`` has the processes that tests share; ``turns.py`` a contender of either language.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.interop import jvm
from tests.interop.contending import Contended
from tests.servers.zookeeper import BASE

#: Another Curator version to test with, such as 5.4.0; by default the version in pom.xml.
CURATOR: Final = os.environ.get("CURATOR_VERSION")
_PINNED: Final = re.search("<curator.version>(.*)</", Path(__file__).with_name("pom.xml").read_text("utf-8"))
#: What the results are about.
PEER: Final = ("Curator", CURATOR or (_PINNED[1] if _PINNED else "?"))

#: ``single`` is an InterProcessSemaphoreMutex.
Recipe = Literal["mutex", "single", "read", "write", "permits"]


def build(scratch: Path) -> str:
    """The class path of the program."""
    return jvm.build("curator", scratch, {"curator.version": CURATOR} if CURATOR else None)


def path_of(node: str) -> str:
    """Where Java finds what Python calls ``node``, if that needs no encoding."""
    return f"{BASE}/{node}"


class Held(NamedTuple):
    at: float  #: on the clock of ``time.monotonic``, which Java shares
    token: int  #: the czxid of the node; of a reader and of a ``single`` 0
    node: str


class Passed(NamedTuple):
    at: float  #: when it had entered or left
    began: float  #: when it was called


class Java(jvm.Program):
    """``with Java(classpath, "127.0.0.1:2181") as java:``."""

    def __init__(self, classpath: str, hosts: str, *, session: float = 10.0) -> None:
        super().__init__(classpath, hosts, str(round(session * 1000)))

    # ---- locks and permits

    def acquire(
        self,
        contender: str,
        path: str,
        *,
        timeout: float | None = None,
        recipe: Recipe = "mutex",
        size: int = 0,
        count: int = 1,
    ) -> None:
        """Starts to acquire the lock without waiting: ``held`` waits. ``size`` of a semaphore; 0: as its node says."""
        self.send("acquire", contender, path, _milliseconds(timeout), recipe, str(size), str(count))

    def held(self, contender: str, within: float = 30.0) -> Held | None:
        """Waits until the contender has the lock, or leads; None if it timed out."""
        kind, *facts = self.answer(contender, within)
        if kind == "busy":
            return None
        at, token, node = facts
        return Held(int(at) / 1e9, int(token), node)

    def take(
        self, contender: str, path: str, *, recipe: Recipe = "mutex", timeout: float = 20.0, size: int = 0
    ) -> Held | None:
        """Acquires the lock; None if it timed out."""
        self.acquire(contender, path, timeout=timeout, recipe=recipe, size=size)
        return self.held(contender)

    def release(self, contender: str, recipe: Recipe = "mutex") -> float:
        """Releases the lock and returns the time at which the release began."""
        self.send("release", contender, recipe)
        return int(self.answer(contender)[1]) / 1e9

    def contend(self, contender: str, kind: Recipe, name: str, register: Path, tokens: Path, seconds: float) -> None:
        """Does what ``contending.contend`` does, at the path ``name``; ``contended`` waits."""
        self.send("contend", contender, name, kind, str(register), str(tokens), _milliseconds(seconds))

    def contended(self, contender: str, within: float) -> Contended:
        grants, updates, longest = map(int, self.answer(contender, within)[1:])
        return Contended(grants, updates, longest / 1e3)

    # ---- elections and barriers

    def lead(self, contender: str, path: str, timeout: float = 20.0) -> None:
        """Starts to take part in an election, or to wait again in the same one; ``held`` waits."""
        self.send("lead", contender, path, _milliseconds(timeout))

    def leads(self, contender: str) -> bool:
        """Whether the contender leads, as far as it knows."""
        return self._ask("leads", contender)[0] == "true"

    def resign(self, contender: str) -> float:
        """Ends the participation and returns the time at which that began."""
        self.send("resign", contender)
        return int(self.answer(contender)[1]) / 1e9

    def leader(self, path: str) -> str:
        """The id of the leader, as Curator sees it."""
        return self._ask("leader", path)[0]

    def enter(self, contender: str, path: str, parties: int, timeout: float = 20.0) -> None:
        """Starts to enter a barrier; ``passed`` waits."""
        self.send("enter", contender, path, _milliseconds(timeout), str(parties))

    def leave(self, contender: str, timeout: float = 20.0) -> None:
        self.send("leave", contender, _milliseconds(timeout))

    def passed(self, contender: str) -> Passed | None:
        """Waits until the contender has entered or left; None if it timed out."""
        outcome, at, began = self.answer(contender)
        return Passed(int(at) / 1e9, int(began) / 1e9) if outcome == "passed" else None

    # ---- operators

    def holds(self, path: str) -> bool:
        """Whether this process holds the mutex, as far as Curator knows."""
        return self._ask("holds", path)[0] == "true"

    def sleeps(self, contender: str) -> bool:
        """Whether the contender waits for a watch."""
        return self._ask("sleeps", contender)[0] == "true"

    def participants(self, path: str) -> list[str]:
        """The participants in the queue, as Curator sees them."""
        return [node for node in self._ask("participants", path) if node]

    def delete(self, node: str) -> None:
        """Deletes a node of any owner."""
        self._ask("delete", node)

    def resize(self, path: str, size: int) -> None:
        """Sets the SharedCount of a semaphore."""
        self._ask("resize", f"{path}/permits", str(size))

    def revoke(self, node: str) -> None:
        """Asks the owner of the node to give it up, like Curator's Revoker."""
        self._ask("revoke", node)

    def _ask(self, command: str, *words: str) -> list[str]:
        self.send(command, "operator", *words)
        return self.answer("operator")[1:]


def _milliseconds(seconds: float | None) -> str:
    return "-1" if seconds is None else str(round(seconds * 1000))
