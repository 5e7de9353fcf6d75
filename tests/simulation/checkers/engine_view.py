"""The server's side of the invariants: the lock keys before and after each script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from holdfast.engines.base import is_of_grant
from tests.simulation.checkers.history import Violation
from tests.simulation.redis_model.server import RedisModel


class Change(NamedTuple):
    """Owners that got a lock by a script, and owners that lost one by force."""

    granted: list[str]
    displaced: list[str]


class View(Protocol):
    """What one server holds, by its own clock, and the checks of each script that it runs."""

    names: Sequence[str]

    def owners(self, name: str) -> Sequence[str]:
        """The owners that hold ``name`` now."""

    def before(self) -> None:
        """Called before each script."""

    def after(self, script: str, words: Sequence[bytes], reply: Any) -> Change:
        """Called after each script."""

    def may_keep(self, owner: str) -> bool:
        """Whether ``owner`` may have its lock at this moment, though no caller uses it and no fault is near."""

    def left_model(self, names: Sequence[str], *, all_keys: bool) -> list[str]:
        """An operator or the server is about to remove keys. Returns the owners that lose their locks."""

    def counters_lost(self) -> None:
        """The server has lost its counters, within the engine's model."""


#: The reply of acquire_free.lua where acquire.lua is to be asked.
_ASK_AGAIN = -3
#: The scripts that grant a lock to a claim.
_ACQUIRES = ("acquire", "acquire_free", "acquire_or_join")


def _tokens(script: str, arguments: Sequence[str]) -> int:
    """How many tokens a grant by ``script`` reserves; 0: not known."""
    if script == "acquire":
        return int(arguments[2])
    if script == "acquire_or_join":
        return int(arguments[3].split(" ")[4])  # of its entry in the queue
    return 1 if script == "acquire_free" else 0


class _Place(NamedTuple):
    """What a claim has asked for as it joined the queue."""

    tokens: int
    lease: int  #: how long the lock is its own after it was handed over, until it confirms that (ms)


