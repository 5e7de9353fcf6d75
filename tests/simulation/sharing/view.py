"""The server's side of the invariants, for objects with several holders: the keys before and after each script."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from holdfast.engines.redis.dialect.keys import keys_of
from tests.simulation.checkers.engine_view import Change
from tests.simulation.checkers.history import Violation
from tests.simulation.redis_model.server import RedisModel


class Run(NamedTuple):
    """One script that was run."""

    script: str
    keys: Sequence[str]
    arguments: Sequence[str]
    reply: Any

    @property
    def owner(self) -> str:
        """Of an acquire or a release."""
        return self.arguments[0]


class ObjectView(abc.ABC):
    """One read-write lock or semaphore at the server."""

    acquire: str  #: the names of its scripts
    release: str
    break_: str
    waiter_argument: int  #: where an acquire has the id of its entry in the queue

    def __init__(self, model: RedisModel, name: str) -> None:
        self.model = model
        self.name = name
        self.keys: Final = keys_of(name)
        self.finished: set[str] = set()  #: owners that were released or withdrawn: they must not come back
        self.was: Mapping[str, Any] = {}  #: the holders before the script
        self.queue_was: list[str] = []  #: the queue before the script, with entries that have expired
        self.live_were: frozenset[str] = frozenset()  #: those of them that had not

    @abc.abstractmethod
    def holders(self) -> Mapping[str, Any]:
        """The owners now, by the server's clock, each with how it holds."""

    @abc.abstractmethod
    def is_renewal_of(self, run: Run) -> list[tuple[str, int]]:
        """The owners on this object that ``run`` was to renew, each with the answer."""

    @abc.abstractmethod
    def check_grant(self, run: Run, now: Mapping[str, Any]) -> None:
        """``run`` has granted the object to its owner."""

    @abc.abstractmethod
    def is_granted(self, reply: Any) -> bool:
        """Whether this answer to an acquire is a grant."""

    @abc.abstractmethod
    def conflicts(self, waiter: str, run: Run) -> bool:
        """Whether the claim of ``run`` has to wait for a waiter that is queued before it."""

    @abc.abstractmethod
    def check_state(self, run: Run, now: Mapping[str, Any]) -> None:
        """Called after each script on this object."""

    def may_drop(self, owner: str) -> bool:
        """Whether the script of another owner may end the hold of this one: its time was over."""
        return False

    def queue(self) -> list[str]:
        """The live waiters, in order."""
        return [waiter for waiter in self._entries() if self._is_alive(waiter)]

    def _entries(self) -> list[str]:
        entries: list[bytes] = self.model.keys.peek(self.keys.queue.encode()) or []
        return [entry.decode() for entry in entries]

    def _is_alive(self, waiter: str) -> bool:
        return self.model.keys.peek(self.keys.waiter(waiter).encode()) is not None

    def before(self) -> None:
        self.was, self.queue_was = self.holders(), self._entries()
        self.live_were = frozenset(filter(self._is_alive, self.queue_was))

    def after(self, run: Run) -> Change:
        was, now, change = self.was, self.holders(), Change([], [])
        for owner in was.keys() - now.keys():
            if run.script == self.break_:
                change.displaced.append(owner)
            elif owner in run.arguments:
                self.finished.add(owner)
            elif not self.may_drop(owner):
                raise Violation("I2", f"{self.name}: {run.script} took it from …{owner[-4:]}, which had not asked")
        for owner in now.keys() - was.keys():
            self._check_granted(owner, run, now)
            change.granted.append(owner)
        if self.name in run.keys:
            if run.script == self.release and run.arguments[4:5] not in ([], ["0"]):
                self.finished.add(run.owner)  # with a tombstone
            elif run.script == self.acquire:
                self._check_answer(run, now)
            for owner, found in self.is_renewal_of(run):
                if found == 1 and owner not in now:
                    raise Violation("I13", f"{self.name}: {run.script} answered …{owner[-4:]} that it holds it")
            self.check_state(run, now)
        change.granted.sort()
        change.displaced.sort()
        return change

    def _check_granted(self, owner: str, run: Run, now: Mapping[str, Any]) -> None:
        if run.script != self.acquire or run.owner != owner:
            raise Violation("I13", f"{self.name}: {run.script} made a hold of …{owner[-4:]}")
        if owner in self.finished:
            raise Violation("I4", f"{self.name}: a late acquire granted it to …{owner[-4:]}, which had given it up")
        waiter = run.arguments[self.waiter_argument] if len(run.arguments) > self.waiter_argument else None
        for ahead in self.queue_was:
            if ahead == waiter:
                break
            if ahead in self.live_were and self.conflicts(ahead, run):
                raise Violation("I11", f"{self.name}: granted to …{owner[-4:]} before {ahead}, which came earlier")
        self.check_grant(run, now)

    def _check_answer(self, run: Run, now: Mapping[str, Any]) -> None:
        """No grant without a hold, and no refusal of a claim that holds."""
        if (run.owner in now) is not self.is_granted(run.reply) and run.owner not in self.finished:
            raise Violation("I4", f"{self.name}: acquire answered {run.reply!r} to …{run.owner[-4:]}")

    def left_model(self, *, all_keys: bool) -> list[str]:
        """Its key, or all keys, are about to be removed. Returns the owners that lose their holds."""
        if all_keys:
            self.finished.clear()
        displaced = sorted(self.holders())
        self.was = {}
        return displaced


class SharingView:
    """All objects of one server. See :class:`tests.simulation.checkers.engine_view.View`."""

    def __init__(self, objects: Sequence[ObjectView]) -> None:
        self.names: Sequence[str] = [each.name for each in objects]
        self.objects = {each.name: each for each in objects}
        self.scripts = 0  #: how many have run
        self.on_before: Callable[[], None] = lambda: None  #: called before each command
        self.last: Run | None = None

    def owners(self, name: str) -> Sequence[str]:
        return sorted(self.objects[name].holders())

    def before(self) -> None:
        for each in self.objects.values():
            each.before()
        self.on_before()

    def after(self, script: str, words: Sequence[bytes], reply: Any) -> Change:
        self.scripts += 1
        first = 3 + int(words[2])
        run = Run(script, [key.decode() for key in words[3:first]], [word.decode() for word in words[first:]], reply)
        self.last = run
        changes = [each.after(run) for each in self.objects.values()]
        return Change(*(list(owners) for owners in map(_together, zip(*changes, strict=True))))

    def may_keep(self, owner: str) -> bool:
        return False  # none of these objects is handed over

    def left_model(self, names: Sequence[str], *, all_keys: bool) -> list[str]:
        return [owner for name in names for owner in self.objects[name].left_model(all_keys=all_keys)]

    def counters_lost(self) -> None:
        raise NotImplementedError("a restart without memory is outside the model of one server")


def _together(lists: Sequence[list[str]]) -> list[str]:
    return [owner for each in lists for owner in each]