class EngineView:
    """Checks invariants I2 (exclusion), I4 (exactly-once), I5 (tokens) and I13 (no resurrection), at the engine."""

    def __init__(self, model: RedisModel, names: Sequence[str]) -> None:
        self._model = model
        self.names = names
        self._owner: dict[str, str | None] = dict.fromkeys(names)
        self._token: dict[str, int] = dict.fromkeys(names, 0)
        self._block: dict[str, int] = {}  # how many tokens were reserved for the owner, if known
        self._finished: set[str] = set()
        self._forgotten: set[str] = set()  # those that had finished when the server lost all keys: no tombstones
        self._revived: dict[str, int] = {}  # those of them that were handed the lock: when that ends (ms)
        self._next: dict[str, _Place] = {}  # owners that a release may hand over to
        self.grants = 0

    def owner(self, name: str) -> str | None:
        """The owner of the lock now, by the server's clock."""
        fields: dict[bytes, bytes] | None = self._model.keys.peek(name.encode())
        if not fields:
            return None
        if len(fields) > 1:
            raise Violation("I2", f"{name} has two owners at once: {sorted(fields)}")
        return next(iter(fields)).decode()

    def owners(self, name: str) -> Sequence[str]:
        owner = self.owner(name)
        return [] if owner is None else [owner]

    def before(self) -> None:
        """Notes expired locks, which no script reports."""
        for name in self.names:
            if self._owner[name] is not None and self.owner(name) is None:
                self._owner[name] = None

    def after(self, script: str, words: Sequence[bytes], reply: Any) -> Change:
        """Compares with the state before the script."""
        arguments = [word.decode() for word in words[3 + int(words[2]) :]]
        change = Change([], [])
        # Two steps in one, with the arguments of the acquire or the release first. If refused, it releases nothing.
        if script == "acquire_load":
            script = "acquire"
        elif script == "store_release" and not isinstance(reply, list):
            script = "release"
        for name in self.names:
            before, now = self._owner[name], self.owner(name)
            if before == now:
                continue
            self._owner[name] = now
            if before is not None and script == "break":
                self._check_broken(name, before, *arguments[3:5])
                change.displaced.append(before)
            elif before is not None:
                self._removed(name, before, script, words, now)
            if now is not None:
                handed = self._next.get(now) if script == "release" else None
                self._block[name] = _tokens(script, arguments) if handed is None else handed.tokens
                self._granted(name, now, script)
                change.granted.append(now)
        if script == "release" and (arguments[3:4] not in ([], ["0"]) or len(arguments) > 4):
            self._finished.add(arguments[0])  # with a tombstone, or by a waiter that leaves
        elif script in _ACQUIRES:
            if script == "acquire_or_join":
                self._next[arguments[0]] = _Place(_tokens(script, arguments), int(arguments[3].split(" ")[2]))
            self._check_acquire(words[3].decode(), arguments[0], reply)
        elif script == "renew":
            self._check_holders(script, _keys(words)[::3], arguments[3:], reply)
        elif script == "join":
            self._check_holders(script, _keys(words)[::4], arguments[2::4], reply)
        return change

    def _check_broken(self, name: str, owner: str, token: str, only: str) -> None:
        """A break by token, or by owner, removes that holder and no later one."""
        tokens = self._block.get(name, 0)
        if token and tokens and not is_of_grant(int(token), self._token[name], tokens):
            had = self._token[name]
            raise Violation("I2", f"{name}: break with {token} took it from …{owner[-4:]}, which has {had}")
        if only and only != owner:
            raise Violation("I2", f"{name}: break of …{only[-4:]} took it from …{owner[-4:]}")

    def _check_acquire(self, name: str, owner: str, reply: Any) -> None:
        """The answer must be true: no grant without a lock, and no refusal of a claim that has the lock."""
        holds = self._owner[name] == owner
        if reply == _ASK_AGAIN:
            return
        if holds is isinstance(reply, int) and owner not in self._finished:
            raise Violation(
                "I4",
                f"{name}: acquire answered {reply!r} to …{owner[-4:]}, which {'has' if holds else 'has not'} got it",
            )

    def _check_holders(self, script: str, names: Sequence[str], owners: Sequence[str], reply: Sequence[int]) -> None:
        for name, owner, found in zip(names, owners, reply, strict=True):
            if found == 1 and self._owner[name] != owner:
                raise Violation("I13", f"{name}: {script} answered …{owner[-4:]} that it holds it")

    def _removed(self, name: str, owner: str, script: str, words: Sequence[bytes], next_owner: str | None) -> None:
        if next_owner is not None and (script != "release" or next_owner not in self._next):
            raise Violation(
                "I2", f"{name}: {script} granted it to …{next_owner[-4:]} while …{owner[-4:]} had time left"
            )
        if owner.encode() not in words:
            raise Violation("I2", f"{name}: {script} took it from …{owner[-4:]}, which had not asked for it")
        self._finished.add(owner)

    def _granted(self, name: str, owner: str, script: str) -> None:
        if script not in (*_ACQUIRES, "join") and (script != "release" or owner not in self._next):
            raise Violation("I13", f"{name}: {script} made a lock for …{owner[-4:]}")
        if owner in self._finished:
            raise Violation("I4", f"{name}: a late {script} granted it to …{owner[-4:]}, which had given it up")
        if owner in self._forgotten and script == "release":
            self._revived[owner] = self._model.milliseconds() + self._next[owner].lease
        self.grants += 1
        if script == "join":
            return  # a join: the token comes from the other servers
        token = int(self._model.keys.peek(token_key(name).encode()) or 0)
        if token <= self._token[name]:
            raise Violation("I5", f"{name}: token {token} for …{owner[-4:]} after {self._token[name]}")
        self._token[name] = token

    def may_keep(self, owner: str) -> bool:
        """A late duplicate may join the queue for a claim whose tombstone was lost with all other keys, outside the
        model. Then a release hands the lock over to no caller: for a short lease, as to one that has died."""
        return self._model.milliseconds() <= self._revived.get(owner, 0)

    def counters_lost(self) -> None:
        """Stops the check of this server's tokens: of several servers, only the majority's tokens must be in order."""
        self._token = dict.fromkeys(self.names, 0)

    def left_model(self, names: Sequence[str], *, all_keys: bool) -> list[str]:
        """An operator or the server is about to remove keys. Returns the owners that lose their locks."""
        displaced = [owner for name in names if (owner := self.owner(name)) is not None]
        for name in names:
            self._owner[name] = None
        if all_keys:
            self._forgotten |= self._finished
            self._finished.clear()  # the tombstones are gone too
        return displaced


def _keys(words: Sequence[bytes]) -> list[str]:
    return [word.decode() for word in words[3 : 3 + int(words[2])]]


def token_key(name: str) -> str:
    """The key of the counter, as in Redisson's fenced lock."""
    return f"redisson_lock_token:{name}" if "{" in name else f"redisson_lock_token:{{{name}}}"
